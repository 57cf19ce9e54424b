"""`cxlpool-agent check`: what it says of this machine, of an agent's configuration, and of the manager."""

import json
import shutil
import subprocess
import time
import unittest
from pathlib import Path

from testbed.emulated import EmulatedPool
from testbed.testing import BUILD, PoolTest, main

HAS_CXL = Path('/sys/bus/cxl/devices/root0').exists()


def check(*arguments, within=10):
    """Exit status and, of `-o json`, what stands on stdout; of the table, its text."""
    begin = time.monotonic()
    done = subprocess.run([BUILD / 'bin/cxlpool-agent', *map(str, arguments)], capture_output=True, text=True,
                          timeout=30)
    took = time.monotonic() - begin
    if took > within:
        raise AssertionError(f'{arguments} took {took:.1f} s, not {within} s')
    return done.returncode, json.loads(done.stdout) if 'json' in arguments else done.stdout + done.stderr


def verdicts(report):
    return {finding['id']: finding['verdict'] for finding in report['findings']}


class ThisMachineTest(unittest.TestCase):
    def test_it_gets_an_answer_within_two_seconds(self):
        status, report = check('check', '-o', 'json', '--config', '/nowhere/agent.toml', within=2)
        self.assertEqual(status, 1)
        self.assertFalse(report['fit'])
        self.assertEqual(verdicts(report)['config'], 'missing')
        for finding in report['findings']:
            self.assertIn(finding['verdict'], ('ok', 'warning', 'missing'))
            self.assertTrue(finding['what'], finding)
            self.assertEqual(bool(finding['remedy']), finding['verdict'] != 'ok', finding)

    @unittest.skipIf(HAS_CXL, 'this machine has CXL')
    def test_without_cxl_it_says_so(self):
        status, report = check('check', '-o', 'json', '--offline', within=2)
        self.assertEqual(status, 1)
        self.assertEqual(verdicts(report)['cxl_acpi'], 'missing')

    def test_the_table_fits_a_terminal(self):
        status, text = check('check', '--config', '/nowhere/agent.toml', within=2)
        self.assertEqual(status, 1)
        self.assertRegex(text, r'This machine cannot use pool memory yet: \d+ missing, \d+ warnings?\.\n$')
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])

    def test_a_bad_command_line(self):
        for words in (['check', '-o', 'xml'], ['check', '--what'], ['chekc'], ['check', 'more']):
            with self.subTest(words):
                status, text = check(*words, within=2)
                self.assertEqual(status, 2, text)


class ConfigurationTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]]})

    def check(self, *arguments, config=None):
        config = config or self.pool.hosts['host-a'].config
        status, report = check('check', '--config', config, '-o', 'json', *arguments)
        return status, report, {f['id']: f for f in report['findings'] if f['verdict'] != 'ok'}

    def edited(self, old, new):
        path = self.directory / 'edited.toml'
        text = self.pool.hosts['host-a'].config.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new))
        return path

    def test_a_host_that_is_in_order_and_its_agent_goes_on(self):
        log = self.pool.hosts['host-a'].agent.log
        before = log.read_text()
        status, report, complaints = self.check()
        self.assertEqual((status, report['fit'], complaints), (0, True, {}))
        self.assertEqual(verdicts(report), {'adapter': 'ok', 'config': 'ok', 'credentials': 'ok', 'manager': 'ok'})
        self.pool.wait_hosts_online(5)
        self.assertEqual(log.read_text(), before)

    def test_without_the_manager(self):
        config = self.edited(f'127.0.0.1:{self.pool.port}', '127.0.0.1:1')
        status, _, complaints = self.check(config=config)
        self.assertEqual((status, list(complaints)), (1, ['manager']))
        self.assertIn('127.0.0.1:1', complaints['manager']['what'] + complaints['manager']['remedy'])
        self.assertEqual(self.check('--offline', config=config)[0], 0)

    def test_a_certificate_that_nobody_enrolled(self):
        self.pool.run_cli('pki', 'issue', 'host', 'host-x', '--dir', self.pool.pki)
        config = self.edited('host-host-a.', 'host-host-x.')
        config.write_text(config.read_text().replace('host = "host-a"', 'host = "host-x"'))
        (self.directory / 'fabric/hosts/host-x').mkdir(exist_ok=True)
        for slot in (1, 2):
            (self.directory / f'fabric/hosts/host-x/slot-{slot}').mkdir(exist_ok=True)
            for file in (self.directory / f'fabric/hosts/host-a/slot-{slot}').iterdir():
                shutil.copy(file, self.directory / f'fabric/hosts/host-x/slot-{slot}')
        status, _, complaints = self.check(config=config)
        self.assertEqual((status, list(complaints)), (1, ['manager']))
        self.assertIn('enrol', complaints['manager']['remedy'])

    def test_a_key_that_is_not_there(self):
        status, _, complaints = self.check('--offline', config=self.edited('host-host-a.key', 'none.key'))
        self.assertEqual((status, list(complaints)), (1, ['credentials']))
        self.assertIn('none.key', complaints['credentials']['what'])

    def test_a_key_of_the_configuration_that_is_not_known(self):
        status, _, complaints = self.check('--offline', config=self.edited('host = ', 'what = 1\nhost = '))
        self.assertEqual(status, 1)
        self.assertRegex(complaints['config']['what'], r'edited\.toml:\d+: what')


if __name__ == '__main__':
    main()
