"""The alerts of packaging/prometheus, of figures that no pool of a test has: promtool says which would fire. That each fires at
its own fault is alerts_test's."""

import tempfile
import unittest

from testbed.metrics import fetch_promtool, fired_by
from testbed.testing import main

GIB = 1 << 30


class RulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.promtool = fetch_promtool()

    def fired(self, series, at=('45m',)):
        """Of {name: values}, as promtool writes them; a figure is that for an hour."""
        labelled = [(f'{name[:-1]}, {self.WHO}}}' if name.endswith('}') else f'{name}{{{self.WHO}}}',
                     f'{value}x60' if isinstance(value, int) else value) for name, value in series.items()]
        with tempfile.TemporaryDirectory(prefix='cxlpool-rules-') as directory:
            return fired_by(self.promtool, directory, labelled, at)

    WHO = 'instance="fm:1", job="cxlpool-fm"'

    def test_free_memory_is_in_pieces_however_many_devices_there_are(self):
        for devices in (1, 10, 50, 200):
            for largest, fires in ((32, False), (4, False), (3, True)):
                with self.subTest(devices=devices, largest=largest):
                    # Of 64 GiB each, half of them free.
                    pool = {'cxlpool_pool_capacity_bytes': devices * 64 * GIB,
                            'cxlpool_pool_bytes{state="free"}': devices * 32 * GIB,
                            'cxlpool_pool_most_free_device_bytes': 32 * GIB,
                            'cxlpool_pool_largest_free_extent_bytes': largest * GIB}
                    self.assertEqual(self.fired(pool), {'CxlpoolPoolFragmented'} if fires else set())

    def test_a_pool_where_nothing_may_be_placed_is_not_in_pieces(self):
        pool = {'cxlpool_pool_capacity_bytes': 64 * GIB, 'cxlpool_pool_bytes{state="free"}': 32 * GIB,
                'cxlpool_pool_most_free_device_bytes': 0, 'cxlpool_pool_largest_free_extent_bytes': 0}
        self.assertEqual(self.fired(pool), set())

    def test_a_manager_that_starts_again_and_again(self):
        # As with a disk that fails each commit: what it counted is gone with it, and nobody has scraped it.
        starts = 'process_start_time_seconds'
        healthy = {'cxlpool_store_commit_failures_total': 0}
        self.assertEqual(self.fired(healthy | {starts: '1x20 1200x5 1500x5 1800x30'}, at=('30m', '40m')), {'CxlpoolStoreFailing'})
        self.assertEqual(self.fired(healthy | {starts: '1x20 1200x5 1500x30'}, at=('30m', '40m')), set(), 'an update, and one more')
        self.assertEqual(self.fired({starts: '1x5 2x5 3x5 4x5 5x40', 'up': '1x4 0 1x4 0 1x60'}, at=('20m',)),
                         {'CxlpoolStoreFailing'})
        # Agents are not managers.
        self.WHO = 'instance="host-a:1", job="cxlpool-agent"'
        self.assertEqual(self.fired({starts: '1x5 2x5 3x5 4x5 5x40'}, at=('20m',)), set())

    def replicas(self, *managers, at=('45m',)):
        """Of managers as (does it lead, how long ago it saw the store); None: it is down."""
        series = []
        for number, manager in enumerate(managers):
            who = f'{{instance="fm-{number}:1", job="cxlpool-fm"}}'
            values = {'up': 1, 'cxlpool_fm_leader': manager[0], 'cxlpool_fm_standby_age_seconds': manager[1],
                      'cxlpool_fm_replicated': 1} if manager else {'up': 0}
            series += [(name + who, f'{value}x60') for name, value in values.items()]
        with tempfile.TemporaryDirectory(prefix='cxlpool-rules-') as directory:
            return fired_by(self.promtool, directory, series, at)

    def test_managers_that_stand_in_for_one_another(self):
        leads, stands_by = (1, 0), (0, 0.2)
        self.assertEqual(self.replicas(leads, stands_by), set())
        self.assertEqual(self.replicas(stands_by, leads, stands_by), set())
        self.assertEqual(self.replicas(stands_by, stands_by), {'CxlpoolNoLeader'})
        self.assertEqual(self.replicas(leads, (0, 300)), {'CxlpoolNoStandby'})
        self.assertEqual(self.replicas(leads), {'CxlpoolNoStandby'})
        self.assertEqual(self.replicas(leads, None), {'CxlpoolNoStandby', 'CxlpoolManagerDown'})
        self.assertEqual(self.replicas(leads, None, at=('4m',)), {'CxlpoolManagerDown'})
        # Whose records are on its own disk has none to expect.
        self.assertEqual(self.fired({'cxlpool_fm_leader': 1, 'cxlpool_fm_replicated': 0, 'cxlpool_fm_standby_age_seconds': 0}), set())

    def test_a_commit_that_failed(self):
        self.assertEqual(self.fired({'cxlpool_store_commit_failures_total': '0x20 1x40'}, at=('22m',)), {'CxlpoolStoreFailing'})
        self.assertEqual(self.fired({'cxlpool_store_commit_failures_total': '0x20 1x40'}, at=('30m',)), set())

    def test_what_was_counted_before_the_first_scrape(self):
        # An agent tells at once, when its manager is back, that bytes are lost; and the manager before had counted one, too.
        lost = 'cxlpool_media_errors_total{device="cmm-0", bytes_lost="true"}'
        start = 'process_start_time_seconds'
        for before in ('0x20', '1x20', '_x20'):
            with self.subTest(before=before):
                restart = {lost: f'{before} 1x40', start: '-9000x20 1230x40'}
                self.assertEqual(self.fired(restart, at=('22m', '30m')), {'CxlpoolMediaErrors'})
                self.assertEqual(self.fired(restart, at=('50m',)), set())
        self.assertEqual(self.fired({lost: '1x60', start: '-9000x60'}), set(), 'long ago')
        failed = {'cxlpool_store_commit_failures_total': '_x20 1x40', start: '_x20 1230x40'}
        self.assertEqual(self.fired(failed, at=('22m',)), {'CxlpoolStoreFailing'})
        self.assertEqual(self.fired(failed, at=('30m',)), set())


if __name__ == '__main__':
    main()
