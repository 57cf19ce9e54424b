"""A host's overlay: a cpio archive (newc, as the kernel's initramfs wants it) that is appended to the machine image.

The kernel unpacks one archive after the other, so an overlay's files replace the image's. Everything belongs to root.
"""
import os
import stat
from pathlib import Path
from typing import Mapping

from cxlrack.errors import RackError

# A value of a mapping: the bytes, or the bytes and the file's mode.
Content = bytes | tuple[bytes, int]

MAX_OVERLAY_BYTES = 256 << 20


def from_directory(directory: str | Path) -> dict[str, Content]:
    """Every regular file below `directory`, by the path it will have in the host, with its mode."""
    base = Path(directory)
    if not base.is_dir():
        raise RackError(f'overlay {base}: not a directory')
    files = {}
    for path in sorted(base.rglob('*')):
        if path.is_dir():
            continue
        if not path.is_file():
            raise RackError(f'overlay {base}: {path} is not a regular file')
        files['/' + str(path.relative_to(base))] = (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
    return files


def archive(files: Mapping[str, Content]) -> bytes:
    """The archive of these files and of the directories they are in."""
    entries: dict[str, tuple[int, bytes]] = {}
    for name, content in sorted(files.items()):
        data, mode = content if isinstance(content, tuple) else (content, 0o644)
        path = name.strip('/')
        parts = path.split('/')
        if not path or any(part in ('', '.', '..') for part in parts) or '\0' in path:
            raise RackError(f'overlay: {name!r} is not a path for a file')
        for depth in range(1, len(parts)):
            entries.setdefault('/'.join(parts[:depth]), (stat.S_IFDIR | 0o755, b''))
        entries[path] = (stat.S_IFREG | mode, data)
    if sum(len(data) for _, data in entries.values()) > MAX_OVERLAY_BYTES:
        raise RackError(f'overlay: more than {MAX_OVERLAY_BYTES >> 20} MiB; put programs into the image (mkimage --bin)')
    out = bytearray()
    for inode, (path, (mode, data)) in enumerate(entries.items(), start=1):
        out += _entry(inode, path, mode, data)
    return bytes(out + _entry(0, 'TRAILER!!!', 0, b''))


def write_initrd(out: Path, image: Path, files: Mapping[str, Content]) -> None:
    """The image with the overlay behind it, in `out` (0600: it may hold keys), by a rename."""
    temporary = out.with_name(out.name + '.tmp')
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'wb') as f:
        f.write(image.read_bytes())
        if files:
            f.write(b'\0' * (-f.tell() % 512))  # an archive starts aligned; the kernel skips the zeros
            f.write(archive(files))
    os.replace(temporary, out)


def _entry(inode: int, path: str, mode: int, data: bytes) -> bytes:
    name = path.encode() + b'\0'
    fields = (inode, mode, 0, 0, 2 if stat.S_ISDIR(mode) else 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
    header = b'070701' + b''.join(b'%08X' % field for field in fields)
    head = header + name
    return head + b'\0' * (-len(head) % 4) + data + b'\0' * (-len(data) % 4)
