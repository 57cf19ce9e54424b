"""kill -9 of the manager and of the agent at every rung of an allocation and of a release, on QEMU: a third of them each day."""

import itertools
import time

from testbed.pool import WAIT
from testbed.process import TestbedError, wait_until
from testbed.rack import RackPool
from testbed.testing import BUILD, PoolTest, main, of_today, require_qemu

MANAGER_UP = ('before-bind', 'after-bind', 'before-commit-BOUND', 'after-commit-BOUND', 'report-SEGMENT_PRESENT',
              'report-SEGMENT_REGION', 'report-SEGMENT_ONLINE', 'before-commit-ONLINE', 'after-commit-ONLINE',
              'before-commit-ALLOCATED', 'after-commit-ALLOCATED')
MANAGER_DOWN = ('before-commit-OFFLINE', 'after-commit-OFFLINE', 'before-unbind', 'after-unbind',
                'before-commit-EJECTING', 'after-commit-EJECTING', 'after-proof', 'before-commit-UNBOUND',
                'after-commit-UNBOUND', 'before-commit-drop', 'after-commit-drop', 'before-commit-SCRUBBING',
                'after-commit-SCRUBBING', 'before-scrub', 'after-scrub', 'before-commit-gone', 'after-commit-gone')
_AGENT_UP = ('before-PowerOn', 'after-PowerOn', 'before-CreateHostRegion', 'after-CreateHostRegion', 'before-BindDax',
             'after-BindDax')
_AGENT_DOWN = ('before-UnbindDax', 'after-UnbindDax', 'before-DestroyHostRegion', 'after-DestroyHostRegion',
               'before-PowerOff', 'after-PowerOff')
# Mode -> the agent's rungs while it attaches, and while it detaches.
AGENT = {'devdax': ((*_AGENT_UP, 'before-Report'), _AGENT_DOWN),
         'system-ram': ((*_AGENT_UP, 'before-OnlineBlocks', 'after-OnlineBlocks', 'before-Report'),
                        ('before-OfflineBlocks', 'after-OfflineBlocks', *_AGENT_DOWN))}
READOPTED_WITHIN_S = 10


class RackKillTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        return RackPool(BUILD, directory)

    def allocating(self, name, mode):
        return ('region', 'allocate', name, '--size', '256MiB', '--host', 'host-a', '--mode', mode, '--wait',
                '--wait-timeout', WAIT)

    def assert_one_online(self, name):
        self.assertEqual(list(self.pool.regions()), [name])
        self.assertEqual(self.pool.attachment(name, 'host-a')['state'], 'ONLINE')
        self.assertEqual(int(self.pool.cli('capacity')['allocated_bytes']), 256 << 20)

    def gone(self):
        wait_until(lambda: self.pool.try_cli('region', 'list') is not None and not self.pool.regions(), 60, 'it is gone')
        self.assert_pool_empty()

    def test_manager_killed_at_every_rung(self):
        self.kill_manager_at(MANAGER_UP, MANAGER_DOWN, lambda name: self.allocating(name, 'devdax'), self.assert_one_online,
                             lambda name: self.gone())

    def crash_agent_at(self, rung):
        """The agent of host-a starts again, and ends when it passes `rung`."""
        guest = self.pool.hosts['host-a']
        guest.put('/run/agent.env', f'CXLPOOL_CRASH_AT={rung}'.encode())
        before = self.pid()
        guest.run(f'kill -9 {before}')
        wait_until(lambda: self.pid() not in ('', before), 15, 'a new agent')
        self.pool.wait_hosts_online()
        return self.pid()

    def pid(self):
        return self.pool.hosts['host-a'].run('cat /run/cxlpool-agent.pid 2>/dev/null').out.strip()

    def wait_crashed(self, pid, rung):
        try:
            wait_until(lambda: self.pid() not in ('', pid), 30, f'the agent ends at {rung}')
        except TestbedError:
            print(self.pool.hosts['host-a'].run('tail -30 /var/log/cxlpool-agent.log').out)
            raise

    def test_agent_killed_on_every_rung(self):
        for mode, (up, down) in AGENT.items():
            for i, (rung, rung_down) in of_today(enumerate(itertools.zip_longest(up, down))):
                name = f'a{mode[0]}{i}'
                with self.subTest(rung, mode=mode):
                    pid = self.crash_agent_at(rung)
                    command = self.pool.spawn_cli(*self.allocating(name, mode))
                    self.wait_crashed(pid, rung)
                    self.pool.finish_cli(command)
                    self.assert_one_online(name)
                with self.subTest(rung_down, mode=mode):
                    pid = self.crash_agent_at(rung_down) if rung_down else None
                    self.pool.release(name, wait=False)
                    if pid:
                        self.wait_crashed(pid, rung_down)
                    self.gone()

    def test_agent_killed_with_memory_online(self):
        """Nobody but the agent notices: not who uses the memory, not the kernel, not the manager's accounts."""
        guest = self.pool.hosts['host-a']
        self.pool.allocate('dax', '256MiB', 'host-a')
        self.pool.allocate('ram', '256MiB', 'host-a', '--mode', 'system-ram')
        guest.output('pool-write --region dax --seed 7')
        holder = guest.output('pool-verify --region dax --seed 7 --hold 600 >/tmp/holder 2>&1 & echo $!')
        guest.wait_for('grep -q verified /tmp/holder')

        def facts():
            capacity = {key: value for key, value in self.pool.cli('capacity').items() if key != 'revision'}
            attachments = [self.pool.attachment(name, 'host-a') for name in ('dax', 'ram')]
            return capacity, [(a['state'], a['segments']) for a in attachments], guest.output('grep MemTotal /proc/meminfo')
        before = facts()
        for _ in range(3):
            killed, began = self.pid(), time.monotonic()
            guest.output(f'kill -9 {killed}')
            # The new agent hands out what the old one had put there.
            while not guest.run('pool-verify --region dax --seed 7 && pool-verify --region ram --node --bytes 4MiB').ok:
                self.assertLess(time.monotonic() - began, READOPTED_WITHIN_S)
                self.assertEqual(facts(), before)
            took = time.monotonic() - began
            print(f'readopted after {took:.1f} s')
            self.assertLess(took, READOPTED_WITHIN_S)
            self.assertNotIn(self.pid(), ('', killed))
            self.pool.wait_hosts_online()
            self.assertEqual(facts(), before)
        guest.output(f'kill -0 {holder} && kill {holder}')
        for name in ('dax', 'ram'):
            self.pool.release(name)
        self.assert_pool_empty()


if __name__ == '__main__':
    main()
