"""The list of seeded defects is that of the code; and what runs it tells caught, survived, hung and void apart."""

import contextlib
import io
import stat
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import run  # noqa: E402
import seeded  # noqa: E402
from testbed.testing import main  # noqa: E402


class ListTest(unittest.TestCase):
    def test_list_and_code_name_the_same_defects(self):
        self.assertEqual([], seeded.differences())

    def test_a_test_that_is_gone_is_missed(self):
        with unittest.mock.patch.object(seeded, 'tests', lambda: set()):
            self.assertRegex('\n'.join(seeded.differences()), r'apply-failed-commit: WriterTest\.\w+ is no test any more')


class RunTest(unittest.TestCase):
    """On tests that are scripts."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix='cxlpool-test-')
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def write(self, script, name='script_test'):
        path = self.directory / name
        path.write_text(f'#!/bin/sh\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def main(self, mutants, *words):
        """The status of run.py with these words, and what it prints, where `mutants` is the list."""
        argv = ['run.py', '--no-build', '--build', str(self.directory), *words]
        with (unittest.mock.patch.multiple(seeded, differences=lambda: [], listed=lambda: mutants),
              unittest.mock.patch.object(sys, 'argv', argv), contextlib.redirect_stdout(io.StringIO()) as said):
            return run.main(), said.getvalue()

    def outcome(self, script, mutant='some-defect', limit_s=20):
        self.write(script)
        return run.run_test(run.find_binaries(self.directory, {'script_test'}), 'script_test one two', mutant, limit_s)

    def test_the_defect_is_switched_on_for_the_test_alone(self):
        self.assertEqual('failed', self.outcome('[ "$CXLPOOL_MUTANT" != some-defect ]').kind)
        self.assertEqual('passed', self.outcome('[ -z "${CXLPOOL_MUTANT+set}" ]', None).kind)

    def test_failures_and_crashes_are_told_with_the_test_that_had_them(self):
        failed = self.outcome("echo '[  FAILED  ] OneTest.Fails (3 ms)'; exit 1")
        self.assertEqual(('failed', 'OneTest.Fails'), (failed.kind, failed.what))
        crashed = self.outcome("echo '[ RUN      ] OneTest.Crashes'; kill -ABRT $$")
        self.assertEqual(('failed', 'OneTest.Crashes'), (crashed.kind, crashed.what))
        seed = self.outcome("echo 'cxlpool-sim: seed 7 FAILED: lost'; exit 1")
        self.assertEqual('cxlpool-sim: seed 7 FAILED: lost', seed.what)
        self.assertEqual('failed', self.outcome('exit 66').kind)

    def test_what_tried_nothing_is_neither_passed_nor_failed(self):
        self.assertEqual('void', self.outcome('exit 2').kind)
        self.assertEqual('void', self.outcome("echo '[==========] Running 0 tests from 0 test suites.'").kind)

    def test_what_a_build_skips_is_not_passed(self):
        self.assertEqual('skipped', self.outcome("echo '[  PASSED  ] 0 tests.'; echo '[  SKIPPED ] 1 test'").kind)
        binaries = run.find_binaries(self.directory, {'script_test'})
        self.assertEqual({}, run.check_without(binaries, ['script_test'], 1, may_skip=True))
        self.assertIsNone(run.check_without(binaries, ['script_test'], 1, may_skip=False))

    def test_what_a_machine_has_not_is_left_out(self):
        self.assertEqual('absent', self.outcome('echo no QEMU here; exit 77').kind)
        binaries = run.find_binaries(self.directory, {'script_test'})
        self.assertEqual({}, run.check_without(binaries, ['script_test'], 1, may_skip=False))

    def test_where_nothing_can_be_tried_all_is_not_well(self):
        self.write('echo no QEMU here; exit 77')
        mutants = [seeded.Mutant('some-defect', 'wrong', (1,), ('script_test',))]
        for words in ((), ('some-defect',), ('--sample', '5'), ('--with', 'script_test other')):
            status, said = self.main(mutants, *words)
            self.assertEqual(1, status, said)
            self.assertIn('none was tried', said)
        status, said = self.main([], '--sample', '5')
        self.assertEqual(1, status, said)

    def test_a_sample_is_of_a_program_that_can_be_run(self):
        """Whichever day it is: of three programs there is one."""
        self.write('exit 77', 'absent_test')
        self.write('[ -z "$CXLPOOL_MUTANT" ]', 'able_test')
        self.write("echo '[  PASSED  ] 0 tests.'", 'idle_test')
        mutants = [seeded.Mutant(name, 'wrong', (1,), (f'{name}_test',)) for name in ('absent', 'able', 'idle')]
        status, said = self.main(mutants, '--sample', '5')
        self.assertEqual(0, status, said)
        self.assertIn('1 of 1 defects were caught', said)

    def test_what_is_to_find_it_also_has_to(self):
        self.outcome('[ "$1" = blind ]')
        binaries = run.find_binaries(self.directory, {'script_test'})
        took = {f'script_test {word}': 0.1 for word in ('quick', 'blind', 'long')}

        def hunt(tests, also):
            return run.hunt(binaries, seeded.Mutant('some-defect', 'wrong', (1,), tests, also), took)[::2]

        self.assertEqual(('script_test , script_test ', True), hunt(('script_test quick',), ('script_test long',)))
        self.assertEqual(('NOT CAUGHT BY script_test blind', False), hunt(('script_test quick',), ('script_test blind',)))
        self.assertEqual(('NOT CAUGHT', False), hunt(('script_test blind',), ('script_test long',)))

    def test_one_that_is_stuck_is_ended(self):
        self.assertEqual('hung', self.outcome('sleep 600', limit_s=0.2).kind)

    def test_a_defect_that_every_test_passes_with_was_not_caught(self):
        self.outcome('exit 0')
        mutant = seeded.Mutant('some-defect', 'wrong', (1,), ('script_test',))
        by, _, caught = run.hunt(run.find_binaries(self.directory, {'script_test'}), mutant, {'script_test': 0.1})
        self.assertEqual(('NOT CAUGHT', False), (by, caught))

    def test_only_the_check_that_is_named_catches_it(self):
        """Where a list has `output`: that something else fails is not enough."""
        self.outcome("echo 'no order fits'; exit 1")
        binaries = run.find_binaries(self.directory, {'script_test'})
        for output, caught in (('no order fits', True), ('another check', False), ('', True)):
            mutant = seeded.Mutant('some-defect', 'wrong', (1,), ('script_test',), output=output)
            self.assertEqual(caught, run.hunt(binaries, mutant, {'script_test': 0.1})[2], output)

    def test_the_histories_have_a_defect_of_their_own(self):
        listed = {mutant.name: mutant.output for mutant in seeded.listed()}
        said = listed['attach-is-forgotten-with-its-end']
        self.assertTrue(said)
        self.assertIn(said, (seeded.REPOSITORY / 'test/sim/region_history.cc').read_text())

    def test_a_sample_is_of_one_program_and_in_time_has_them_all(self):
        mutants = [seeded.Mutant(f'm{i}', 'wrong', (1,), (f'{"ab"[i % 2]}_test --x', 'c_test')) for i in range(10)]
        chosen = [run.sample(mutants, 2, day) for day in range(6)]
        for day, names in enumerate(chosen):
            self.assertEqual({('ab'[day % 2] + '_test --x',)}, {mutant.tests for mutant in names})
            self.assertEqual(2, len(names))
        self.assertEqual({m.name for m in mutants}, {m.name for names in chosen for m in names})
        self.assertEqual({('b_test --x',)}, {m.tests for m in run.sample(mutants, 9, 0, {'b_test'})})
        self.assertEqual([], run.sample(mutants, 9, 0, set()))


if __name__ == '__main__':
    main()
