"""A Region that an application allocated lives as long as its process, unless it is persistent; and what users may."""

import os
import subprocess
import time

from testbed.emulated import NOBODY, pool_of_driver
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

GONE_WITHIN_S = 5


class OwnerTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return pool_of_driver(BUILD, directory, hosts={'host-a': [[1, 2], [3, 4]]})

    def setUp(self):
        super().setUp()
        self.host = self.pool.hosts['host-a']
        self.host.agent.log.write_text('')
        self.addCleanup(self.release_all)

    def release_all(self):
        for name in self.pool.regions():
            try:
                self.pool.release(name)
            except CliError as error:  # Its owner has ended, and the agent was quicker.
                if 'UNKNOWN_REGION' not in error.stderr:
                    raise

    def owner(self, name, *flags):
        """A process that allocates a Region, and lives on."""
        process = subprocess.Popen([self.pool.build / 'bin/pool-write', '--allocate', '256MiB', '--name', name, '--hold',
                                    '600', *flags], env={**os.environ, 'CXLPOOL_SOCKET': str(self.host.socket)},
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        self.assertIn(f'regions/{name}', process.stdout.readline())
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        process.stdout.close()

    def assert_stays(self, name, seconds=2):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.assertEqual(self.pool.regions()[name]['state'], 'ALLOCATED')
            self.assertEqual(self.pool.attachment(name, 'host-a')['state'], 'ONLINE')

    def assert_released_once(self, name, within=GONE_WITHIN_S):
        wait_until(lambda: name not in self.pool.regions(), within, f'{name} is gone', exactly=True)
        self.assertEqual(self.host.agent.log.read_text().count(f'released regions/{name}: its owner has ended'), 1)

    def test_1_the_region_of_a_killed_process_is_released(self):
        process, other = self.owner('own'), self.owner('other')
        self.assertEqual(self.pool.regions()['own']['owner']['pid'], process.pid)
        self.assertEqual(self.pool.regions()['own']['owner'].get('uid', 0), os.geteuid())
        self.assertIn(f'uid {os.geteuid()} pid {process.pid}', self.pool.run_cli('region', 'list'))
        self.end(process)
        self.assert_released_once('own')
        self.assert_stays('other')
        self.end(other)
        self.assert_released_once('other')
        self.assert_pool_empty()

    def test_2_so_is_that_of_one_that_ends_well(self):
        done = self.host.run(['pool-write', '--allocate', '256MiB', '--name', 'brief'])
        self.assertEqual(done.status, 0, done.err)
        wait_until(lambda: not self.pool.regions(), GONE_WITHIN_S, 'it is gone', exactly=True)

    def test_3_a_persistent_one_stays(self):
        self.end(self.owner('kept', '--persistent'))
        self.assertNotIn('owner', self.pool.regions()['kept'])
        self.assert_stays('kept')
        self.host.agent.kill()
        self.host.agent.start()
        self.pool.wait_hosts_online()
        self.assert_stays('kept')

    def test_4_a_process_that_lives_keeps_it_over_a_restart_of_the_agent(self):
        process = self.owner('own')
        self.host.agent.kill()
        self.host.agent.start()
        self.pool.wait_hosts_online()
        self.assert_stays('own')  # And has no connection to this agent.
        self.end(process)
        self.assert_released_once('own')

    def test_5_one_that_dies_while_no_agent_runs(self):
        process = self.owner('own')
        self.host.agent.kill()
        self.end(process)
        self.assertEqual(self.pool.regions()['own']['state'], 'ALLOCATED')
        self.host.agent.start()
        self.assert_released_once('own', 30)

    def test_6_one_that_dies_while_the_manager_is_away(self):
        process = self.owner('own')
        self.pool.manager.kill()
        self.end(process)
        wait_until(lambda: 'the owner of regions/own, has ended' in self.host.agent.log.read_text(), 20, 'it is seen')
        self.pool.start_manager()
        self.pool.wait_hosts_online()
        self.assert_released_once('own', 30)

    def test_7_the_agent_is_killed_as_it_would_release(self):
        """Again and again, at another moment each time: once is once over all agents."""
        for delay in (0, 0.005, 0.02, 0.05):
            with self.subTest(delay):
                process = self.owner('own')
                self.end(process)
                time.sleep(delay)
                self.host.agent.kill()
                self.host.agent.start()
                wait_until(lambda: not self.pool.regions(), 30, 'it is gone')

    def test_8_another_that_has_it_open_is_asked_first(self):
        process = self.owner('own')
        holder = subprocess.Popen([self.pool.build / 'bin/pool-verify', '--region', 'own', '--hold', '600'],
                                  env={**os.environ, 'CXLPOOL_SOCKET': str(self.host.socket)}, stdout=subprocess.PIPE,
                                  text=True)
        self.addCleanup(self.end, holder)
        self.assertTrue(holder.stdout.readline())
        self.end(process)
        wait_until(lambda: self.pool.attachment('own', 'host-a')['state'] == 'RELEASE_BLOCKED', 20, 'it is blocked')
        self.assertIn(str(holder.pid), self.pool.attachment('own', 'host-a')['state_reason'])
        self.end(holder)
        wait_until(lambda: not self.pool.regions(), 30, 'it is gone')

    def test_9_what_a_user_may(self):
        self.pool.cli('tenant', 'set', 'users')
        self.pool.cli('host', 'enrol', 'host-a', '--tenant', 'users', '--tenant', 'default')
        self.addCleanup(self.pool.cli, 'host', 'enrol', 'host-a', '--tenant', 'default')
        uid = NOBODY if os.geteuid() == 0 else os.geteuid()
        self.host.agent.kill()
        original = self.host.config.read_text()
        self.addCleanup(self.host.agent.start)
        self.addCleanup(self.host.config.write_text, original)
        self.addCleanup(self.host.agent.kill)
        self.host.config.write_text(original.replace(f'[{self.pool.driver}]', f'''[[applications.user]]
uids = [{uid}]
tenant = "users"
max_regions = 1
[{self.pool.driver}]''', 1))
        self.host.agent.start()
        self.pool.wait_hosts_online()
        allocate = ['pool-write', '--allocate', '256MiB', '--name']
        refused = self.host.run([*allocate, 'kept', '--persistent'], user='app')
        self.assertEqual(refused.status, 3)
        self.assertIn('may not allocate Regions that outlive the process', refused.err)
        command = [str(self.pool.build / 'bin/pool-write'), *allocate[1:], 'mine', '--hold', '600']
        if os.geteuid() == 0:
            command = ['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', *command]
        mine = subprocess.Popen(command, env={**os.environ, 'CXLPOOL_SOCKET': str(self.host.socket)},
                                stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, mine)
        self.assertTrue(mine.stdout.readline())
        self.assertEqual(self.pool.regions()['mine']['tenant'], 'tenants/users')
        refused = self.host.run([*allocate, 'more'], user='app')
        self.assertEqual(refused.status, 3)
        self.assertIn('max_regions is 1', refused.err)
        self.end(mine)
        wait_until(lambda: not self.pool.regions(), GONE_WITHIN_S, 'it is gone', exactly=True)
        # The agent counts it until the manager has said to it, too, that it is gone.
        wait_until(lambda: self.host.run([*allocate, 'more'], user='app').status == 0, GONE_WITHIN_S, 'there is room',
                   exactly=True)


if __name__ == '__main__':
    main()
