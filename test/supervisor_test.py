"""Test programs leave no process and no file behind, however they end, and say what they have found."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from testbed.process import wait_until
from testbed.testing import main

PROGRAM = '''
import os, subprocess, sys, tempfile, time
from pathlib import Path
from testbed.supervisor import supervise
supervise()
directory = tempfile.mkdtemp()
sleeper = subprocess.Popen(['sleep', '1000'], start_new_session=True)
deep = subprocess.Popen(['sh', '-c', 'sleep 1000 & echo $!; exec sleep 1000'], stdout=subprocess.PIPE, start_new_session=True)
pids = f'{os.getpid()} {sleeper.pid} {deep.pid} {deep.stdout.readline().decode().strip()}'
Path(sys.argv[1]).write_text(f'{directory}\\n{pids}\\n')
if sys.argv[2] == 'wait':
    time.sleep(1000)
if sys.argv[2] == 'well':
    for process in (sleeper, deep):
        process.kill()
    os.kill(int(pids.split()[-1]), 9)
sys.exit(3 if sys.argv[2] == 'fail' else 0)
'''

ONE_SKIPS = '''
import unittest
from testbed.testing import main, skip_program
class First(unittest.TestCase):
    def test_it(self):
        self.fail('found')
class Second(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        skip_program('it is not here')
    def test_it(self):
        print('the second ran')
class Third(unittest.TestCase):
    def test_it(self):
        print('the third ran')
main()
'''


def runs(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(') ')[2][0] not in 'ZX'
    except OSError:
        return False


class SupervisorTest(unittest.TestCase):
    def setUp(self):
        self.directory = Path(tempfile.mkdtemp(prefix='supervised-'))
        self.addCleanup(shutil.rmtree, self.directory)
        (self.directory / 'program.py').write_text(PROGRAM)

    def start(self, how):
        said = self.directory / 'said'
        process = subprocess.Popen([sys.executable, str(self.directory / 'program.py'), str(said), how],
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        wait_until(lambda: said.exists() and said.read_text().count('\n') == 2, 20, 'the program says what it made')
        made, pids = said.read_text().splitlines()
        return process, Path(made), [int(pid) for pid in pids.split()]

    def assert_nothing_is_left(self, made, pids):
        self.assertFalse(made.exists())
        for pid in pids:
            wait_until(lambda pid=pid: not runs(pid), 10, f'process {pid} ends')

    def test_what_ends_well_ends_well(self):
        process, made, pids = self.start('well')
        self.assertEqual(process.wait(20), 0, process.stderr.read())
        self.assert_nothing_is_left(made, pids)

    def test_what_leaves_processes_fails(self):
        process, made, pids = self.start('leave')
        self.assertEqual(process.wait(30), 1)
        self.assertIn('sleep 1000', process.stderr.read())
        self.assert_nothing_is_left(made, pids)

    def test_a_failure_stays_one(self):
        process, made, pids = self.start('fail')
        self.assertEqual(process.wait(30), 3)
        self.assert_nothing_is_left(made, pids)

    def test_a_program_that_is_killed_is_cleared_up_behind(self):
        process, made, pids = self.start('wait')
        os.kill(pids[0], signal.SIGKILL)
        self.assertEqual(process.wait(30), 128 + signal.SIGKILL)
        self.assert_nothing_is_left(made, pids)

    def test_ends_when_it_is_told_to(self):
        process, made, pids = self.start('wait')
        process.terminate()
        self.assertEqual(process.wait(30), 1)
        self.assert_nothing_is_left(made, pids)

    def test_what_one_class_lacks_takes_nothing_from_the_others(self):
        (self.directory / 'skips.py').write_text(ONE_SKIPS)
        environment = {name: value for name, value in os.environ.items() if name not in ('CI', 'CXLPOOL_RESULTS')}
        done = subprocess.run([sys.executable, self.directory / 'skips.py'], capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('found', done.stderr)
        self.assertIn("'it is not here'", done.stderr)
        self.assertEqual(done.stdout, 'the third ran\n')


if __name__ == '__main__':
    main()
