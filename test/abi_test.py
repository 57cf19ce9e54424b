"""The C interface is the one that is committed, and tools/abi would say so if it were not."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from testbed.testing import REPOSITORY, main


def tools_abi(*words):
    return subprocess.run([REPOSITORY / 'tools/abi', *words], capture_output=True, text=True, timeout=120)


class AbiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which('abidiff') and not os.environ.get('CI'):
            raise unittest.SkipTest('abidiff is missing: run tools/setup')

    def setUp(self):
        self.libpool = Path(self.enterContext(tempfile.TemporaryDirectory())) / 'libpool'
        for part in ('include', 'src', 'heap'):
            shutil.copytree(REPOSITORY / 'libpool' / part, self.libpool / part)

    def change(self, file, before, after):
        """In the copy of the sources."""
        text, changes = re.subn(before, after, (self.libpool / file).read_text(), flags=re.M)
        self.assertEqual(changes, 1, before)
        (self.libpool / file).write_text(text)

    def test_the_interface_is_the_one_that_is_committed(self):
        done = tools_abi()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))

    def test_each_change_is_seen(self):
        for file, before, after, said in (
                ('include/cxlpool/cxlpool.h', r'^CXLPOOL_API void cxlpool_unmap\(.*\n', '', r"cxlpool_unmap\(.*\n"),
                ('include/cxlpool/cxlpool.h', r'^(CXLPOOL_API )void (cxlpool_unmap\()', r'\1int \2', 'return type changed'),
                ('include/cxlpool/cxlpool.h', r'^(  uint64_t )(size_bytes;.*\n(?:.*\n)*?\} cxlpool_allocate_options;)', r'\1before;\n\1\2', 'before'),
                ('include/cxlpool/directory.h', r'^  uint32_t partitions;( /\* 1 to)', r'  uint64_t partitions;\1', 'uint64_t'),
                ('include/cxlpool/heap.h', r'^(CXLPOOL_API .*cxlpool_heap_free\(.*);', r'\1;\nCXLPOOL_API void cxlpool_heap_new(void);', 'cxlpool_heap_new'),
                ('src/cxlpool.map', r'^CXLPOOL_1\.0', 'CXLPOOL_1.1', r'\d\d Removed functions:')):
            with self.subTest(said):
                kept = (self.libpool / file).read_text()
                self.change(file, before, after)
                done = tools_abi('--libpool', self.libpool)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertRegex(done.stdout, said)
                self.assertIn('run tools/abi --update', done.stderr)
                (self.libpool / file).write_text(kept)

    def test_an_update_is_what_it_says(self):
        """Nothing of the folder, the day or the order gets into it: written again, each is what it is."""
        names = ('src/libcxlpool.abi', 'heap/libcxlpool-heap.abi')
        committed = [(self.libpool / name).read_text() for name in names]
        self.change('include/cxlpool/heap.h', r'^(CXLPOOL_API .*cxlpool_heap_free\(.*);', r'\1;\nCXLPOOL_API void cxlpool_heap_new(void);')
        self.assertEqual(tools_abi('--libpool', self.libpool, '--update').returncode, 0)
        self.assertEqual(tools_abi('--libpool', self.libpool).returncode, 0)
        written = [(self.libpool / name).read_text() for name in names]
        self.assertEqual(written[0], committed[0])
        self.assertIn('cxlpool_heap_new', written[1])
        self.assertNotIn(str(self.libpool.parent), written[1])

    def test_what_does_not_compile_is_no_difference(self):
        self.change('include/cxlpool/heap.h', r'^CXLPOOL_API (.*cxlpool_heap_free\()', r'CXLPOOL_API unknown_type \1')
        done = tools_abi('--libpool', self.libpool)
        self.assertEqual(done.returncode, 2)
        self.assertIn('the headers do not compile', done.stderr)


if __name__ == '__main__':
    main()
