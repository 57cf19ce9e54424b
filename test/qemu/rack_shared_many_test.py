"""Two hundred Regions at once, and a thousand that come and go on two hosts, as DAX devices of real kernels."""

from testbed.pool import MiB
from testbed.rack import SharedRackPool
from testbed.shared_many import ManyRegions
from testbed.shared_rack import DAX, SESSIONS, SharedRackTest
from testbed.testing import BUILD, main, require_qemu


class RackSharedManyTest(ManyRegions, SharedRackTest):
    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        pool = SharedRackPool(BUILD, directory, granule=2 * MiB)
        pool.manager_toml = SESSIONS
        return pool

    def assert_many_online(self, count):
        bound = self.a.output(f'grep -lx {4 * MiB} {DAX}/*/size | while read f; do [ -e $(dirname $f)/driver ] && echo yes; done | wc -l')
        self.assertEqual(int(bound), count)
        self.write('host-a', 'n0', 1)
        self.verify('host-a', 'n0', 1)

    def assert_nothing_left(self):
        self.assert_as_before()


if __name__ == '__main__':
    main()
