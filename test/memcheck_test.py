"""libpool's unit tests under valgrind's memcheck: no leak, and nothing that is read, written or jumped by that is not there or not set.

What takes longest is left for tools/test --long ($CXLPOOL_MEMCHECK=all).
"""

import collections
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from testbed.testing import BUILD, main

PROGRAMS = (BUILD / 'libpool/libpool_test', BUILD / 'libpool/libpool_heap_test')
# Tests that can say nothing under valgrind, and why.
LEFT_OUT = {
    'BusGuardTest.AnEarlyWordOfLostBytesIsHandledLikeOneThatWasSent': 'valgrind takes a SIGBUS that says MCEERR for one of its own, and ends',
    'CopierTest.APrefetchTouchesEveryPage': 'valgrind leaves out loads of which nobody uses the value',
    'MappingTest.PopulatedPagesAreThereAndNoneIsInACoreDump': 'smaps has the map in one range with its neighbour there',
    'CaughtCopyTest.FaultsOfOtherMemoryAndOtherInstructionsAreTheForeignHandlers': 'its last copy of a few bytes has no fault '
    'there, after the foreign handler has mapped memory; why is not known',
    'NoMemoryTest.*': 'valgrind puts an operator new of its own in the place of the one that fails',
    'LeaksTest.*': 'they start /proc/self/exe, which is valgrind',
    'ClientConnectTest.WhoStartsAProgramWithOtherRightsDoesNotChooseItsAgent': 'it starts /proc/self/exe, which is valgrind',
    'HeapProfileTest.IsWrittenWhereTheEnvironmentAskedForIt': 'it starts /proc/self/exe, which is valgrind',
    'MappingTest.AGrowthThatCannotBeMappedLeavesTheMapAsItWas': 'it gives the kernel an address where nothing is, on purpose',
}
# Half a minute and more each.
LONG = ('CopyKernelsTest.EachCopiesAnyNumberOfBytesAtAnyAlignment', 'LocalCodecTest.DamagedBytesAreReadAsProtobufReadsThem',
        '*/DirectoryTest.AWriterMayBeKilledAtAnyMoment/*', '*/DirectoryTest.RefusalsSayWhyAndChangeNothing/*')
TOO_LONG = () if os.environ.get('CXLPOOL_MEMCHECK') == 'all' else LONG


def complaints(said, main_pid):
    """What memcheck found, each as a text. Of a forked child neither its leaks, for what threads had that it does not have is lost
    in it, nor the signal that ends it, for which it was made."""
    blocks = collections.defaultdict(list)
    found = []
    for pid, line in re.findall(r'^==(\d+)== ?(.*)$', said, re.M):
        if line.strip():
            blocks[pid].append(line)
        elif text := '\n'.join(blocks.pop(pid, ())):
            if int(pid) == main_pid or not re.search(' lost in loss record |^Process terminating with default action', text):
                found.append(text)
    return found


def under_memcheck(*command):
    """How the command ends, what it says, and what memcheck does."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / 'log'
        words = ['valgrind', '--quiet', '--leak-check=full', '--show-leak-kinds=definite', '--fair-sched=yes', '--num-callers=20',
                 f'--log-file={log}', *map(str, command)]
        process = subprocess.Popen(words, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            said = process.communicate(timeout=1500)[0]
        finally:
            process.kill()
        return process.returncode, said, complaints(log.read_text(errors='replace'), process.pid)


class MemcheckTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which('valgrind') and not os.environ.get('CI'):
            raise unittest.SkipTest('valgrind is missing: run tools/setup')

    def assert_clean(self, program):
        if not program.exists():
            self.skipTest(f'{program.name} is not built')
        code, said, found = under_memcheck(program, '--gtest_brief=1', '--gtest_filter=-' + ':'.join((*LEFT_OUT, *TOO_LONG)))
        self.assertEqual((code, found), (0, []), said[-4000:] + '\n\n'.join(found))

    def test_libpool(self):
        self.assert_clean(PROGRAMS[0])

    def test_heap(self):
        self.assert_clean(PROGRAMS[1])

    def test_what_is_left_out_is_there(self):
        listed = ''
        for program in PROGRAMS:
            if program.exists():
                listed += subprocess.run([program, '--gtest_list_tests'], capture_output=True, text=True, timeout=60, check=True).stdout
        names = [name for name in (*LEFT_OUT, *LONG) if not name.startswith('Heap') or PROGRAMS[1].exists()]
        for name in names:
            self.assertRegex(listed, rf'(?m)^  {name.split(".")[1].removesuffix("/*").replace("*", "")}\b')

    def test_what_is_wrong_is_found(self):
        """A program that reads behind a block, branches by what is not set and loses a block; and the same in a forked child."""
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / 'wrong.c').write_text('''
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **words) {
  if (argc > 2 && fork() != 0) { wait(0); return 0; }
  volatile char *block = malloc(10);
  switch (words[1][0]) {
    case 'r': if (block[10]) block[0] = 1; break;
    case 'b': if (block[0]) block[0] = 1; break;
    case 'l': block = 0; return 0;
  }
  free((void *)block);
  return 0;
}
''')
            program = Path(directory) / 'wrong'
            subprocess.run(['cc', '-g', '-O0', program.with_suffix('.c'), '-o', program], check=True, timeout=60)
            for words, expected in ((['n'], []), (['r'], ['Invalid read of size 1']), (['b'], ['Conditional jump or move depends on']),
                                    (['l'], ['10 bytes in 1 blocks are definitely lost']), (['r', 'fork'], ['Invalid read of size 1']),
                                    (['l', 'fork'], [])):
                with self.subTest(words):
                    code, _, found = under_memcheck(program, *words)
                    self.assertEqual((code, [text.splitlines()[0].strip()[:len(start)] for text, start in zip(found, expected)], len(found)),
                                     (0, expected, len(expected)), found)


if __name__ == '__main__':
    main()
