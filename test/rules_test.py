"""The alerts of packaging/prometheus, of figures that no pool of a test has: promtool says which would fire. That each fires at
its own fault is alerts_test's."""

import tempfile
import unittest

from testbed.metrics import fetch_promtool, fired_by
from testbed.testing import main

GIB = 1 << 30
STRANDED = ('unreachable', 'draining', 'ld_limit', 'out_of_reach', 'bad')


def pool_of(capacity, free, **stranded):
    """The figures of a pool, all in GiB; `stranded`: why so much of it can be given to nobody."""
    return {'cxlpool_pool_capacity_bytes': capacity * GIB, 'cxlpool_pool_bytes{state="free"}': free * GIB} | {
        f'cxlpool_pool_stranded_bytes{{why="{why}"}}': stranded.get(why, 0) * GIB for why in STRANDED}


class RulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.promtool = fetch_promtool()

    def fired(self, series, at=('45m',)):
        """Of {name: values}, as promtool writes them; a figure is that for an hour."""
        labelled = [(f'{name[:-1]}, {self.WHO}}}' if name.endswith('}') else f'{name}{{{self.WHO}}}',
                     f'{value}x60' if isinstance(value, int) else value) for name, value in series.items()]
        return self.fired_of(labelled, at)

    def fired_of(self, series, at, every='1m'):
        with tempfile.TemporaryDirectory(prefix='cxlpool-rules-') as directory:
            return fired_by(self.promtool, directory, series, at, every)

    WHO = 'instance="fm:1", job="cxlpool-fm"'

    def test_free_memory_is_in_pieces_however_many_devices_there_are(self):
        for devices in (1, 10, 50, 200):
            for largest, fires in ((32, False), (4, False), (3, True)):
                with self.subTest(devices=devices, largest=largest):
                    # Of 64 GiB each, half of them free.
                    pool = {'cxlpool_pool_most_free_device_bytes': 32 * GIB, 'cxlpool_pool_largest_free_extent_bytes': largest * GIB}
                    pool |= pool_of(devices * 64, devices * 32)
                    self.assertEqual(self.fired(pool), {'CxlpoolPoolFragmented'} if fires else set())

    def test_what_can_be_given_to_nobody_is_not_free(self):
        in_one_piece = {'cxlpool_pool_most_free_device_bytes': 32 * GIB, 'cxlpool_pool_largest_free_extent_bytes': 32 * GIB}
        self.assertEqual(self.fired(pool_of(64, 32) | in_one_piece), set())
        for why in ('unreachable', 'draining', 'ld_limit', 'out_of_reach'):
            with self.subTest(why=why):
                self.assertEqual(self.fired(pool_of(64, 32, **{why: 16}) | in_one_piece), set())
                self.assertEqual(self.fired(pool_of(64, 32, **{why: 30}) | in_one_piece), {'CxlpoolPoolFull'})
        self.assertEqual(self.fired(pool_of(64, 32, unreachable=10, draining=10, ld_limit=10) | in_one_piece), {'CxlpoolPoolFull'})
        # What a broken device has is quarantined, and is not counted as free in the first place.
        self.assertEqual(self.fired(pool_of(64, 32, bad=32) | in_one_piece), set())

    def test_a_pool_where_nothing_may_be_placed_is_full_and_not_in_pieces(self):
        pool = pool_of(64, 32, unreachable=32)
        pool |= {'cxlpool_pool_most_free_device_bytes': 0, 'cxlpool_pool_largest_free_extent_bytes': 0}
        self.assertEqual(self.fired(pool), {'CxlpoolPoolFull'})
        # Small pieces on the only device that is left: that there is little of it counts, not how it lies.
        pool = pool_of(64, 32, unreachable=30)
        pool |= {'cxlpool_pool_most_free_device_bytes': 2 * GIB, 'cxlpool_pool_largest_free_extent_bytes': GIB // 8}
        self.assertEqual(self.fired(pool), {'CxlpoolPoolFull'})

    def test_a_device_that_the_fabric_does_not_show(self):
        def states(device, **values):
            return {f'cxlpool_device_state{{device="{device}", state="{state}"}}': value for state, value in values.items()}
        well = states('cmm-0', in_service=1, draining=0, failed=0, unreachable=0)
        self.assertEqual(self.fired(well), set())
        self.assertEqual(self.fired(well | states('cmm-1', in_service=0, draining=0, failed=0, unreachable=1)), {'CxlpoolDeviceUnreachable'})
        self.assertEqual(self.fired(well | states('cmm-1', in_service=0, unreachable='0x20 1x3 0x40')), set(), 'for a moment')
        self.assertEqual(self.fired(well | states('cmm-1', in_service=0, draining=0, failed=1, unreachable=0)), set())

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

    def replicas(self, *managers, at=('45m',), replicated=1, pool=None):
        """Of managers as (does it lead, how long ago it saw the store); None: it is down. `pool`: their label of that name."""
        return self.fired_of(self.series_of(managers, replicated, pool), at)

    @staticmethod
    def series_of(managers, replicated=1, pool=None):
        series = []
        for number, manager in enumerate(managers):
            label = f', pool="{pool}"' if pool else ''
            who = f'{{instance="{pool}-{number}:1", job="cxlpool-fm"{label}}}'
            values = {'up': 1, 'cxlpool_fm_leader': manager[0], 'cxlpool_fm_standby_age_seconds': manager[1],
                      'cxlpool_fm_replicated': replicated} if manager else {'up': 0}
            series += [(name + who, f'{value}x60') for name, value in values.items()]
        return series

    def test_managers_that_stand_in_for_one_another(self):
        leads, stands_by = (1, 0), (0, 0.2)
        self.assertEqual(self.replicas(leads, stands_by), set())
        self.assertEqual(self.replicas(stands_by, leads, stands_by), set())
        self.assertEqual(self.replicas(stands_by, stands_by), {'CxlpoolNoLeader'})
        self.assertEqual(self.replicas(leads, (0, 300)), {'CxlpoolNoStandby'})
        self.assertEqual(self.replicas(leads), {'CxlpoolNoStandby'})
        # Whose records are on its own disk has none to expect.
        self.assertEqual(self.replicas(leads, replicated=0), set())

    def test_a_manager_that_is_down(self):
        leads, stands_by = (1, 0), (0, 0.2)
        # The pool has no other one.
        self.assertEqual(self.replicas(None), {'CxlpoolManagerDown'})
        self.assertEqual(self.replicas(None, None), {'CxlpoolManagerDown'})
        self.assertEqual(self.replicas(stands_by, None), {'CxlpoolManagerDown', 'CxlpoolNoLeader'})
        # Another one leads: what is lost is a standby, the only one or one of two.
        self.assertEqual(self.replicas(leads, None), {'CxlpoolNoStandby'})
        self.assertEqual(self.replicas(leads, None, at=('4m',)), set())
        self.assertEqual(self.replicas(leads, stands_by, None), {'CxlpoolStandbyDown'})
        self.assertEqual(self.replicas(leads, (0, 300), None), {'CxlpoolNoStandby'})
        self.assertEqual(self.replicas(leads, None, None), {'CxlpoolNoStandby'})

    def test_a_manager_that_is_down_among_other_pools(self):
        leads, stands_by = (1, 0), (0, 0.2)
        # A manager that is alone is no stand-in for that of another pool.
        alone = self.series_of([leads], replicated=0)
        self.assertEqual(self.fired_of(alone + [('up{instance="other:1", job="cxlpool-fm"}', '0x60')], ('45m',)), {'CxlpoolManagerDown'})
        well = self.series_of([leads, stands_by], pool='a')
        self.assertEqual(self.fired_of(well + self.series_of([leads, stands_by], pool='b'), ('45m',)), set())
        self.assertEqual(self.fired_of(well + self.series_of([None, None], pool='b'), ('45m',)), {'CxlpoolManagerDown'})
        self.assertEqual(self.fired_of(well + self.series_of([stands_by, stands_by], pool='b'), ('45m',)), {'CxlpoolNoLeader'})

    def test_a_member_of_etcd_that_is_down(self):
        def members(number, a, b):
            who = f'instance="None-{number}:1", job="cxlpool-fm"'
            return [(f'cxlpool_etcd_member_up{{endpoint="{name}:2379", {who}}}', f'{values}x60') for name, values in (('a', a), ('b', b))]
        pool = self.series_of([(1, 0), (0, 0.2)])
        down = {'CxlpoolEtcdMemberDown'}
        self.assertEqual(self.fired_of(pool + members(0, 1, 1) + members(1, 1, 1), ('45m',)), set())
        self.assertEqual(self.fired_of(pool + members(0, 1, 0) + members(1, 1, 0), ('45m',)), down)
        self.assertEqual(self.fired_of(pool + members(0, 1, 0) + members(1, 1, 0), ('1m',)), set(), 'etcd finds a new leader')
        self.assertEqual(self.fired_of(pool + members(0, 0, 1) + members(1, 1, 1), ('45m',)), set(), 'the other manager reaches it')
        # A standby that has not asked yet says nothing of them.
        self.assertEqual(self.fired_of(pool + members(0, 1, 0), ('45m',)), down)
        # Nobody leads: that is what has to be seen.
        nobody = self.series_of([(0, 0.2), (0, 0.2)])
        self.assertEqual(self.fired_of(nobody + members(0, 0, 0) + members(1, 0, 0), ('45m',)), {'CxlpoolNoLeader'})

    def test_managers_that_take_over_again_and_again(self):
        def epochs(*managers):
            pool = self.series_of([(1, 0), (0, 0.2)])
            return pool + [(f'cxlpool_fm_epoch{{instance="None-{number}:1", job="cxlpool-fm"}}', values) for number, values in enumerate(managers)]
        often = '1000x9 2000x9 3000x9 4000x30'
        self.assertEqual(self.fired_of(epochs('1000x60', '1000x60'), ('45m',)), set())
        self.assertEqual(self.fired_of(epochs('1000x9 2000x50', '1000x9 2000x50'), ('45m',)), set(), 'once, and both see it')
        self.assertEqual(self.fired_of(epochs('1000x9 2000x9 3000x40', '_x20 3000x40'), ('45m',)), set(), 'twice')
        etcd_was_away = '1000x9 0x3 2000x9 0x3 3000x36'
        self.assertEqual(self.fired_of(epochs(etcd_was_away, etcd_was_away), ('45m',)), set(), 'twice, by managers that started again')
        self.assertEqual(self.fired_of(epochs(often, often), ('25m',)), set(), 'not yet')
        self.assertEqual(self.fired_of(epochs(often, often), ('45m',)), {'CxlpoolTakeoversRepeat'})

    def test_records_that_take_nearly_all_they_may(self):
        def store(size):
            return {'cxlpool_store_size_bytes': size * GIB, 'cxlpool_store_limit_bytes': 10 * GIB}
        self.assertEqual(self.fired(store(7)), set())
        self.assertEqual(self.fired(store(9)), {'CxlpoolStoreNearlyFull'})
        self.assertEqual(self.fired(store(9), at=('5m',)), set())
        self.assertEqual(self.fired({'cxlpool_store_size_bytes': 9 * GIB}), set(), 'a database has what its disk has')

    def backups(self, *managers, at, replicated=1):
        """Of managers that have run for weeks, as values of when each took its last backup, in steps of ten minutes."""
        series = []
        for number, values in enumerate(managers):
            who = f'{{instance="fm-{number}:1", job="cxlpool-fm"}}'
            series += [('process_start_time_seconds' + who, '-2000000x300'), ('cxlpool_fm_replicated' + who, f'{replicated}x300'),
                       ('cxlpool_backup_last_success_timestamp_seconds' + who, values)]
        return self.fired_of(series, at, every='10m')

    # Promtool's time begins at 0, and "0: none" is long ago.
    NEVER = -1700000000

    def test_backups(self):
        old = {'CxlpoolBackupOld'}
        self.assertEqual(self.backups(f'{self.NEVER}x300', at=('2h',)), old)
        self.assertEqual(self.backups('-3600x300', at=('12h', '23h')), set())
        self.assertEqual(self.backups('-3600x300', at=('25h',)), old)
        # Of two pools, each with a manager of its own: the backup of one is not the other's.
        for replicated, fires in ((0, old), (1, set())):
            self.assertEqual(self.backups('0x300', f'{self.NEVER}x300', at=('12h',), replicated=replicated), fires)

    def test_a_takeover_forgets_no_backup(self):
        """The first manager takes a backup at nine hours and is gone at ten; the second one leads from then on, and knows of none."""
        first = '-50000x53 32400x5 stale'
        second = f'_x60 {self.NEVER}x240'
        self.assertEqual(self.backups(first, second, at=('8h', '11h', '12h', '20h', '33h')), set())
        self.assertEqual(self.backups(first, second, at=('35h',)), {'CxlpoolBackupOld'}, 'nobody has taken one since')
        self.assertEqual(self.backups(first, f'_x60 {self.NEVER}x60 72000x180', at=('33h', '35h', '43h')), set(), 'the second one took one')
        # And back, to a manager that was started anew, or was only a standby meanwhile.
        self.assertEqual(self.backups(f'-50000x53 32400x5 stale _x20 {self.NEVER}x200', f'_x60 {self.NEVER}x20 stale', at=('12h', '20h', '33h')),
                         set())

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
