"""Agents and the manager killed on devices that every host sees whole: while they carve, flush and scrub, nothing is lost and
nothing is left behind. A third of the rungs each day."""

import itertools

from testbed.pool import WAIT
from testbed.process import wait_until
from testbed.shared_rack import SharedRackTest
from testbed.testing import main, of_today

MANAGER_UP = ('before-bind', 'after-bind', 'after-commit-BOUND', 'report-SEGMENT_ONLINE', 'after-commit-ALLOCATED')
MANAGER_DOWN = ('after-commit-OFFLINE', 'after-unbind', 'after-proof', 'after-commit-drop', 'before-scrub', 'after-scrub',
                'after-commit-gone')
_CARVE = ('before-DeviceGrant', 'after-DeviceGrant', 'before-CreateHostRegion', 'after-CreateHostRegion', 'before-BindDax',
          'after-BindDax')
_FLUSH_AND_SCRUB = ('before-UnbindDax', 'after-UnbindDax', 'before-DestroyHostRegion', 'after-DestroyHostRegion',
                    'after-DeviceRevoke', 'before-PowerOff', 'after-PowerOff', 'before-DeviceClear', 'after-DeviceClear')
# Mode -> the agent's rungs while it attaches, and while it detaches.
AGENT = {'devdax': (_CARVE, _FLUSH_AND_SCRUB),
         'system-ram': (('after-CreateHostRegion', 'after-BindDax', 'before-OnlineBlocks', 'after-OnlineBlocks'),
                        ('before-OfflineBlocks', 'after-OfflineBlocks', 'after-UnbindDax', 'after-DestroyHostRegion'))}


class RackSharedKillTest(SharedRackTest):
    def crash_agent_at(self, point):
        """The agent of host-a starts again, and ends when it passes `point`."""
        self.a.put('/run/agent.env', f'CXLPOOL_CRASH_AT={point}'.encode())
        before, proofs = self.pid(), self.pool.proofs('host-a')
        self.a.run(f'kill -9 {before}')
        wait_until(lambda: self.pid() not in ('', before), 30, 'a new agent')
        # Its proofs begin anew: until then it is not the one that clears.
        self.pool.wait_proven_anew('host-a', proofs)
        self.pool.wait_hosts_online()
        return self.pid()

    def wait_crashed(self, pid, point):
        wait_until(lambda: self.pid() not in ('', pid), 60, f'the agent ends at {point}')

    def allocating(self, name, mode):
        return ('region', 'allocate', name, '--size', '256MiB', '--host', 'host-a', '--mode', mode, '--wait',
                '--wait-timeout', WAIT)

    def assert_one_online(self, name, mode):
        self.assertEqual(list(self.pool.regions()), [name])
        self.assertEqual(self.state(name, 'host-a'), 'ONLINE')
        if mode == 'devdax':
            self.write('host-a', name, 6)

    def test_1_the_agent_killed_while_it_carves_flushes_and_scrubs(self):
        for mode, (up, down) in AGENT.items():
            for i, (rung, rung_down) in of_today(enumerate(itertools.zip_longest(up, down))):
                name = f'a{mode[0]}{i}'
                with self.subTest(rung, mode=mode):
                    pid = self.crash_agent_at(rung) if rung else None
                    command = self.pool.spawn_cli(*self.allocating(name, mode), timeout='90s')
                    if pid:
                        self.wait_crashed(pid, rung)
                    self.pool.finish_cli(command, 120)
                    self.assert_one_online(name, mode)
                with self.subTest(rung_down, mode=mode):
                    pid = self.crash_agent_at(rung_down)
                    self.pool.release(name, wait=False)
                    self.wait_crashed(pid, rung_down)
                    self.wait_gone(name)
                    self.assert_as_before()

    def test_2_the_manager_killed_meanwhile(self):
        def assert_gone(name):
            self.wait_gone(name)
            self.assert_as_before()

        self.kill_manager_at(MANAGER_UP, MANAGER_DOWN, lambda name: self.allocating(name, 'devdax'),
                             lambda name: self.assert_one_online(name, 'devdax'), assert_gone, patience=60)


if __name__ == '__main__':
    main()
