"""Devices that every host sees whole, as files, with real processes: life, refusals, kills, many Regions."""

import random
import time

from testbed.demo import Demo
from testbed.emulated import SharedPool
from testbed.pool import WAIT, CliError, MiB
from testbed.process import Daemon, wait_until
from testbed.shared_many import ManyRegions
from testbed.testing import BUILD, PoolTest, main, of_today

AGENT_UP = ('before-DeviceGrant', 'after-DeviceGrant', 'before-CreateHostRegion', 'carved', 'invalidated',
            'after-CreateHostRegion', 'before-BindDax', 'after-BindDax', 'before-Report')
AGENT_DOWN = ('before-UnbindDax', 'after-UnbindDax', 'before-DestroyHostRegion', 'written-back',
              'after-DestroyHostRegion',
              'before-DeviceRevoke', 'after-DeviceRevoke', 'before-PowerOff', 'after-PowerOff', 'before-DeviceClear',
              'after-DeviceClear')
MANAGER_UP = ('before-bind', 'after-bind', 'after-commit-BOUND', 'report-SEGMENT_ONLINE', 'before-commit-ONLINE',
              'after-commit-ALLOCATED')
MANAGER_DOWN = ('after-commit-OFFLINE', 'before-unbind', 'after-unbind', 'after-commit-EJECTING', 'after-proof',
                'after-commit-drop', 'before-scrub', 'after-scrub', 'before-commit-gone', 'after-commit-gone')


class SharedTest(PoolTest):
    """What these tests share."""

    def left_on(self, host):
        """What a host's agent has written down: grants, and pieces other than the marks' windows."""
        directory, align = self.pool.directory / host, 2 * MiB
        grants = [line for line in self.lines(directory / 'grants')]
        pieces = [line for line in self.lines(directory / 'pieces') if line.split()[:2] != ['0', str(align)]]
        return grants + pieces

    @staticmethod
    def lines(path):
        """Below the first one, which names the file's kind and the boot."""
        return path.read_text().splitlines()[1:] if path.exists() else []

    def assert_nothing_left(self):
        self.assert_pool_empty()
        for host in self.pool.hosts:
            self.assertEqual(self.left_on(host), [], host)

    def refused(self, status, reason, *arguments):
        with self.assertRaises(CliError) as refused:
            self.pool.cli(*arguments)
        self.assertEqual(refused.exception.status, status, refused.exception.stderr)
        self.assertIn(reason, refused.exception.stderr)
        self.assertIn('remedy', refused.exception.stderr)

    def program(self, host, *words):
        done = self.pool.hosts[host].run([str(word) for word in words])
        self.assertEqual(done.status, 0, done.out + done.err)
        return done.out


