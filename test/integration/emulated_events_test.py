"""Lost bytes, with real processes and no CXL: injected into the emulated host, an application hears of them, the manager
keeps them from everybody, and an agent that restarts tells nobody twice. And sizes that change, of which it hears, too."""

import os
import signal
import subprocess
import time

from testbed.emulated import EmulatedPool
from testbed.pool import CliError, MiB
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

HOST = 'host-a'
WITHIN_S = 5


class EmulatedEventsTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={HOST: [[1, 2], [3, 4]]},
                            devices={'cmm-0': '512MiB', 'cmm-1': '512MiB'})

    def setUp(self):
        super().setUp()
        self.watches = []
        self.addCleanup(self.end_watches)

    def end_watches(self):
        for process, log in self.watches:
            process.kill()
            process.wait()
            log.close()

    def watch(self, kind='fault'):
        """Starts an application that listens; the function that gives what of this kind it heard."""
        path = self.directory / f'watch-{len(self.watches)}-{time.monotonic_ns()}'
        log = open(path, 'w')
        process = subprocess.Popen([BUILD / 'bin/pool-watch', '--count', '1000'], stdout=log,
                                   env={**os.environ, 'CXLPOOL_SOCKET': str(self.pool.hosts[HOST].socket)})
        self.watches.append((process, log))

        def heard():
            return [line.split(' ', 4)[1:] for line in path.read_text().splitlines() if line.startswith(kind + ' ')]
        wait_until(lambda: 'watching' in path.read_text(), 20, 'the application watches')
        return heard

    def poison(self, name, index, dpa, length):
        """Loses bytes of the LD of one segment, as the host sees it."""
        segment = self.pool.attachment(name, HOST)['segments'][index]
        path = self.pool.directory / f'fabric/hosts/{HOST}/slot-{segment["slot"]}/poison'
        with open(path, 'a') as file:
            file.write(f'{int(segment["serial"])} {dpa:#x} {length}\n')
        self.addCleanup(lambda: path.exists() and path.unlink())

    def quarantined(self):
        return int(self.pool.cli('capacity')['quarantined_bytes'])

    def test_1_an_application_hears_and_nobody_gets_the_bytes(self):
        heard = self.watch()
        self.pool.allocate('kv', '768MiB', HOST, '--max-extents', '2')
        sizes = [int(e['length_bytes']) for e in self.pool.regions()['kv']['extents']]
        self.assertEqual(len(sizes), 2)
        began = time.monotonic()
        self.poison('kv', 1, 0x10000, 256)
        wait_until(heard, WITHIN_S, 'the application hears of it', exactly=True)
        wait_until(lambda: self.quarantined() == sizes[1], WITHIN_S, 'the extent is quarantined', exactly=True)
        self.assertLess(time.monotonic() - began, WITHIN_S)
        [[name, offset, length, message]] = heard()
        self.assertEqual((name, int(offset), int(length)), ('regions/kv', sizes[0] + 0x10000, 256))
        self.assertIn('poison', message)
        region = self.pool.regions()['kv']
        self.assertEqual([bool(e.get('bad_reason')) for e in region['extents']], [False, True])
        self.assertEqual(self.pool.attachment('kv', HOST)['state'], 'ONLINE')
        # Who asks later hears it, too.
        self.assertEqual(len(wait_until(self.watch(), WITHIN_S, 'a second application hears of it', exactly=True)), 1)

        self.pool.release('kv')
        [bad] = self.pool.regions()
        self.assertTrue(bad.startswith('bad-'), bad)
        with self.assertRaises(CliError) as refused:
            self.pool.allocate('next', '1GiB', HOST, '--max-extents', '4', wait=False)
        self.assertIn('"reason": "POOL_', refused.exception.stderr)
        self.pool.allocate('next', str(1024 * MiB - sizes[1]), HOST, '--max-extents', '4')
        self.pool.release('next')
        self.pool.release(bad, '--force', '--reason', 'the poison was injected', '--yes')
        wait_until(lambda: not self.pool.regions(), 30, 'it is scrubbed')
        self.assert_pool_empty()

    def test_2_an_agent_that_restarts_tells_nobody_twice(self):
        self.pool.allocate('kv', '256MiB', HOST)
        heard = self.watch()
        self.poison('kv', 0, 0, 64)
        wait_until(heard, WITHIN_S, 'the application hears of it', exactly=True)
        agent = self.pool.hosts[HOST].agent
        agent.process.send_signal(signal.SIGKILL)
        agent.process.wait()
        agent.start()
        self.pool.wait_hosts_online()
        self.poison('kv', 0, 4096, 64)
        wait_until(lambda: len(heard()) > 1, 30, 'the application hears from the new agent')
        self.assertEqual([int(offset) for _, offset, _, _ in heard()], [0, 4096])
        self.pool.release('kv')
        [bad] = self.pool.regions()
        self.pool.release(bad, '--force', '--reason', 'the poison was injected', '--yes')
        wait_until(lambda: not self.pool.regions(), 30, 'it is scrubbed')
        self.assert_pool_empty()

    def test_3_an_application_hears_of_growth_and_shrinking(self):
        sizes = self.watch('size')

        def heard(mib):
            wait_until(lambda: sizes()[-1:] == [['regions/kv', str(mib * MiB)]], 30, f'it hears of {mib} MiB: {sizes()}')
        self.pool.allocate('kv', '256MiB', HOST)
        heard(256)
        self.pool.cli('region', 'resize', 'kv', '512MiB', '--wait')
        heard(512)
        self.pool.cli('region', 'resize', 'kv', '256MiB', '--wait')
        heard(256)
        agent = self.pool.hosts[HOST].agent
        agent.process.send_signal(signal.SIGKILL)
        agent.process.wait()
        agent.start()
        self.pool.wait_hosts_online()
        self.pool.cli('region', 'resize', 'kv', '512MiB', '--wait')
        heard(512)
        # Of what is to go it hears while that is in use: somebody has to give it back.
        user = subprocess.Popen([BUILD / 'bin/pool-write', '--region', 'kv', '--hold', '300'], stdout=subprocess.PIPE,
                                env={**os.environ, 'CXLPOOL_SOCKET': str(self.pool.hosts[HOST].socket)})
        self.addCleanup(user.communicate)
        self.addCleanup(user.kill)
        self.assertTrue(user.stdout.readline())
        self.pool.release('kv', wait=False)
        heard(0)
        self.assertIn('kv', self.pool.regions())
        user.kill()
        wait_until(lambda: not self.pool.regions(), 30, 'it is released')
        # The agent that restarted has told nothing twice.
        self.assertEqual([int(size) // MiB for _, size in sizes()], [256, 512, 256, 512, 0])
        self.assert_pool_empty()


if __name__ == '__main__':
    main()
