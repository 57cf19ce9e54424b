"""Tests of cpio.py, with the system's cpio as the judge."""
import os
import shutil
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

from cxlrack import cpio
from cxlrack.errors import RackError

FILES = {'/etc/cxlpool/agent.toml': b'name = "a"\n', '/etc/cxlpool/tls/key.pem': (b'\0' * 1025, 0o600), 'top': b''}


class CpioTest(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))

    @unittest.skipUnless(shutil.which('cpio'), 'no cpio here')
    def test_what_goes_in_comes_out(self):
        extract = ['cpio', '-idm', '--quiet', '--no-absolute-filenames']
        subprocess.run(extract, input=cpio.archive(FILES), cwd=self.directory, check=True)
        self.assertEqual((self.directory / 'etc/cxlpool/agent.toml').read_bytes(), b'name = "a"\n')
        key = self.directory / 'etc/cxlpool/tls/key.pem'
        self.assertEqual(key.read_bytes(), b'\0' * 1025)
        self.assertEqual(stat.S_IMODE(key.stat().st_mode), 0o600)
        self.assertEqual((self.directory / 'top').read_bytes(), b'')

    def test_directories_come_before_what_is_in_them(self):
        data = cpio.archive(FILES)
        paths = (b'etc', b'etc/cxlpool', b'etc/cxlpool/tls', b'etc/cxlpool/tls/key.pem')
        places = [data.index(path + b'\0') for path in paths]
        self.assertEqual(places, sorted(places))

    def test_the_same_files_make_the_same_bytes(self):
        self.assertEqual(cpio.archive(FILES), cpio.archive(dict(reversed(FILES.items()))))

    def test_a_path_out_of_the_root_is_refused(self):
        for bad in ('', '/', '../etc/passwd', '/a/../b', 'a//b', 'a\0b'):
            with self.assertRaises(RackError):
                cpio.archive({bad: b''})

    def test_too_much_is_refused(self):
        with self.assertRaises(RackError):
            cpio.archive({'big': bytes(cpio.MAX_OVERLAY_BYTES + 1)})

    def test_a_directory_keeps_paths_and_modes(self):
        (self.directory / 'usr/bin').mkdir(parents=True)
        (self.directory / 'usr/bin/x').write_bytes(b'#!')
        (self.directory / 'usr/bin/x').chmod(0o755)
        self.assertEqual(cpio.from_directory(self.directory), {'/usr/bin/x': (b'#!', 0o755)})

    def test_a_directory_with_a_fifo_is_refused(self):
        os.mkfifo(self.directory / 'pipe')
        with self.assertRaises(RackError):
            cpio.from_directory(self.directory)

    def test_no_directory_is_refused(self):
        with self.assertRaises(RackError):
            cpio.from_directory(self.directory / 'none')

    def test_an_initrd_is_the_image_and_then_an_aligned_overlay(self):
        image, out = self.directory / 'image', self.directory / 'initrd'
        image.write_bytes(b'i' * 1001)
        cpio.write_initrd(out, image, FILES)
        data = out.read_bytes()
        self.assertTrue(data.startswith(b'i' * 1001 + b'\0' * 23 + b'070701'))
        self.assertEqual(data[1024:], cpio.archive(FILES))
        self.assertEqual(stat.S_IMODE(out.stat().st_mode), 0o600)


if __name__ == '__main__':
    unittest.main()
