"""The previous tenant's bytes are unreadable: one host writes a pattern and releases, another asks for the very same bytes
until it gets them, and scans each. The manager is killed before, in and after the scrub."""

import os
import random
import time

from testbed.pool import CliError
from testbed.pool_bytes import check_pattern, check_zero
from testbed.process import wait_until
from testbed.rack_trials import SLICE, RackTrials
from testbed.testing import main

DEVICE = 'cmm-0'
MiB = 1 << 20

# The long run kills at more moments. A seed given by hand comes first: it is that of a failure, to be seen again.
RANDOM_KILLS = int(os.environ.get('CXLPOOL_RANDOM_KILLS', '1'))
FIRST_SEED = os.environ.get('CXLPOOL_SEED')


class RackScrubTest(RackTrials):
    topology = {'device': [{'name': DEVICE, 'size': '256 MiB'}],
                'host': [{'name': name, 'bridges': 2, 'ports': 2} for name in ('host-a', 'host-b')]}

    @property
    def file(self):
        return self.pool.rack.device_path(DEVICE)

    def data_bytes(self):
        """How much of the pool file is not a hole."""
        return self.file.stat().st_blocks * 512

    def fill(self, host, seed):
        """The first tenant; every byte is its own."""
        self.take('old', host, DEVICE)
        self.write(host, 'old', seed)
        check_pattern(self, [(self.file, 0, SLICE)], seed)

    def scan(self, host):
        """The next tenant asks again and again, and then looks at every byte; so do we, from outside."""
        def granted():
            try:
                self.take('new', host, DEVICE)
                return True
            except CliError as e:
                self.assertRegex(e.stderr, '"reason": "(POOL_FULL|POOL_FRAGMENTED|HOST_NOT_ONLINE)"')
                return False
        wait_until(granted, 90, 'the bytes are granted')
        check_zero(self, self.file)
        self.verify_zero(host, 'new')
        self.assertNotIn('old', self.pool.regions())
        self.pool.release('new')
        self.assert_sound()

    def release_until(self, killed):
        """Asks for the release; a new manager comes once `killed()` says that the old one is dead."""
        self.pool.release('old', wait=False)
        killed()
        self.assertFalse(self.pool.manager.running)
        self.pool.start_manager()

    def crash(self, writer, reader, seed, point):
        self.fill(writer, seed)
        self.pool.restart_manager({'CXLPOOL_CRASH_AT': point})
        self.pool.wait_hosts_online()
        self.release_until(lambda: self.pool.manager.wait(60))
        self.scan(reader)

    def test_1_nobody_is_killed(self):
        self.fill('host-a', 0x51)
        self.pool.release('old', wait=False)
        self.scan('host-b')

    def test_2_killed_before_the_scrub(self):
        self.crash('host-b', 'host-a', 0x52, 'before-scrub')

    def test_3_killed_after_the_scrub(self):
        self.crash('host-a', 'host-b', 0x53, 'after-scrub')

    def test_4_killed_in_the_scrub(self):
        self.fill('host-b', 0x54)
        full = self.data_bytes()
        self.assertGreaterEqual(full, SLICE)

        def killed():
            end = time.monotonic() + 60
            while self.data_bytes() >= full:  # No pause: the scrub takes milliseconds.
                self.assertLess(time.monotonic(), end, 'the scrub never began')
            self.pool.manager.kill()
            print(f'killed with {self.data_bytes() // MiB} of {full // MiB} MiB not yet cleared')
        self.release_until(killed)
        self.scan('host-a')

    def test_5_killed_at_some_moment(self):
        for i in range(RANDOM_KILLS):
            seed = int(FIRST_SEED, 0) if FIRST_SEED and i == 0 else random.randrange(1 << 32)
            after = random.Random(seed).uniform(0, 1.5)
            print(f'seed {seed}: killed {after:.3f} s after the release was asked for')
            self.fill('host-a', seed)

            def killed():
                time.sleep(after)
                self.pool.manager.kill()
            self.release_until(killed)
            self.scan('host-b')

    def test_6_a_host_that_used_it_as_its_own_memory(self):
        self.take('old', 'host-b', DEVICE, '--mode', 'system-ram')
        self.program('host-b', 'pool-verify', '--region', 'old', '--node', '--bytes', '128MiB', '--seed', 0x56)
        self.assertGreaterEqual(self.data_bytes(), 128 * MiB)
        self.pool.release('old', wait=False)
        self.scan('host-a')


if __name__ == '__main__':
    main()
