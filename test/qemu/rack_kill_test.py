"""kill -9 of the manager and of the agent at every rung of an allocation and of a release, on QEMU."""

from testbed.process import TestbedError, wait_until
from testbed.rack import RackPool
from testbed.testing import BUILD, PoolTest, main, require_qemu

MANAGER_UP = ('before-bind', 'after-bind', 'before-commit-BOUND', 'after-commit-BOUND', 'report-SEGMENT_PRESENT',
              'report-SEGMENT_REGION', 'report-SEGMENT_ONLINE', 'before-commit-ONLINE', 'after-commit-ONLINE',
              'before-commit-ALLOCATED', 'after-commit-ALLOCATED')
MANAGER_DOWN = ('before-commit-OFFLINE', 'after-commit-OFFLINE', 'before-unbind', 'after-unbind',
                'before-commit-EJECTING', 'after-commit-EJECTING', 'after-proof', 'before-commit-UNBOUND',
                'after-commit-UNBOUND', 'before-commit-drop', 'after-commit-drop', 'before-commit-SCRUBBING',
                'after-commit-SCRUBBING', 'before-scrub', 'after-scrub', 'before-commit-gone', 'after-commit-gone')
AGENT_UP = ('before-PowerOn', 'after-PowerOn', 'before-CreateHostRegion', 'after-CreateHostRegion', 'before-BindDax',
            'after-BindDax', 'before-OnlineBlocks', 'after-OnlineBlocks', 'before-Report')
AGENT_DOWN = ('before-OfflineBlocks', 'after-OfflineBlocks', 'before-UnbindDax', 'after-UnbindDax',
              'before-DestroyHostRegion', 'after-DestroyHostRegion', 'before-PowerOff', 'after-PowerOff')


class RackKillTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        return RackPool(BUILD, directory)

    def allocating(self, name, mode):
        return ('region', 'allocate', name, '--size', '256MiB', '--host', 'host-a', '--mode', mode, '--wait',
                '--wait-timeout', '60s')

    def assert_one_online(self, name):
        self.assertEqual(list(self.pool.regions()), [name])
        self.assertEqual(self.pool.attachment(name, 'host-a')['state'], 'ONLINE')
        self.assertEqual(int(self.pool.cli('capacity')['allocated_bytes']), 256 << 20)

    def gone(self):
        wait_until(lambda: self.pool.try_cli('region', 'list') is not None and not self.pool.regions(), 60, 'it is gone')
        self.assert_pool_empty()

    def test_manager_killed_on_the_way_up(self):
        for i, rung in enumerate(MANAGER_UP):
            with self.subTest(rung):
                name = f'mu{i}'
                self.pool.restart_manager({'CXLPOOL_CRASH_AT': rung})
                self.pool.wait_hosts_online()
                # The command waits and retries by itself: it lives through the manager's death.
                command = self.pool.spawn_cli(*self.allocating(name, 'devdax'))
                self.pool.manager.wait(30)
                self.pool.start_manager()
                self.pool.finish_cli(command)
                self.assert_one_online(name)
                self.pool.release(name)
                self.assert_pool_empty()

    def test_manager_killed_on_the_way_down(self):
        for i, rung in enumerate(MANAGER_DOWN):
            with self.subTest(rung):
                name = f'md{i}'
                self.pool.wait_hosts_online()
                self.pool.allocate(name, '256MiB', 'host-a')
                self.pool.restart_manager({'CXLPOOL_CRASH_AT': rung})
                self.pool.wait_hosts_online()
                command = self.pool.spawn_cli('region', 'release', name, '--detach-all', '--wait')
                self.pool.manager.wait(30)
                self.pool.start_manager()
                self.pool.finish_cli(command)
                self.gone()

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

    def test_agent_killed_on_the_way_up(self):
        for i, rung in enumerate(AGENT_UP):
            with self.subTest(rung):
                name = f'au{i}'
                pid = self.crash_agent_at(rung)
                command = self.pool.spawn_cli(*self.allocating(name, 'system-ram'))
                self.wait_crashed(pid, rung)
                self.pool.finish_cli(command)
                self.assert_one_online(name)
                self.pool.release(name)
                self.assert_pool_empty()

    def test_agent_killed_on_the_way_down(self):
        for i, rung in enumerate(AGENT_DOWN):
            with self.subTest(rung):
                name = f'ad{i}'
                self.pool.allocate(name, '256MiB', 'host-a', '--mode', 'system-ram')
                pid = self.crash_agent_at(rung)
                self.pool.release(name, wait=False)
                self.wait_crashed(pid, rung)
                self.gone()


if __name__ == '__main__':
    main()
