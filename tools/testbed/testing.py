"""What the Python tests share: where the build is, what is missing, and how results are counted."""

import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from .process import wait_until
from .supervisor import supervise

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get('CXLPOOL_BUILD', REPOSITORY / 'build/dev'))

EVERY_CASE = bool(os.environ.get('CXLPOOL_EVERY_CASE'))  # tools/test --long sets it.

_tests_run = False


def of_today(cases, parts=3):
    """One of so many parts of these cases, another each day, so that a run stays short; with EVERY_CASE all of them."""
    cases = list(cases)
    if EVERY_CASE:
        return cases
    return cases[datetime.date.today().toordinal() % parts::parts]


def require_qemu(*applications):
    """Skips, with the reason, where the emulated rack cannot be had, with the kernel of $CXLPOOL_RACK_KERNEL and these
    applications. In CI that is a failure."""
    wanted = [word for name in applications for word in ('--with', name)]
    done = subprocess.run([REPOSITORY / 'qemu-cxl/fetch', '--check', *wanted], capture_output=True, text=True)
    if done.returncode == 0:
        return
    reason = f'the emulated rack is not here: {(done.stderr or done.stdout).strip()}'
    if os.environ.get('CI'):
        raise AssertionError(reason)
    raise unittest.SkipTest(reason)


def skip_program(reason):
    """Ends the program, with all of its tests skipped; once they run, skips those of the class or the test that calls it, and
    what others have found stays found. In CI that is a failure."""
    if os.environ.get('CI'):
        raise AssertionError(reason)
    if _tests_run:
        raise unittest.SkipTest(reason)
    print(f'skipped: {reason}', file=sys.stderr)
    _leave_counts(0, 0, [(Path(sys.argv[0]).stem, reason)])
    sys.exit(0)


def import_cxlpool():
    """The Python package of the build. Without it there is nothing to test."""
    sys.path.insert(0, str(BUILD / 'libpool/python'))
    try:
        import cxlpool
    except ImportError as error:
        skip_program(f'the package cxlpool is not built (python3-dev): {error}')
    return cxlpool


def continue_with_science():
    """Goes on as a Python that has numpy, torch and faiss, and returns its path. Without them there is nothing to test."""
    done = subprocess.run([REPOSITORY / 'test/science/fetch', '--check'], capture_output=True, text=True)
    if done.returncode != 0:
        skip_program(f'numpy, torch and faiss are not here: {done.stderr.strip()}')
    python = str(Path(done.stdout.strip()) / 'python3')
    if os.environ.get('CXLPOOL_SCIENCE') != python:
        os.environ['CXLPOOL_SCIENCE'] = python
        os.execv(python, [python, *sys.orig_argv[1:]])
    return python


