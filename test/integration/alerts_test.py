"""Each alert is set off by its own fault and by no other: a real pool has the fault, its daemons are scraped before and after,
and promtool says which alerts Prometheus would fire. Real processes, no CXL."""

import os
import signal
import subprocess
import unittest
from datetime import timedelta

from testbed.certificates import reissue
from testbed.emulated import SharedPool, fill_small_disk, on_a_small_disk
from testbed.metrics import MeteredPool, fetch_promtool, firing, scrape
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.replicated import ReplicatedPool, etcd_program
from testbed.testing import BUILD, PoolTest, main

WITHIN_S = 20


class FaultTest(PoolTest):
    """A pool whose daemons are scraped before a fault; what a fault has set off is over at the end of each test."""
    HOSTS = {'host-a': [[1, 2, 3, 4]], 'host-b': [[1, 2], [3, 4]]}

    @classmethod
    def make_pool(cls, directory):
        cls.promtool = fetch_promtool()
        return MeteredPool(BUILD, directory, hosts=cls.HOSTS, devices={'cmm-0': '1GiB', 'cmm-1': '1GiB'}, granule='32MiB')

    def setUp(self):
        super().setUp()
        self.before = self.scrape()
        self.addCleanup(self.pool.release_all)

    def scrape(self):
        return {'cxlpool-fm': self.pool.scrape(), 'cxlpool-agent': self.pool.scrape('host-a')}

    def fired(self, after=None, **options):
        return firing(self.promtool, self.directory, self.before, after or self.scrape(), **options)

    def await_sum(self, name, at_least, **labels):
        wait_until(lambda: self.pool.scrape().sum(name, **labels) >= at_least, WITHIN_S, f'{name} {labels} is {at_least}')

    def assert_over(self):
        """Whatever was set off ends with its fault."""
        self.pool.release_all()
        self.pool.wait_hosts_online()
        # Hosts may report a moment longer what has ended.
        wait_until(lambda: not firing(self.promtool, self.directory, now := self.scrape(), now), WITHIN_S, 'no alert fires any more')

    def hold(self, region):
        holder = self.pool.hosts['host-a'].hold(region)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        return holder


