"""A host with one host bridge: the decoder stack refuses what cannot work, and names who blocks."""

from testbed.pool import CliError
from testbed.rack import RackPool
from testbed.testing import BUILD, PoolTest, main, require_qemu


class RackOneBridgeTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        return RackPool(BUILD, directory, 'one-bridge')

    def test_the_refusal_names_the_region_that_blocks(self):
        [host] = self.pool.host_names()
        self.pool.allocate('low', '256MiB', host)
        self.pool.allocate('high', '256MiB', host)
        self.pool.release('low')
        with self.assertRaises(CliError) as refused:
            self.pool.allocate('new', '256MiB', host)
        self.assertEqual(refused.exception.status, 5)
        self.assertIn('BRIDGE_BLOCKED', refused.exception.stderr)
        self.assertIn('high', refused.exception.stderr)
        self.assertEqual(list(self.pool.regions()), ['high'])
        finding = self.wait_said(f'host/{host}', 'BRIDGE_BLOCKED')
        self.assertEqual(finding['waits_for'], ['regions/high'])
        self.run_said(finding['commands'][0])
        self.wait_ended(f'host/{host}', 'BRIDGE_BLOCKED', 60)
        self.pool.release('high')
        self.pool.allocate('new', '256MiB', host)
        self.pool.release('new')
        self.assert_pool_empty()

    def test_a_full_stack_is_refused_before_it_is_tried(self):
        [host] = self.pool.host_names()
        for i in range(4):
            self.pool.allocate(f's{i}', '256MiB', host)
        with self.assertRaises(CliError) as refused:
            self.pool.allocate('fifth', '256MiB', host)
        self.assertEqual(refused.exception.status, 5)
        self.assertIn('BRIDGE_FULL', refused.exception.stderr)
        for i in reversed(range(4)):
            self.pool.release(f's{i}')
        self.assert_pool_empty()


if __name__ == '__main__':
    main()
