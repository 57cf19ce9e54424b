"""Tests of vmlinux.py."""
import lzma
import struct
import unittest
import zlib

from cxlrack import vmlinux

KERNEL = b'\x7fELF' + bytes(5000)


def bzimage(payload: bytes, size: int = len(KERNEL), offset: int = 640) -> bytes:
    setup = bytearray(3 * 512)
    setup[0x1F1] = 2
    setup[0x202:0x206] = b'HdrS'
    struct.pack_into('<II', setup, 0x248, offset, len(payload) + 4)
    return bytes(setup) + bytes(offset) + payload + struct.pack('<I', size) + b'tail'


class VmlinuxTest(unittest.TestCase):
    def test_xz_and_gzip(self):
        compressor = zlib.compressobj(wbits=31)
        for payload in (lzma.compress(KERNEL), compressor.compress(KERNEL) + compressor.flush()):
            self.assertEqual(vmlinux.extract(bzimage(payload)), KERNEL)

    def test_what_is_not_a_kernel_is_refused(self):
        for image, word in ((bytes(4096), 'bzImage'),
                            (bzimage(b'????'), 'not known'),
                            (bzimage(lzma.compress(KERNEL), 7), '7'),
                            (bzimage(lzma.compress(b'x' * 9), 9), 'ELF')):
            with self.assertRaisesRegex(ValueError, word):
                vmlinux.extract(image)


if __name__ == '__main__':
    unittest.main()
