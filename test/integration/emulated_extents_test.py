"""Regions of several extents with real processes and no CXL: one range to the application, each extent a file."""

from testbed.emulated import EmulatedPool
from testbed.pool_bytes import check_pattern, extents
from testbed.testing import BUILD, PoolTest, main

MiB = 1 << 20


class EmulatedExtentsTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[17, 18], [37, 38]]},
                            devices={'cmm-0': '512MiB', 'cmm-1': '256MiB'})

    def files(self, name):
        """The extents' files, in Region order."""
        tag = self.pool.regions()[name]['tag']
        return [(self.directory / 'fabric/extents' / f'{tag}.{index}', 0, length)
                for index, (_, _, length) in enumerate(extents(self.pool, name))]

    def run_on_host(self, *command, user='root'):
        done = self.pool.hosts['host-a'].run(command, user=user)
        self.assertEqual(done.status, 0, done.err)
        return done.out

    def test_two_extents_of_unequal_size_are_one_range(self):
        self.pool.allocate('two', '768MiB', 'host-a', '--max-extents', '2', '--open-to', 'everybody')
        self.assertEqual(sorted(length for _, _, length in self.files('two')), [256 * MiB, 512 * MiB])
        self.run_on_host('pool-write', '--region', 'two', '--seed', '77')
        self.run_on_host('pool-verify', '--region', 'two', '--seed', '77', user='app')
        files = self.files('two')
        check_pattern(self, files, 77)
        self.pool.release('two')
        self.assertEqual([file for file, _, _ in files if file.exists()], [])
        self.assert_pool_empty()


if __name__ == '__main__':
    main()
