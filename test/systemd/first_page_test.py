"""README's "One machine, installed" on a fresh Debian, as printed: from a clone to a program's bytes in a Region. Prints the minutes.

What needs the network runs in a container that has this machine's, what needs systemd on a machine of the same files.
"""

import re
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from testbed.machines import PATH, Machine, require_machines
from testbed.testing import REPOSITORY, main

BUILD_SECONDS = 6000


class FirstPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        root = require_machines()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-first-page-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.tree = cls.directory / 'tree'
        subprocess.run(['cp', '-a', root, cls.tree], check=True, timeout=300)
        subprocess.run(['git', 'clone', '-q', REPOSITORY, cls.tree / 'root/cxlpool'], check=True, timeout=300)

    def build(self, lines):
        done = subprocess.run(
            ['systemd-nspawn', '--quiet', f'--directory={self.tree}', '--register=no', '--keep-unit', '--console=pipe',
             f'--setenv=PATH={PATH}', '--chdir=/root/cxlpool', 'sh', '-euxc', '\n'.join(lines)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])

    def test_from_a_clone_to_bytes_in_a_region(self):
        block = re.search(r'^## One machine, installed$.*?^```sh one\n(.*?)^```$', (REPOSITORY / 'README.md').read_text(), re.M | re.S)[1]
        lines = block.splitlines()
        parts = [[line for line in lines if line.startswith('tools/')], [line for line in lines if not line.startswith('tools/')]]
        self.assertEqual([*parts[0], *parts[1]], lines)
        began = time.monotonic()
        self.build(parts[0])
        built = time.monotonic()
        machine = Machine('first', self.tree, self.directory / 'first.log')
        self.addCleanup(machine.stop)
        machine.start()
        said = machine.output('cd cxlpool\n' + '\n'.join(parts[1]), timeout=300)
        self.assertRegex(said, r'verified 268435456 bytes of regions/first')
        print(f'first page: packages {(built - began) / 60:.1f} minutes, memory {(time.monotonic() - built) / 60:.1f} minutes')


if __name__ == '__main__':
    main()