class PoolTest(unittest.TestCase):
    """A test on one pool for the whole class: make_pool(directory) says which."""

    @classmethod
    def setUpClass(cls):
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-test-'))
        cls.directory.chmod(0o755)
        try:
            cls.pool = cls.make_pool(cls.directory)
            cls.pool.__enter__()
        except BaseException:
            cls.show_logs()
            shutil.rmtree(cls.directory, ignore_errors=True)
            raise

    @classmethod
    def tearDownClass(cls):
        cls.pool.__exit__(None, None, None)
        shutil.rmtree(cls.directory, ignore_errors=True)

    def setUp(self):
        self.pool.wait_hosts_online()

    @classmethod
    def show_logs(cls):
        for log in sorted(cls.directory.rglob('*.log')):
            text = log.read_text(errors='replace').splitlines()[-15:]
            print(f'--- {log.name} of {log.parent.name}', *text, sep='\n', file=sys.stderr)
        for name, text in cls.pool.agent_logs() if hasattr(cls, 'pool') else ():
            print(f'--- the agent of {name}', text, sep='\n', file=sys.stderr)

    def run(self, result=None):
        before = len(result.failures) + len(result.errors) if result else 0
        super().run(result)
        if result and len(result.failures) + len(result.errors) > before:
            self.show_logs()

    def kill_manager_at(self, up, down, allocating, assert_one_online, assert_gone, patience=30):
        """The manager dies at each of these rungs, while a Region comes or goes, and starts again: the command that waits lives
        through it. allocating(name): its words; `assert_...(name)` look at what became of it. Each rung is a sub-test;
        those of today are tried."""
        for i, rung in of_today(enumerate(up + down)):
            with self.subTest(rung):
                name = f'm{i}'
                make = allocating(name)
                self.pool.wait_hosts_online()
                if rung in down:
                    self.pool.cli(*make)
                self.pool.restart_manager({'CXLPOOL_CRASH_AT': rung})
                self.pool.wait_hosts_online()
                command = self.pool.spawn_cli(*(make if rung in up else ('region', 'release', name, '--detach-all', '--wait')))
                self.pool.manager.wait(patience)
                self.pool.start_manager()
                self.pool.finish_cli(command, 60 + 2 * patience)
                if rung in up:
                    assert_one_online(name)
                    self.pool.release(name)
                assert_gone(name)

    def findings(self, what):
        """(subject, problem) -> finding, of `cxlpool explain WHAT`; '': of the doctor."""
        answer = self.pool.cli(*(['explain', what] if what else ['doctor']))
        return {(f['subject'], f['problem']): f for f in answer.get('findings', [])}

    def wait_said(self, what, problem, within_s=20):
        """The finding, once it is made, of the thing itself and by the doctor."""
        kind, name = what.split('/')
        key = (f'{kind}s/{name}', problem)
        finding = wait_until(lambda: self.findings(what).get(key), within_s, f'{what} is {problem}')
        self.assertIn(key, self.findings(''))
        return finding

    def run_said(self, command, **words):
        """Runs one of a finding's commands, with what the operator has to say in place of the words in capitals; on that host
        what is said to be run there."""
        if command.startswith('on '):
            host, _, there = command.removeprefix('on ').partition(': ')
            return self.run_there(host, shlex.split(there))
        self.assertTrue(command.startswith('cxlpool '), command)
        for word, value in {'WHY': 'a test', **words}.items():
            command = command.replace(word, f"'{value}'")
        said = shlex.split(command)[1:]
        asks = said[:2] in (['host', 'fence'], ['host', 'retire'], ['device', 'remove'], ['device', 'fail']) or '--force' in said
        return self.pool.run_cli(*said, *(['--yes'] if asks else []), timeout='40s')

    STARTS_AGENT = (['systemctl', 'restart', 'cxlpool-agent'], ['systemctl', 'enable', '--now', 'cxlpool-agent'])

    def run_there(self, host, words):
        """What an operator types on a host, where systemctl is this testbed's."""
        host = self.pool.hosts[host]
        if words in self.STARTS_AGENT:
            host.agent.kill()
            host.agent.start()
            return ''
        if words == ['cxlpool-agent', 'check']:
            done = host.run([*words, '--config', host.config])
        else:
            self.assertEqual('kill', words[0], 'nothing else is run on this machine')  # And that is the shell's own.
            done = host.run(['sh', '-c', shlex.join(words)])
        return done.out + done.err

    def wait_ended(self, what, problem, within_s=20):
        kind, name = what.split('/')
        wait_until(lambda: (f'{kind}s/{name}', problem) not in self.findings(''), within_s, f'{what} is not {problem} any more')

    def assert_pool_empty(self):
        """Every byte is free, no Region is left, and nothing is bound anywhere."""
        self.assertEqual(self.pool.regions(), {})
        capacity = self.pool.cli('capacity')
        self.assertEqual(capacity['free_bytes'], capacity['total_bytes'])
        for host in self.pool.cli('host', 'list')['hosts']:
            self.assertEqual([p for p in host.get('ports', []) if p.get('region')], [])


def main():
    """Like unittest.main; leaves the counts in $CXLPOOL_RESULTS, and nothing else (supervisor.py)."""
    global _tests_run
    supervise()
    _tests_run = True
    program = unittest.main(module='__main__', exit=False, verbosity=2)
    result = program.result
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = [(test.id().removeprefix('__main__.'), reason) for test, reason in result.skipped]
    _leave_counts(max(0, result.testsRun - failed - len(skipped)), failed, skipped)
    sys.exit(0 if result.wasSuccessful() else 1)


def _leave_counts(passed, failed, skipped):
    directory = os.environ.get('CXLPOOL_RESULTS')
    if directory:
        counts = {'passed': passed, 'failed': failed, 'skipped': skipped}
        (Path(directory) / f'{Path(sys.argv[0]).stem}-{os.getpid()}.json').write_text(json.dumps(counts))