class SharedChainTest(SharedTest):
    @classmethod
    def make_pool(cls, directory):
        return SharedPool(BUILD, directory)

    def test_1_the_demo_holds(self):
        Demo(self.pool, emulated=True).hold(self)
        self.assert_nothing_left()

    def test_2_a_refusal_says_why_and_changes_nothing(self):
        before = self.pool.cli('capacity')
        allocate = ('region', 'allocate', 'x', '--size')
        self.refused(5, 'POOL_FULL', *allocate, '8GiB', '--host', 'host-a')
        self.refused(5, 'POOL_FRAGMENTED', *allocate, '3GiB', '--host', 'host-a')
        self.refused(3, 'UNKNOWN_HOST', *allocate, '1GiB', '--host', 'host-z')
        self.refused(3, 'UNKNOWN_DEVICE', *allocate, '1GiB', '--device', 'cmm-9')
        self.refused(3, 'UNKNOWN_REGION', 'region', 'release', 'nobody')
        self.assertEqual(self.pool.cli('capacity'), before)
        self.assert_nothing_left()

    def allocating(self, name):
        return 'region', 'allocate', name, '--size', '256MiB', '--host', 'host-a', '--wait', '--wait-timeout', WAIT

    def assert_one_online(self, name):
        self.assertEqual(list(self.pool.regions()), [name])
        self.assertEqual(self.pool.attachment(name, 'host-a')['state'], 'ONLINE')
        self.program('host-a', 'pool-write', '--region', name, '--seed', 1)

    def gone(self):
        wait_until(lambda: (regions := self.pool.try_cli('region', 'list')) is not None and not regions.get('regions'), 60,
                   'it is gone')
        self.assert_nothing_left()

    def crash_agent_at(self, point):
        """The agent of host-a starts again, and ends when it passes `point`."""
        agent, proofs = self.pool.hosts['host-a'].agent, self.pool.proofs('host-a')
        agent.kill()
        agent.start({'CXLPOOL_CRASH_AT': point} if point else None)
        # Its proofs begin anew: until then nothing is bound there, and it is not the one that clears.
        self.pool.wait_proven_anew('host-a', proofs)
        self.pool.wait_hosts_online()
        return agent

    def test_3_killed_at_every_rung_the_agent_goes_on(self):
        self.pool.allocate('first', '256MiB', 'host-b', '--device', 'cmm-0')  # So that it is host-a that clears.
        self.pool.release('first')
        rungs = zip(AGENT_UP + (None,) * (len(AGENT_DOWN) - len(AGENT_UP)), AGENT_DOWN)
        for i, (up, down) in of_today(enumerate(rungs)):
            name = f'a{i}'
            with self.subTest(up):
                agent = self.crash_agent_at(up)
                command = self.pool.spawn_cli(*self.allocating(name))
                if up:
                    agent.wait(30)
                    agent.start()
                self.pool.finish_cli(command)
                self.assert_one_online(name)
            with self.subTest(down):
                agent = self.crash_agent_at(down)
                self.pool.release(name, wait=False)
                agent.wait(30)
                agent.start()
                self.gone()

    def test_4_killed_at_every_rung_the_manager_goes_on(self):
        self.kill_manager_at(MANAGER_UP, MANAGER_DOWN, self.allocating, self.assert_one_online, lambda name: self.gone())

    def test_5_agent_and_manager_killed_at_any_time(self):
        """Seeded, but when a process dies is the machine's."""
        random_ = random.Random(18)
        for i in range(12):
            name, agent = f'r{i}', self.pool.hosts['host-a'].agent
            self.pool.wait_hosts_online()
            command = self.pool.spawn_cli(*self.allocating(name))
            self.kill_both(random_, agent)
            try:
                self.pool.finish_cli(command)
            except CliError as e:
                # The agent was dead when the call came, or no agent had shown the devices to the new manager: it is refused,
                # and nothing was begun.
                if 'HOST_NOT_ONLINE' not in e.stderr and 'DEVICE_UNREACHABLE' not in e.stderr:
                    raise
                self.pool.wait_devices()
                self.pool.finish_cli(self.pool.spawn_cli(*self.allocating(name)))
            self.assert_one_online(name)
            command = self.pool.spawn_cli('region', 'release', name, '--detach-all', '--wait')
            self.kill_both(random_, agent)
            self.pool.finish_cli(command)
            self.gone()

    def kill_both(self, random_, agent):
        for daemon, start in random_.sample(((agent, agent.start), (self.pool.manager, self.pool.start_manager)), 2):
            time.sleep(random_.random() * 0.6)
            daemon.kill()
            start()
        self.pool.wait_hosts_online()

    def test_6_killed_with_memory_online_the_agent_finds_it_again(self):
        for name, mode in (('dax', 'devdax'), ('ram', 'system-ram')):
            self.pool.allocate(name, '256MiB', 'host-a', '--mode', mode)
        self.program('host-a', 'pool-write', '--region', 'dax', '--seed', 5)
        before = {name: self.pool.attachment(name, 'host-a')['segments'] for name in ('dax', 'ram')}
        self.crash_agent_at(None)
        self.program('host-a', 'pool-verify', '--region', 'dax', '--seed', 5)
        for name, segments in before.items():
            self.assertEqual(self.pool.attachment(name, 'host-a')['segments'], segments)
            self.pool.release(name)
        self.assert_nothing_left()


    def test_7_a_second_agent_does_not_start_beside_the_first(self):
        host = self.pool.hosts['host-a']
        second = Daemon('cxlpool-agent', host.agent.command, host.directory / 'second.log').start()
        self.assertNotEqual(second.wait(30), 0)
        self.assertIn('another cxlpool-agent of this host holds', second.tail())
        self.pool.allocate('one', '256MiB', 'host-a')
        self.pool.release('one')
        self.assert_nothing_left()


class FencedPool(SharedPool):
    """With a fence program that says that a host's power is off once it has cut it."""

    def fabric_toml(self):
        program, off = self.directory / 'cut-power', self.directory / 'off'
        program.write_text('#!/bin/sh\n[ "$CXLPOOL_ACTION" = status ] || exec touch ' + f'{off}.$1\n[ ! -e {off}.$1 ] || exit 2\n')
        program.chmod(0o755)
        return f'fence_program = "{program}"\n' + super().fabric_toml()


class SharedFenceTest(SharedTest):
    @classmethod
    def make_pool(cls, directory):
        return FencedPool(BUILD, directory)

    def test_a_host_that_never_comes_back_is_fenced_and_its_bytes_go_to_another(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        self.program('host-a', 'pool-write', '--region', 'kv', '--seed', 5)
        extent = self.pool.regions()['kv']['extents']
        self.pool.hosts['host-a'].agent.kill()
        wait_until(lambda: self.pool.cli('host', 'show', 'host-a')['state'] != 'ONLINE', 60, 'host-a is missed')
        self.pool.release('kv', wait=False)
        self.assertIn('kv', self.pool.regions())
        self.pool.cli('host', 'fence', 'host-a', '--reason', 'it burnt down', '--yes')
        wait_until(lambda: 'kv' not in self.pool.regions(), 30, 'kv is gone')
        self.pool.allocate('next', '256MiB', 'host-b')
        self.assertEqual(self.pool.regions()['next']['extents'], extent)
        self.program('host-b', 'pool-verify', '--region', 'next', '--expect-zero')
        self.pool.release('next')


class SharedManyTest(ManyRegions, SharedTest):
    @classmethod
    def make_pool(cls, directory):
        return SharedPool(BUILD, directory, devices={'cmm-0': '1026MiB', 'cmm-1': '1026MiB'}, granule='2MiB')

    def assert_many_online(self, count):
        self.assertEqual(len(self.left_on('host-a')), 2 * count)  # A grant and a piece each.
        self.program('host-a', 'pool-write', '--region', 'n0', '--seed', 1)


if __name__ == '__main__':
    main()
