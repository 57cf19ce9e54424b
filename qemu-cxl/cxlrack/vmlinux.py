"""Takes the uncompressed kernel (an ELF file) out of a bzImage.

Where it lies is said by the bzImage's own setup header: Linux, Documentation/arch/x86/boot.rst, fields setup_sects,
payload_offset and payload_length. The payload is followed by its unpacked size, four bytes, little-endian.
"""
import lzma
import struct
import subprocess
import sys
import zlib

_ELF = b'\x7fELF'


def extract(image: bytes) -> bytes:
    """The ELF kernel inside `image`. ValueError, saying what is wrong, when there is none."""
    if image[0x202:0x206] != b'HdrS':
        raise ValueError('not a bzImage: no "HdrS" at 0x202')
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from('<II', image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload, size = image[start:start + length - 4], struct.unpack_from('<I', image, start + length - 4)[0]
    kernel = _decompress(payload)
    if len(kernel) != size:
        raise ValueError(f'the payload unpacks to {len(kernel)} bytes, its header says {size}')
    if not kernel.startswith(_ELF):
        raise ValueError('the payload is not an ELF file')
    return kernel


def _decompress(payload: bytes) -> bytes:
    if payload.startswith(b'\x28\xb5\x2f\xfd'):
        return subprocess.run(['zstd', '-dcq'], input=payload, stdout=subprocess.PIPE, check=True).stdout
    if payload.startswith(b'\xfd7zXZ\0'):
        return lzma.decompress(payload, lzma.FORMAT_XZ)
    if payload.startswith(b'\x1f\x8b'):
        return zlib.decompress(payload, wbits=31)
    raise ValueError(f'compressed in a way not known here (starts with {payload[:6].hex()})')


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print('usage: vmlinux.py BZIMAGE VMLINUX', file=sys.stderr)
        return 2
    try:
        with open(arguments[0], 'rb') as source:
            kernel = extract(source.read())
    except (ValueError, OSError, lzma.LZMAError, subprocess.CalledProcessError) as e:
        print(f'vmlinux.py: {arguments[0]}: {e}', file=sys.stderr)
        return 1
    with open(arguments[1], 'wb') as out:
        out.write(kernel)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
