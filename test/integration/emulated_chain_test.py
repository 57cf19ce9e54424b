"""The whole chain with real processes and no CXL: life, refusals, kills, stops."""

import os
import signal
import subprocess
import time
import unittest

from testbed.demo import Demo
from testbed.emulated import EmulatedPool
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main


class EmulatedChainTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory)

    def refused(self, status, reason, *arguments):
        with self.assertRaises(CliError) as refused:
            self.pool.cli(*arguments)
        self.assertEqual(refused.exception.status, status, refused.exception.stderr)
        self.assertIn(reason, refused.exception.stderr)
        self.assertIn('remedy', refused.exception.stderr)

    def test_1_the_demo_holds(self):
        Demo(self.pool, emulated=True).hold(self)
        self.assert_pool_empty()

    def test_2_a_refusal_says_why_and_changes_nothing(self):
        before = self.pool.cli('capacity')
        allocate = ('region', 'allocate')
        self.refused(5, 'POOL_FULL', *allocate, 'x', '--size', '8GiB', '--host', 'host-a')
        self.refused(5, 'POOL_FRAGMENTED', *allocate, 'x', '--size', '3GiB', '--host', 'host-a')
        self.refused(3, 'UNKNOWN_HOST', *allocate, 'x', '--size', '1GiB', '--host', 'host-z')
        self.refused(3, 'UNKNOWN_DEVICE', *allocate, 'x', '--size', '1GiB', '--device', 'cmm-9')
        self.refused(2, 'BAD_NAME', *allocate, 'Bad_Name', '--size', '1GiB')
        self.refused(3, 'UNKNOWN_REGION', 'region', 'release', 'nobody')
        self.assertEqual(self.pool.cli('capacity'), before)

    def test_3_several_extents_are_one_mapping(self):
        self.pool.allocate('wide', '3GiB', 'host-a', '--max-extents', '2', '--open-to', 'everybody')
        self.assertEqual(len(self.pool.regions()['wide']['extents']), 2)
        done = self.pool.hosts['host-a'].run(['pool-write', '--region', 'wide', '--seed', '7'])
        self.assertEqual(done.status, 0, done.err)
        done = self.pool.hosts['host-a'].run(['pool-verify', '--region', 'wide', '--seed', '7'], user='app')
        self.assertEqual(done.status, 0, done.err)
        self.pool.release('wide')

    def test_4_a_holder_blocks_the_release_and_is_named(self):
        self.pool.allocate('held', '256MiB', 'host-a')
        holder = subprocess.Popen([self.pool.build / 'bin/pool-write', '--region', 'held', '--hold', '60'],
                                  env={**os.environ, 'CXLPOOL_SOCKET': str(self.pool.hosts['host-a'].socket)},
                                  stdout=subprocess.PIPE, text=True)
        try:
            self.assertTrue(holder.stdout.readline())
            self.pool.release('held', wait=False)
            blocked = wait_until(lambda: (a := self.pool.attachment('held', 'host-a'))['state'] == 'RELEASE_BLOCKED' and a,
                                 20, 'the release is blocked')
            self.assertIn(str(holder.pid), blocked['state_reason'])
        finally:
            holder.kill()
            holder.communicate()
        wait_until(lambda: not self.pool.regions(), 30, 'it is gone once the holder is')
        self.assert_pool_empty()

    def test_5_an_application_allocates_and_releases_by_itself(self):
        done = self.pool.hosts['host-b'].run(['pool-write', '--allocate', '256MiB', '--name', 'own', '--seed', '3',
                                               '--persistent'])
        self.assertEqual(done.status, 0, done.err)
        self.assertEqual(self.pool.attachment('own', 'host-b')['state'], 'ONLINE')
        self.pool.release('own')

    @unittest.skipIf(os.environ.get('CXLPOOL_AGENT_BEFORE'), 'an agent of 0.1.0 logs no requests')
    def test_5a_one_request_is_followed_by_its_id(self):
        """From the CLI to the host: what each rung was for is in the logs of both."""
        made, gone = self.pool.request_id(), self.pool.request_id()
        said = subprocess.run(self.pool.cli_command('region', 'allocate', 'followed', '--size', '256MiB', '--host', 'host-a',
                                                    '--wait', '--request-id', made, '--verbose'),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(f'request id: {made}\n', said.stderr)
        self.pool.release('followed', '--request-id', gone)
        logs = {'manager': self.pool.manager.log, 'agent': self.pool.hosts['host-a'].agent.log}
        for (request, of), expected in {
                (made, 'manager'): ('calls: AllocateRegion', 'on host-a: BOUND', 'on host-a: ONLINE', 'followed: ALLOCATED'),
                (made, 'agent'): ('PowerOn', 'CreateHostRegion', 'BindDax'),
                (gone, 'manager'): ('calls: ReleaseRegion', 'on host-a: OFFLINE', 'on host-a: EJECTING', 'followed: gone'),
                (gone, 'agent'): ('UnbindDax', 'DestroyHostRegion', 'PowerOff')}.items():
            with self.subTest(of=of, request='made' if request == made else 'gone'):
                lines = [line for line in logs[of].read_text(errors='replace').splitlines() if request in line]
                for what in expected:
                    self.assertTrue(any(what in line for line in lines), (what, lines))
                self.assertTrue(all('followed' in line for line in lines), lines)

    def test_6_killed_at_every_rung_the_manager_converges(self):
        up = ('before-bind', 'after-bind', 'after-commit-BOUND', 'report-SEGMENT_ONLINE', 'before-commit-ONLINE',
              'after-commit-ALLOCATED')
        down = ('after-commit-OFFLINE', 'before-unbind', 'after-unbind', 'after-commit-EJECTING', 'after-proof',
                'after-commit-drop', 'before-scrub', 'after-scrub', 'before-commit-gone', 'after-commit-gone')

        def allocating(name):
            return ('--request-id', self.pool.request_id(), 'region', 'allocate', name, '--size', '256MiB', '--host', 'host-a',
                    '--wait')

        def assert_one_online(name):
            self.assertEqual(list(self.pool.regions()), [name])
            self.assertEqual(self.pool.attachment(name, 'host-a')['state'], 'ONLINE')

        self.kill_manager_at(up, down, allocating, assert_one_online, lambda name: self.assert_pool_empty())

    def test_7_a_killed_agent_readopts_what_is_there(self):
        self.pool.allocate('kept', '256MiB', 'host-a')
        agent = self.pool.hosts['host-a'].agent
        agent.kill()
        agent.start()
        self.pool.wait_hosts_online()
        done = self.pool.hosts['host-a'].run(['pool-write', '--region', 'kept', '--seed', '1'])
        self.assertEqual(done.status, 0, done.err)
        self.assertEqual(self.pool.attachment('kept', 'host-a')['state'], 'ONLINE')
        self.pool.release('kept')

    def test_8_stopping_is_bounded_with_streams_open(self):
        watch = subprocess.Popen(self.pool.cli_command('region', 'watch'), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        try:
            start = time.monotonic()
            self.pool.manager.process.send_signal(signal.SIGTERM)
            self.assertEqual(self.pool.manager.wait(10), 0)
            self.assertLess(time.monotonic() - start, 10)
        finally:
            watch.kill()
            watch.wait()
        self.pool.start_manager()
        self.pool.wait_hosts_online()


if __name__ == '__main__':
    main()
