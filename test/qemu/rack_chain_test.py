"""The whole chain on two QEMU machines, and what the machines themselves say of it."""

import json

from testbed.demo import Demo
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.rack import RackPool
from testbed.testing import BUILD, PoolTest, main, require_qemu


class RackChainTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        return RackPool(BUILD, directory)

    def test_1_the_demo_holds(self):
        Demo(self.pool, emulated=False).hold(self)
        self.assert_pool_empty()

    def test_2_cxl_and_daxctl_agree_with_the_agent(self):
        self.pool.allocate('agree-dax', '256MiB', 'host-a')
        self.pool.allocate('agree-ram', '256MiB', 'host-a', '--mode', 'system-ram')
        guest = self.pool.hosts['host-a']
        asked = guest.run('cxlpool-agent --check-empty')
        self.assertEqual((asked.status, asked.out), (1, ''), asked.err)
        self.assertIn(f'this host has {512 << 20} bytes of the pool', asked.err)
        memdevs = {m['memdev']: m for m in json.loads(guest.output('cxl list -M'))}
        regions = {r['region']: r for r in json.loads(guest.output('cxl list -R'))}
        daxes = {d['chardev']: d for d in json.loads(guest.output('daxctl list'))}
        for name, mode in (('agree-dax', 'devdax'), ('agree-ram', 'system-ram')):
            segment = self.pool.attachment(name, 'host-a')['segments'][0]
            self.assertEqual(int(memdevs[segment['memdev']]['serial']), int(segment['serial']))
            region = regions[segment['host_region']]
            self.assertEqual(int(region['resource']), int(segment['hpa_bytes']))
            self.assertEqual((int(region['size']), region['decode_state']), (256 << 20, 'commit'))
            dax = daxes[segment['dax_device']]
            self.assertEqual((dax['mode'], int(dax['size'])), (mode, 256 << 20))
            if mode == 'system-ram':
                self.assertEqual(int(dax['target_node']), int(segment['numa_node']))
                self.assertEqual(int(dax['online_memblocks']), segment['online_blocks'])
                self.assertEqual(int(dax['total_memblocks']), segment['total_blocks'])
                self.assertTrue(dax['movable'])
            self.pool.release(name)
        self.assertEqual(json.loads(guest.output('cxl list -M')), [])
        self.assertIn('no memory of the pool', guest.output('cxlpool-agent --check-empty'))
        self.assert_pool_empty()

    def test_3_twelve_regions_come_and_go_in_no_order(self):
        for i in range(12):
            self.pool.allocate(f'n{i}', '256MiB', 'host-a')
        for i in (0, 5, 3, 8):
            self.pool.release(f'n{i}')
        for i in (20, 21, 22, 23):
            self.pool.allocate(f'n{i}', '256MiB', 'host-a')
        for i in (1, 20, 2, 11, 4, 22, 6, 7, 23, 9, 21, 10):
            self.pool.release(f'n{i}')
        self.assert_pool_empty()

    def test_4_an_unplug_behind_the_managers_back_is_repaired(self):
        self.pool.allocate('lost', '256MiB', 'host-a')
        before = self.pool.attachment('lost', 'host-a')['segments'][0]
        guest = self.pool.hosts['host-a']
        [ld] = [p['name'] for p in guest.qmp('qom-list', {'path': '/machine/peripheral'})
                if p['type'] == 'child<cxl-type3>']
        guest.qmp('device_del', {'id': ld})
        guest.output(f'slot-power {before["slot"]} off')
        def repaired():
            attachment = self.pool.attachment('lost', 'host-a')
            return (attachment and attachment['state'] == 'ONLINE'
                    and attachment['segments'][0]['serial'] != before['serial'])
        wait_until(repaired, 60, 'the LD is bound again')
        self.assertIn('lost', self.pool.manager.log.read_text())
        guest.run(['pool-write', '--region', 'lost', '--seed', '1'], check=True)
        self.pool.release('lost')
        self.assert_pool_empty()

    def test_5_a_refusal_says_why_and_changes_nothing(self):
        before = self.pool.cli('capacity')
        for arguments, status, said in (
                (['x1', '--size', '8GiB', '--host', 'host-a'], 5, 'POOL_FULL'),
                (['x1', '--size', '256MiB', '--host', 'host-z'], 3, 'host-z'),
                (['Bad_Name', '--size', '256MiB', '--host', 'host-a'], 2, 'Bad_Name')):
            with self.subTest(said), self.assertRaises(CliError) as refused:
                self.pool.cli('region', 'allocate', *arguments)
            self.assertEqual(refused.exception.status, status, refused.exception.stderr)
            self.assertIn(said, refused.exception.stderr)
            self.assertIn('remedy', refused.exception.stderr)
        self.assertEqual(self.pool.cli('capacity'), before)


if __name__ == '__main__':
    main()
