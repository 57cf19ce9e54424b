"""Interleaving on a QEMU machine: one host region striped over several memdevs of a host bridge, and which bytes of it
are in which pool file. First rung by rung, then as a Region that the manager placed."""

import array
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from cxlrack.rack import Rack
from testbed.pool_bytes import check_pattern, check_zero, extents
from testbed.rack import RackPool
from testbed.testing import BUILD, EVERY_CASE, REPOSITORY, PoolTest, main, require_qemu

MiB = 1 << 20
SEED = 0x57121
# How much is written to a Region of 512 MiB: QEMU does 10 MB/s where memory is striped.
WRITTEN = (512 if EVERY_CASE else 32) * MiB


class InterleaveRungsTest(unittest.TestCase):
    """Without a manager: cxlpool-rungs takes the agent's rungs by hand."""

    STORED = 16 * MiB

    @classmethod
    def setUpClass(cls):
        require_qemu()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-interleave-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        store = cls.directory / 'dax-pattern'
        subprocess.run(['c++', '-std=c++20', '-O2', '-static', '-o', store, REPOSITORY / 'qemu-cxl/guest/dax_pattern.cc'],
                       check=True)
        image = cls.directory / 'image'
        subprocess.run([REPOSITORY / 'qemu-cxl/mkimage', '--out', image, '--bin',
                        f'{BUILD / "bin/cxlpool-rungs"}=/usr/local/bin/cxlpool-rungs', '--bin',
                        f'{store}=/usr/local/bin/dax-pattern'], check=True, stdout=subprocess.DEVNULL)
        topology = {'device': [{'name': f'cmm-{i}', 'size': '256 MiB'} for i in range(4)],
                    'host': [{'name': 'host-a', 'bridges': 2, 'ports': 4}]}
        cls.rack = Rack.up(topology, cls.directory / 'rack', image)
        cls.addClassCleanup(cls.rack.down)
        cls.host = cls.rack.host('host-a')
        cls.host.run('cxlpool-rungs prepare', check=True)
        cls.serials = [0x700 + i for i in range(4)]
        for i, serial in enumerate(cls.serials):
            cls.host.qmp('object-add', {'qom-type': 'memory-backend-file', 'id': f'b{i}', 'share': True,
                                        'mem-path': str(cls.rack.device_path(f'cmm-{i}')), 'size': 256 * MiB})
            cls.host.qmp('device_add', {'driver': 'cxl-type3', 'bus': f'p1_{i}', 'id': f'ld{i}', 'sn': serial,
                                        'volatile-memdev': f'b{i}'})
            cls.host.run(f'cxlpool-rungs power-on {cls.host.spec.slot(1, i)} {serial:#x}', check=True)
        cls.bridge = cls.host.host_bridge(cls.host.spec.slot(1, 0))

    def expected(self, target, ways, granularity):
        """What dax-pattern leaves in one target: its stripes of the words SEED ^ i."""
        words = array.array('Q', (SEED ^ i for i in range(self.STORED // 8)))
        data = words.tobytes()
        return b''.join(data[at:at + granularity] for at in range(target * granularity, len(data), ways * granularity))

    def stripe(self, targets, granularity):
        serials = [f'{self.serials[t]:#x}' for t in targets]
        size = len(targets) * 256 * MiB
        self.host.run(f'cxlpool-rungs create {self.bridge} {size}/{granularity} {" ".join(serials)}', check=True)
        seen = self.host.output('cxlpool-rungs observe')
        self.assertRegex(seen, rf'serials={",".join(serials)} committed=1 .* size={size} granularity={granularity} ')
        dax = seen.split(' dax=')[1].split()[0]
        self.host.run(f'cxlpool-rungs bind {serials[0]} device_dax', check=True)
        self.host.run(f'dax-pattern store /dev/{dax} {self.STORED} {SEED}', check=True, timeout=120)
        self.host.run(f'dax-pattern load /dev/{dax} {self.STORED} {SEED}', check=True, timeout=120)
        for position, target in enumerate(targets):
            file = self.rack.device_path(f'cmm-{target}')
            expected = self.expected(position, len(targets), granularity)
            with open(file, 'r+b') as f:
                self.assertTrue(f.read(len(expected)) == expected, f'other bytes in {file}')
                self.assertEqual(f.read(MiB).count(0), MiB)  # And none behind them.
                f.seek(0)
                f.write(bytes(len(expected)))
        self.host.run(f'cxlpool-rungs unbind {serials[0]}', check=True)
        self.host.run(f'cxlpool-rungs destroy {serials[0]}', check=True)
        self.assertNotIn('region ', self.host.output('cxlpool-rungs observe'))

    def test_two_ways_every_256_bytes(self):
        self.stripe([0, 1], 256)

    def test_two_ways_every_16_kib(self):
        self.stripe([2, 3], 16384)

    def test_the_order_of_the_targets_is_the_order_of_the_stripes(self):
        self.stripe([3, 0], 4096)

    def test_four_ways(self):
        self.stripe([0, 1, 2, 3], 512)

    def test_a_refused_shape_leaves_nothing(self):
        done = self.host.run(f'cxlpool-rungs create {self.bridge} {512 * MiB}/300 0x700 0x701')
        self.assertEqual(done.status, 1)
        self.assertIn('granularity', done.err)
        self.assertNotIn('region ', self.host.output('cxlpool-rungs observe'))


class InterleavedRegionTest(PoolTest):
    """The whole chain: placed over two devices, striped by the host, used by an application."""

    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        return RackPool(BUILD, directory, 'uneven')

    def test_two_ways_every_256_bytes(self):
        self.pool.allocate('striped', '512MiB', 'host-a', '--policy', 'bandwidth', '--interleave-ways', '2',
                           '--interleave-granularity', '256', '--open-to', 'everybody')
        region = self.pool.regions()['striped']
        self.assertEqual((region['interleave_ways'], region['interleave_granularity_bytes']), (2, 256))
        pieces = extents(self.pool, 'striped')
        self.assertEqual(sorted((device, length) for device, _, length in pieces),
                         [('cmm-0', 256 * MiB), ('cmm-1', 256 * MiB)])
        attachment = self.pool.attachment('striped', 'host-a')
        self.assertEqual(attachment['state'], 'ONLINE')
        guest = self.pool.hosts['host-a']
        words = ['--region', 'striped', '--seed', str(SEED), '--bytes', str(WRITTEN)]
        guest.run(['pool-write', *words], check=True, timeout=400)
        guest.run(['pool-verify', *words], user='app', check=True, timeout=400)
        files = [(self.pool.rack.device_path(device), offset, WRITTEN // 2) for device, offset, _ in pieces]
        check_pattern(self, files, SEED, ways=2, granularity=256)

        self.pool.release('striped')
        for file, _, _ in files:
            check_zero(self, file)
        self.assert_pool_empty()


if __name__ == '__main__':
    main()
