"""Two managers over three members of etcd: what operators and agents see when one of them, or etcd, falls."""

import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from testbed.demo import Demo
from testbed.process import wait_until
from testbed.replicated import ReplicatedPool, etcd_program
from testbed.testing import BUILD, main


@unittest.skipUnless(etcd_program(), 'no etcd here: qemu-cxl/fetch --with etcd brings it')
class ReplicatedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix='cxlpool-replicated-')
        Path(cls.directory.name).chmod(0o755)  # The demo's application is not root.
        # Longer than by default: other tests take processors and disk from etcd meanwhile.
        cls.pool = ReplicatedPool(BUILD, Path(cls.directory.name), takeover='2500ms')
        cls.addClassCleanup(cls.directory.cleanup)
        cls.addClassCleanup(cls.pool.close)
        cls.pool.start()

    def setUp(self):
        """Both run, one leads, and the other has followed it."""
        for manager in self.pool.managers:
            if not manager.running:
                manager.start()
        wait_until(lambda: self.roles() == ['leader', 'standby'], 30, 'one leads and one stands by')
        self.pool.wait_hosts_online()
        self.leader = self.pool.wait_leader()

    def status(self):
        answer = self.pool.try_cli('status')
        return answer['managers'] if answer else []

    def roles(self):
        return sorted(row['role'] for row in self.status())

    def epoch(self):
        return max(int(row.get('epoch', 0)) for row in self.status() if row['role'] == 'leader')

    def a_change(self, name):
        """One that is acknowledged, whoever leads; how long it took."""
        begun = time.monotonic()
        self.pool.allocate(name, '256MiB', wait=False)
        return time.monotonic() - begun

    def next_leads(self, what):
        """After `what`, the other one, in a later epoch and with the same Regions; agents come to it."""
        before, epoch = self.pool.regions(), self.epoch()
        what(self.pool.managers[self.leader])
        took = self.a_change('after')
        self.addCleanup(self.pool.release, 'after')
        self.assertNotEqual(self.pool.wait_leader(), self.leader)
        self.assertGreater(self.epoch(), epoch)
        self.pool.wait_hosts_online(10)
        after = self.pool.regions()
        for name, region in before.items():
            self.assertEqual((region['tag'], region['extents']), (after[name]['tag'], after[name]['extents']))
        return took

    def test_the_demo_holds(self):
        Demo(self.pool, emulated=True).hold(self)

    def test_a_leader_that_is_killed_is_replaced(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        self.addCleanup(self.pool.release, 'kv')
        self.assertLess(self.next_leads(lambda manager: manager.kill()), 10)
        self.assertEqual(self.pool.attachment('kv', 'host-a')['state'], 'ONLINE')

    def test_a_leader_that_is_stopped_has_ended_before_another_leads(self):
        stopped = self.pool.managers[self.leader]
        self.next_leads(lambda manager: manager.process.send_signal(signal.SIGSTOP))
        self.assertEqual(stopped.wait(1), -signal.SIGKILL)

    def test_a_leader_that_is_told_to_end_is_not_waited_for(self):
        self.next_leads(lambda manager: manager.stop())

    def test_a_member_of_etcd_may_fall(self):
        member = self.pool.etcd.members[self.pool.etcd.leader()]
        member.kill()
        self.addCleanup(member.start)
        self.a_change('meanwhile')
        self.addCleanup(self.pool.release, 'meanwhile')
        self.assertEqual(self.pool.wait_leader(), self.leader)

    def test_without_a_quorum_nobody_leads_and_all_is_there_again_with_it(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        self.addCleanup(self.pool.release, 'kv')
        for member in self.pool.etcd.members[:2]:
            member.kill()
        self.assertEqual(self.pool.managers[self.leader].wait(5), -signal.SIGKILL)
        self.assertIsNone(self.pool.try_cli('capacity', timeout='2s'))
        for member in self.pool.etcd.members[:2]:
            member.start()
        self.pool.wait_leader()
        self.pool.wait_hosts_online(20)
        self.assertEqual(self.pool.attachment('kv', 'host-a')['state'], 'ONLINE')

    def test_a_watch_goes_on_with_the_next_leader(self):
        watch = subprocess.Popen(self.pool.cli_command('-o', 'json', 'region', 'watch', timeout='60s'), stdout=subprocess.PIPE, text=True)
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        seen = []
        threading.Thread(target=lambda: seen.extend(watch.stdout), daemon=True).start()
        wait_until(lambda: any('SYNCED' in line for line in seen), 20, 'it watches')
        self.next_leads(lambda manager: manager.kill())
        wait_until(lambda: any('regions/after' in line for line in seen), 20, 'the watch shows what the next leader did')
        self.assertEqual(sum('SYNCED' in line for line in seen), 1, 'it goes on, and does not begin anew')

    def test_admins_that_a_standby_was_told_of_count_once_it_leads(self):
        standby = 1 - self.leader
        manager, config = self.pool.managers[standby], self.pool.directory / f'fm{standby}.toml'
        self.pool.run_cli('pki', 'issue', 'operator', 'guard', '--dir', self.pool.pki)
        self.pool.cli('access', 'grant', 'admin', '--role', 'admin', '--reason', 'test')
        self.addCleanup(self.pool.cli, 'access', 'revoke', 'admin')

        def reload(text):
            config.write_text(text)
            before = manager.log.read_text().count('was read again')
            manager.process.send_signal(signal.SIGHUP)
            wait_until(lambda: manager.log.read_text().count('was read again') > before, 10, 'it has read its configuration again')
        self.addCleanup(reload, config.read_text())
        reload(config.read_text() + '[access]\nadmins = ["cxlpool://operator/guard"]\n')
        self.next_leads(lambda leader: leader.stop())
        guard = [word.replace('operator-admin', 'operator-guard') for word in self.pool.cli_command('access', 'whoami')]
        done = subprocess.run(guard, capture_output=True, text=True, timeout=60)
        self.assertEqual('cxlpool://operator/guard admin\n', done.stdout, done.stderr)

    def test_a_standby_says_who_leads(self):
        standby = f'127.0.0.1:{self.pool.ports[1 - self.leader]}'
        done = subprocess.run(self.pool.cli_command('--fail-fast', 'capacity', managers=standby), capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('NOT_LEADER', done.stderr)
        rows = {row['address']: row for row in self.status()}
        self.assertEqual(rows[standby]['role'], 'standby')
        self.assertEqual(rows[standby]['epoch'], rows[f'127.0.0.1:{self.pool.ports[self.leader]}']['epoch'])


if __name__ == '__main__':
    main()
