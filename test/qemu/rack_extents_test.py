"""A Region of two extents, on two devices, in two host regions of a QEMU machine: one range to its application, and
byte for byte in the pool files where the API says."""

import json

from testbed.pool_bytes import check_pattern, check_zero, extents
from testbed.rack import RackPool
from testbed.testing import BUILD, PoolTest, main, require_qemu

MiB = 1 << 20
SEED = '0x5eed'


class RackExtentsTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        return RackPool(BUILD, directory, 'uneven')

    def test_two_extents_are_one_range(self):
        guest = self.pool.hosts['host-a']
        self.pool.allocate('two', '768MiB', 'host-a', '--max-extents', '2', '--open-to', 'everybody')
        pieces = extents(self.pool, 'two')
        self.assertEqual(sorted(pieces), [('cmm-0', 0, 512 * MiB), ('cmm-1', 0, 256 * MiB)])
        attachment = self.pool.attachment('two', 'host-a')
        self.assertEqual(attachment['state'], 'ONLINE')
        daxes = {d['chardev']: int(d['size']) for d in json.loads(guest.output('daxctl list'))}
        self.assertEqual([daxes[s['dax_device']] for s in attachment['segments']], [length for _, _, length in pieces])

        guest.run(['pool-write', '--region', 'two', '--seed', SEED], check=True, timeout=300)
        guest.run(['pool-verify', '--region', 'two', '--seed', SEED], user='app', check=True, timeout=300)
        files = [(self.pool.rack.device_path(device), offset, length) for device, offset, length in pieces]
        check_pattern(self, files, SEED)

        self.pool.release('two')
        self.assertEqual(json.loads(guest.output('cxl list -M')), [])
        for file, _, _ in files:
            check_zero(self, file)
        self.assert_pool_empty()


if __name__ == '__main__':
    main()
