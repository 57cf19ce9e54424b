"""Agents and the operator's command know several managers: one that is a standby, and the one that leads."""

import signal
import socket
import subprocess

from testbed.emulated import EmulatedPool
from testbed.pool import CliError, free_port
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main


class PoolWithAStandby(EmulatedPool):
    """Everybody is given the standby's address first."""

    def __init__(self, *arguments, **shape):
        super().__init__(*arguments, **shape)
        self.standby_port = free_port()
        self.standby = None
        self.addresses = f'127.0.0.1:{self.standby_port},127.0.0.1:{self.port}'

    def make_pki(self):
        super().make_pki()
        self.standby = subprocess.Popen(
            [self.build / 'bin/scripted-standby', f'127.0.0.1:{self.standby_port}', self.pki / 'ca.pem', self.pki / 'manager-fm.pem',
             self.pki / 'manager-fm.key'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.say(f'127.0.0.1:{self.port}', 7, 0)

    def say(self, leader, epoch, revision):
        """What the standby says of the leader from now on."""
        self.standby.stdin.write(f'{leader} {epoch} {revision}\n')
        self.standby.stdin.flush()
        assert self.standby.stdout.readline() == 'said\n', 'the standby runs'

    def close(self):
        super().close()
        if self.standby is not None:
            self.standby.stdin.close()
            self.standby.wait(20)
            self.standby.stdout.close()


class StandbyTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return PoolWithAStandby(BUILD, directory)

    def setUp(self):
        super().setUp()
        self.pool.say(f'127.0.0.1:{self.pool.port}', 7, 0)
        self.addCleanup(self.pool.release_all)

    def online_again(self):
        """Kills the manager that leads, and starts it: every agent dials, and the standby is among those it asks."""
        mark = {name: len(host.agent.log.read_text()) for name, host in self.pool.hosts.items()}
        self.pool.restart_manager()
        for name, host in self.pool.hosts.items():
            wait_until(lambda: 'has no session for this agent' in host.agent.log.read_text()[mark[name]:], 30, f'{name} asks another manager')
        self.pool.wait_hosts_online(30)

    def test_what_is_asked_for_is_done_by_the_one_that_leads(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        self.assertEqual('ALLOCATED', self.pool.regions()['kv']['state'])
        out = self.pool.run_cli('region', 'list', '-o', 'name')
        self.assertEqual('kv\n', out)
        done = subprocess.run(self.pool.cli_command('--fail-fast', 'capacity'), capture_output=True, text=True, timeout=60)
        self.assertEqual((0, ''), (done.returncode, done.stderr), 'a standby before the leader is nothing to speak of')
        check = self.pool.hosts['host-a'].run(['cxlpool-agent', 'check', '--config', self.pool.hosts['host-a'].config])
        self.assertIn(f'the fabric manager at 127.0.0.1:{self.pool.port} takes hosts/host-a', ' '.join(check.out.split()))

    def test_agents_and_watches_come_back_to_the_one_that_leads(self):
        with self.pool.spawn_cli('region', 'watch', '--for', '30s') as watch:
            self.addCleanup(watch.kill)
            self.assertTrue(any('SYNCED' in line for line in iter(watch.stdout.readline, '')), 'it watches')
            self.online_again()
            self.pool.allocate('kv', '256MiB', 'host-a')
            self.assertTrue(any('regions/kv' in line for line in iter(watch.stdout.readline, '')), 'the watch goes on')
            watch.kill()

    def test_a_manager_that_says_nothing_is_missed_within_seconds(self):
        host = self.pool.hosts['host-a']
        mark = len(host.agent.log.read_text())
        self.pool.manager.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: 'has no session for this agent' in host.agent.log.read_text()[mark:], 10, 'its agent asks another manager')
        finally:
            self.pool.manager.process.send_signal(signal.SIGCONT)
        self.pool.wait_hosts_online(30)

    def test_nobody_is_led_to_an_address_that_is_not_in_the_list(self):
        with socket.create_server(('127.0.0.1', 0)) as stranger:
            stranger.setblocking(False)
            self.pool.say(f'127.0.0.1:{stranger.getsockname()[1]}', 7, 0)
            self.online_again()
            self.pool.allocate('kv', '256MiB', 'host-b')
            alone = self.pool.cli_command('capacity', timeout='2s', managers=f'127.0.0.1:{self.pool.standby_port}')
            done = subprocess.run(alone, capture_output=True, text=True, timeout=60)
            self.assertEqual(6, done.returncode, done.stderr)
            self.assertIn('NOT_LEADER', done.stderr)
            with self.assertRaises(BlockingIOError):
                stranger.accept()

    def test_status_has_a_row_for_each(self):
        rows = self.pool.cli('status')['managers']
        revision = int(rows[1]['revision'])
        self.pool.say(f'127.0.0.1:{self.pool.port}', 7, revision - 3)
        rows = self.pool.cli('status')['managers']
        self.assertEqual([{'address': f'127.0.0.1:{self.pool.standby_port}', 'role': 'standby', 'epoch': '7', 'revision': str(revision - 3), 'lag': '3', 'why': ''},
                          {'address': f'127.0.0.1:{self.pool.port}', 'role': 'leader', 'epoch': '0', 'revision': str(revision), 'lag': '0', 'why': ''}], rows)
        self.pool.manager.kill()
        try:
            with self.assertRaises(CliError) as without:
                self.pool.cli('status')
            self.assertEqual(6, without.exception.status)
            self.assertIn('NO_LEADER', without.exception.stderr)
        finally:
            self.pool.start_manager()
            self.pool.wait_hosts_online()


if __name__ == '__main__':
    main()