class AlertsTest(FaultTest):
    def test_a_pool_that_works(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        self.pool.cli('region', 'resize', 'kv', '512MiB', '--wait')
        self.assertEqual(self.fired(), set())
        self.assert_over()

    def test_the_manager_is_down(self):
        self.pool.manager.kill()
        self.assertEqual(self.fired(), {'CxlpoolManagerDown'})
        self.pool.start_manager()
        self.assert_over()

    def test_the_pool_is_full(self):
        self.pool.allocate('kv', '1984MiB', None, '--max-extents', '2')
        self.assertEqual(self.fired(), {'CxlpoolPoolFull'})
        self.assert_over()

    def test_what_is_free_is_where_nothing_may_be_placed(self):
        for device in ('cmm-0', 'cmm-1'):
            self.addCleanup(self.pool.cli, 'device', 'add', device)
            self.pool.cli('device', 'drain', device)
        self.assertEqual(self.fired(), {'CxlpoolPoolFull'})
        for device in ('cmm-0', 'cmm-1'):
            self.pool.cli('device', 'add', device)
        self.assert_over()

    def test_what_is_free_is_in_small_pieces(self):
        for i in range(64):
            self.pool.allocate(f'r{i:02}', '32MiB')
        extents = {name: region['extents'][0] for name, region in self.pool.regions().items()}
        for name, extent in extents.items():
            if int(extent.get('dpa_bytes', 0)) // (32 << 20) % 2:
                self.pool.release(name)
        self.assertEqual(self.fired(), {'CxlpoolPoolFragmented'})
        # Sixteen of these pieces, and not one byte more, are what a Region can have.
        self.assertEqual(self.pool.scrape().sum('cxlpool_pool_largest_grant_bytes'), 16 * 32 << 20)
        self.pool.cli('region', 'allocate', 'all', '--size', '512MiB', '--max-extents', '16', '--dry-run')
        with self.assertRaisesRegex(CliError, 'POOL_FRAGMENTED'):
            self.pool.cli('region', 'allocate', 'all', '--size', '544MiB', '--max-extents', '16', '--dry-run')
        self.assert_over()

    def test_a_host_does_not_let_go(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        holder = self.hold('kv')
        self.pool.release('kv', wait=False)
        self.await_sum('cxlpool_attachments', 1, state='RELEASE_BLOCKED')
        self.assertEqual(self.fired(at=('22m', '30m')), set(), 'not before a quarter of an hour')
        self.assertEqual(self.fired(), {'CxlpoolReleaseBlocked'})
        holder.kill()
        self.assert_over()

    def test_an_agent_is_away(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        agent = self.pool.hosts['host-a'].agent
        agent.kill()
        self.await_sum('cxlpool_hosts', 1, state='away')
        self.assertEqual(self.fired({'cxlpool-fm': self.pool.scrape(), 'cxlpool-agent': self.before['cxlpool-agent']}),
                         {'CxlpoolHostAway'})
        agent.start()
        self.assert_over()

    def test_a_host_is_not_proven_to_have_let_go(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        agent = self.pool.hosts['host-a'].agent
        agent.kill()
        agent.start({'CXLPOOL_CRASH_AT': 'before-PowerOff'})
        self.pool.wait_hosts_online()
        self.pool.release('kv', wait=False)
        self.await_sum('cxlpool_unbind_unproven', 1)
        fired = self.fired({'cxlpool-fm': self.pool.scrape(), 'cxlpool-agent': self.before['cxlpool-agent']})
        # The agent is away, too, and the bytes are its host's yet.
        self.assertEqual(fired, {'CxlpoolUnbindNotProven', 'CxlpoolHostAway'})
        agent.kill()
        agent.start()
        self.assert_over()

    def test_a_bridge_takes_nothing_new(self):
        for name in ('low', 'high'):
            self.pool.allocate(name, '64MiB', 'host-a')
        self.pool.cli('region', 'detach', 'low', '--host', 'host-a', '--wait')
        self.await_sum('cxlpool_host_bridge_blocked', 1, host='host-a')
        self.assertEqual(self.fired(), {'CxlpoolBridgeBlocked'})
        self.assert_over()

    def test_bytes_are_lost(self):
        self.pool.allocate('kv', '64MiB', 'host-a', '--device', 'cmm-1')
        segment = self.pool.attachment('kv', 'host-a')['segments'][0]
        poison = self.pool.directory / f'fabric/hosts/host-a/slot-{segment["slot"]}/poison'
        poison.write_text(f'{int(segment["serial"])} 0x10000 256\n')
        self.addCleanup(lambda: poison.exists() and poison.unlink())
        self.await_sum('cxlpool_media_errors_total', 1, device='cmm-1', bytes_lost='true')
        self.await_sum('cxlpool_pool_bytes', 1, state='quarantined')
        self.assertEqual(self.fired(), {'CxlpoolMediaErrors', 'CxlpoolQuarantined'})
        self.assertGreaterEqual(self.pool.scrape('host-a').sum('cxlpool_agent_host_events_total'), 1)
        self.pool.release('kv')
        bad = wait_until(lambda: [name for name in self.pool.regions() if name.startswith('bad-')], WITHIN_S, 'it is kept')[0]
        self.before = self.scrape()
        self.assertEqual(self.fired(), {'CxlpoolQuarantined'}, 'until an operator decides')
        self.pool.release(bad, '--force', '--reason', 'test', '--yes')
        self.assert_over()

    def test_a_host_is_unfit(self):
        fabric = self.pool.directory / 'fabric/hosts/host-b'
        away = fabric.with_name('not-there')
        agent = self.pool.hosts['host-b'].agent
        agent.kill()
        fabric.rename(away)
        agent.start()
        self.addCleanup(lambda: away.exists() and away.rename(fabric))
        self.await_sum('cxlpool_hosts', 1, state='unfit')
        self.assertEqual(self.pool.scrape('host-b').sum('cxlpool_agent_fit'), 0)
        self.assertEqual(self.fired(), {'CxlpoolHostUnfit'})
        away.rename(fabric)
        self.assert_over()

    def test_a_certificate_ends_soon(self):
        reissue(self.pool.pki, 'manager-fm', timedelta(days=-1), timedelta(days=13))
        self.pool.manager.process.send_signal(signal.SIGHUP)
        self.addCleanup(self.reload_long_lived)
        wait_until(lambda: self.fired() == {'CxlpoolCertificateExpires'}, WITHIN_S, 'the new certificate is seen')
        self.reload_long_lived()
        wait_until(lambda: self.fired() == set(), WITHIN_S, 'the better one is seen')

    def reload_long_lived(self):
        reissue(self.pool.pki, 'manager-fm', timedelta(days=-1), timedelta(days=300))
        self.pool.manager.process.send_signal(signal.SIGHUP)

    def test_nobody_takes_a_backup(self):
        self.pool.restart_manager()  # It knows of no backup.
        self.pool.wait_hosts_online()
        self.assertEqual(self.fired(at=('23h',), every='10m'), set())
        self.assertEqual(self.fired(at=('26h',), every='10m'), {'CxlpoolBackupOld'})
        backup = self.directory / 'backup.db'
        self.pool.run_cli('backup', backup)
        backup.unlink()
        taken = self.scrape()
        self.assertEqual(self.fired(taken, at=('23h',), every='10m'), set())
        self.assertEqual(self.fired(taken, at=('26h',), every='10m'), {'CxlpoolBackupOld'}, 'it is a day old by then')

    def test_somebody_altered_the_audit_trail(self):
        """Followed as docs/alerts.md says."""
        store = self.pool.directory / 'store/pool.db'
        self.pool.cli('tenant', 'set', 'ml', '--quota', '1GiB')
        self.pool.manager.stop()
        subprocess.run([BUILD / 'bin/forge-trail', store], check=True)
        self.pool.start_manager()
        self.pool.wait_hosts_online()
        self.assertEqual(self.fired(), {'CxlpoolAuditChainBroken'})
        with self.assertRaisesRegex(CliError, 'AUDIT_ALTERED'):
            self.pool.cli('audit', 'verify')
        self.pool.manager.stop()
        repaired = subprocess.run([BUILD / 'bin/cxlpool', 'fsck', store, '--repair'], capture_output=True, text=True)
        self.assertIn('row 1 was altered', repaired.stdout)
        self.pool.start_manager()
        self.pool.cli('audit', 'verify')
        self.assertEqual(self.pool.cli('event', 'list')['events'][0]['who'], 'fsck', 'the trail begins anew with the repair')
        self.assert_over()


class MeteredSharedPool(MeteredPool, SharedPool):
    pass


class DeviceTest(FaultTest):
    """A device goes, which only hosts show to the manager: of an emulated fabric no device does."""

    @classmethod
    def make_pool(cls, directory):
        cls.promtool = fetch_promtool()
        return MeteredSharedPool(BUILD, directory, hosts=('host-a',))

    def restart_agent(self, config):
        host = self.pool.hosts['host-a']
        host.agent.kill()
        host.config.write_text(config)
        host.agent.start()

    def test_a_device_is_gone(self):
        config = self.pool.hosts['host-a'].config.read_text()
        files = self.pool.files
        without = config.replace(str([str(path) for path in files.values()]), str([str(files['cmm-0'])]))
        self.assertNotEqual(without, config)
        self.addCleanup(self.restart_agent, config)
        self.restart_agent(without)
        wait_until(lambda: self.pool.scrape().sum('cxlpool_device_state', device='cmm-1', state='unreachable') == 1, 60, 'it is not shown')
        self.assertEqual(self.fired(at=('22m',)), set(), 'not before five minutes')
        self.assertEqual(self.fired(), {'CxlpoolDeviceUnreachable'})
        self.restart_agent(config)
        self.assert_over()


@unittest.skipUnless(etcd_program(), 'no etcd here: qemu-cxl/fetch --with etcd')
class ManagersTest(PoolTest):
    """Three managers, whose records are in three members of etcd, end one after the other; then etcd does."""

    @classmethod
    def make_pool(cls, directory):
        cls.promtool = fetch_promtool()
        return ReplicatedPool(BUILD, directory, managers=3, hosts={'host-a': [[1]]}, devices={'cmm-0': '256MiB'}, granule='32MiB')

    def scrape(self):
        return {f'cxlpool-fm#{number}': scrape(port) for number, port in enumerate(self.pool.metrics_ports)}

    def fired(self):
        return firing(self.promtool, self.directory, self.before, self.scrape())

    def wait_fired(self, *alerts):
        wait_until(lambda: self.fired() == set(alerts), WITHIN_S, f'{alerts or "nothing"} and no other alert fires')

    def setUp(self):
        super().setUp()
        members = len(self.pool.etcd.members)
        wait_until(lambda: all(daemon.sum('cxlpool_etcd_member_up') == members for daemon in self.scrape().values()), WITHIN_S,
                   'each manager has asked each member')
        self.before = self.scrape()
        self.wait_fired()

    def test_a_member_of_etcd_ends(self):
        member = self.pool.etcd.members[self.pool.etcd.wait_follower()]
        member.kill()
        self.wait_fired('CxlpoolEtcdMemberDown')
        member.start()
        self.wait_fired()

    def test_managers_end_and_then_etcd(self):
        leader = self.pool.wait_leader()
        first, second = (manager for number, manager in enumerate(self.pool.managers) if number != leader)
        first.kill()
        self.wait_fired('CxlpoolStandbyDown')
        second.kill()
        self.wait_fired('CxlpoolNoStandby')
        first.start()
        second.start()
        self.wait_fired()
        for member in self.pool.etcd.members[:2]:
            member.kill()
        last = self.pool.managers[leader]
        wait_until(lambda: not last.running, WITHIN_S, 'who cannot know that it leads ends')
        last.start()  # As its unit does.
        self.wait_fired('CxlpoolNoLeader')
        self.pool.etcd.start()
        self.pool.wait_leader()
        self.wait_fired()


class SlowDiskTest(FaultTest):
    """The manager's disk takes 150 ms for each sync."""
    HOSTS = {'host-a': [[1, 2]]}
    SLOW = """
#include <dlfcn.h>
#include <unistd.h>
static int Late(const char* name, int fd) { usleep(150000); return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd); }
int fsync(int fd) { return Late("fsync", fd); }
int fdatasync(int fd) { return Late("fdatasync", fd); }
"""

    def test_commits_are_slow(self):
        source, library = self.directory / 'slow.c', self.directory / 'slow.so'
        source.write_text(self.SLOW)
        subprocess.run(['gcc', '-shared', '-fPIC', '-D_GNU_SOURCE', source, '-o', library], check=True)
        self.pool.restart_manager({'LD_PRELOAD': str(library), 'ASAN_OPTIONS': 'verify_asan_link_order=0'})
        self.pool.wait_hosts_online()
        self.before = self.scrape()
        for i in range(5):
            self.pool.cli('tenant', 'set', f't{i}', '--quota', '1GiB')
        slow = self.scrape()
        self.assertEqual(self.fired(slow, goes_on=True), {'CxlpoolCommitSlow'})
        self.pool.restart_manager()
        self.pool.wait_hosts_online()
        self.before = self.scrape()
        for i in range(5):
            self.pool.cli('tenant', 'set', f't{i}', '--quota', 'none')
        self.assertEqual(self.fired(goes_on=True), set())


@unittest.skipUnless(os.geteuid() == 0, 'a file system can be mounted by root only')
class FullStoreTest(FaultTest):
    """The manager's store on a file system of a few MiB, which only the manager's processes see."""
    HOSTS = {'host-a': [[1, 2]]}

    @classmethod
    def make_pool(cls, directory):
        return on_a_small_disk(super().make_pool(directory))

    def test_the_store_is_full(self):
        filler = fill_small_disk(self.pool)
        with self.assertRaisesRegex(CliError, 'STORE_FULL'):
            for i in range(1000):
                self.pool.cli('tenant', 'set', f't{i}', '--fail-fast')
        self.assertEqual(self.fired(), {'CxlpoolStoreFailing'})
        filler.unlink()
        self.pool.cli('tenant', 'set', 'more')
        self.assert_over()


if __name__ == '__main__':
    main()
