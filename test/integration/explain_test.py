"""What `cxlpool explain` says of the situations that a person can get into, and whether the commands that it names end
them. Real processes, no CXL."""

import os
import re
import shlex
import signal
import subprocess
import unittest
from datetime import timedelta

from testbed.certificates import reissue
from testbed.emulated import EmulatedHost, EmulatedPool, SharedPool, fill_small_disk, on_a_small_disk
from testbed.pool import CliError
from testbed.process import TestbedError, wait_until
from testbed.testing import BUILD, PoolTest, main

WITHIN_S = 20


class ExplainTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2, 3, 4]], 'host-b': [[1, 2], [3, 4]]},
                            devices={'cmm-0': '1GiB', 'cmm-1': '1GiB'}, granule='32MiB')

    def setUp(self):
        super().setUp()
        try:
            wait_until(lambda: self.findings('') == {}, WITHIN_S, 'nothing is wrong')
        except TestbedError:
            self.fail(self.pool.run_cli('doctor'))  # What the last test left.

    def tearDown(self):
        super().tearDown()
        self.pool.release_all()
        self.assertEqual(self.pool.run_cli('doctor'), 'nothing is wrong, and nothing waits\n')

    def hold(self, region):
        holder = self.pool.hosts['host-a'].hold(region)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        return holder

    def test_a_region_that_is_held(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        holder = self.hold('kv')
        self.pool.release('kv', wait=False)
        finding = self.wait_said('region/kv', 'RELEASE_BLOCKED')
        self.assertEqual(finding['urgency'], 'WRONG')
        self.assertEqual(finding['waits_for'], ['hosts/host-a'])
        self.assertTrue(finding['since'])
        said = wait_until(lambda: re.search(r'held by pid (\d+) \(pool-write\)', self.findings('region/kv')[
            'regions/kv', 'RELEASE_BLOCKED']['text']), WITHIN_S, 'it says who holds it')
        self.assertEqual(int(said[1]), holder.pid)
        self.assertIn(str(holder.pid), self.run_said(finding['commands'][0]))
        table = self.pool.run_cli('explain', 'region/kv')
        self.assertRegex(table, r'^WRONG  regions/kv RELEASE_BLOCKED( for \d+s)?\n       host host-a cannot let go of it')
        self.assertIn(f'       run: cxlpool region holders kv\n            on host-a: kill {holder.pid}\n', table)
        self.run_said(self.findings('region/kv')['regions/kv', 'RELEASE_BLOCKED']['commands'][1])
        self.wait_ended('region/kv', 'RELEASE_BLOCKED')

    def test_a_region_that_is_held_and_fenced(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        self.hold('kv')
        self.pool.release('kv', wait=False)
        self.run_said(self.wait_said('region/kv', 'RELEASE_BLOCKED')['commands'][-1])
        self.wait_ended('region/kv', 'RELEASE_BLOCKED')
        self.pool.wait_hosts_online()

    def test_an_agent_that_is_away(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        agent = self.pool.hosts['host-a'].agent
        agent.kill()
        self.addCleanup(self.pool.wait_hosts_online)
        self.addCleanup(lambda: agent.running or agent.start())
        host = self.wait_said('host/host-a', 'AGENT_AWAY')
        self.assertTrue(host['since'])
        self.run_said(host['commands'][0])
        self.assertEqual(self.findings('region/kv'), {}, 'its Region stays as it is')
        self.pool.release('kv', wait=False)
        away = self.wait_said('region/kv', 'AGENT_AWAY')
        self.assertEqual(away['since'], host['since'])
        self.run_said(away['commands'][0])
        self.wait_ended('region/kv', 'AGENT_AWAY')
        self.wait_ended('host/host-a', 'AGENT_AWAY')
        over = self.wait_over('host/host-a')
        self.assertRegex(over['text'], r'^it was AGENT_AWAY from \S+ until \S+$')
        self.assertNotIn(('hosts/host-a', 'OVER'), self.findings(''), 'it needs nobody')

    def wait_over(self, what):
        """What ended last; it is said only of the thing itself."""
        return wait_until(lambda: next((f for f in self.pool.cli('explain', what).get('findings', []) if f['problem'] == 'OVER'), None),
                          WITHIN_S, f'what was wrong with {what} is remembered')

    def test_a_host_whose_agent_never_came(self):
        self.pool.cli('host', 'add', 'host-c', '--slots', '1')
        self.pool.cli('host', 'enrol', 'host-c')
        finding = self.wait_said('host/host-c', 'AGENT_NEVER_CAME')
        self.assertEqual(finding['urgency'], 'NOTE')
        self.run_said(finding['commands'][-1])
        self.wait_ended('host/host-c', 'AGENT_NEVER_CAME')
        self.pool.cli('host', 'remove', 'host-c', '--yes')
        self.assertNotIn('hosts/host-c', [subject for subject, _ in self.findings('')])

    def test_a_host_whose_agent_comes_at_last(self):
        self.pool.cli('host', 'add', 'host-d', '--slots', '1')
        self.pool.cli('host', 'enrol', 'host-d')
        self.pool.run_cli('pki', 'issue', 'host', 'host-d', '--dir', self.pool.pki)
        finding = self.wait_said('host/host-d', 'AGENT_NEVER_CAME')
        self.pool.hosts['host-d'] = EmulatedHost(self.pool, 'host-d', [[1]])

        def forget():
            self.pool.hosts.pop('host-d').agent.kill()
            for how in ('retire', 'remove'):
                self.pool.cli('host', how, 'host-d', '--yes')
        self.addCleanup(forget)
        self.assertIn('on host-d: systemctl enable --now cxlpool-agent', finding['commands'])
        self.run_said(finding['commands'][1])
        self.wait_ended('host/host-d', 'AGENT_NEVER_CAME')

    def test_an_unbind_that_is_not_proven(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        slot = self.pool.attachment('kv', 'host-a')['segments'][0]['slot']
        agent = self.pool.hosts['host-a'].agent
        self.addCleanup(self.pool.wait_hosts_online)
        self.addCleanup(lambda: agent.running or agent.start())
        agent.kill()
        agent.start({'CXLPOOL_CRASH_AT': 'before-PowerOff'})
        self.pool.wait_hosts_online()
        self.pool.release('kv', wait=False)
        agent.wait(WITHIN_S)
        # The next agent has a session, and cannot write down that the slot has no power.
        in_the_way = self.pool.directory / f'fabric/hosts/host-a/slot-{slot}/host.textproto.new'
        in_the_way.mkdir()
        self.addCleanup(lambda: in_the_way.exists() and in_the_way.rmdir())
        agent.start()
        self.pool.wait_hosts_online()
        finding = self.wait_said('region/kv', 'UNBIND_NOT_PROVEN', 90)
        self.assertEqual((finding['urgency'], finding['waits_for']), ('WRONG', ['hosts/host-a']))
        self.run_said(finding['commands'][0])
        self.wait_ended('region/kv', 'UNBIND_NOT_PROVEN')
        wait_until(lambda: 'kv' not in self.pool.regions(), WITHIN_S, 'its bytes are free')
        in_the_way.rmdir()
        self.pool.wait_hosts_online()

    def test_a_bridge_that_is_blocked(self):
        for name in ('low', 'high'):
            self.pool.allocate(name, '64MiB', 'host-a')
        self.pool.cli('region', 'detach', 'low', '--host', 'host-a', '--wait')
        finding = self.wait_said('host/host-a', 'BRIDGE_BLOCKED')
        self.assertEqual(finding['waits_for'], ['regions/high'])
        self.run_said(finding['commands'][0])
        self.wait_ended('host/host-a', 'BRIDGE_BLOCKED')

    def test_bytes_that_are_lost(self):
        self.pool.allocate('kv', '64MiB', 'host-a', '--device', 'cmm-1')
        segment = self.pool.attachment('kv', 'host-a')['segments'][0]
        poison = self.pool.directory / f'fabric/hosts/host-a/slot-{segment["slot"]}/poison'
        poison.write_text(f'{int(segment["serial"])} 0x10000 256\n')
        self.addCleanup(lambda: poison.exists() and poison.unlink())
        finding = self.wait_said('region/kv', 'LOST_BYTES')
        self.assertNotIn('since', finding)  # Nobody knows.
        self.assertIn('cxlpool device drain cmm-1', finding['commands'])
        self.run_said(finding['commands'][0])
        self.wait_ended('region/kv', 'LOST_BYTES')
        bad = wait_until(lambda: [name for name in self.pool.regions() if name.startswith('bad-')], WITHIN_S, 'it is kept')[0]
        self.run_said(self.wait_said(f'region/{bad}', 'QUARANTINED')['commands'][-1])
        self.wait_ended(f'region/{bad}', 'QUARANTINED')

    def test_a_device_that_is_drained(self):
        self.pool.allocate('kv', '64MiB', 'host-a', '--device', 'cmm-1')
        self.pool.cli('device', 'drain', 'cmm-1')
        finding = self.wait_said('device/cmm-1', 'DRAINING')
        self.assertTrue(finding['since'])
        self.assertEqual((finding['urgency'], finding['waits_for']), ('WAITS', ['regions/kv']))
        self.run_said(finding['commands'][0])
        drained = self.wait_said('device/cmm-1', 'DRAINED')
        self.wait_ended('device/cmm-1', 'DRAINING')
        self.run_said(drained['commands'][1])
        self.wait_ended('device/cmm-1', 'DRAINED')

    def test_a_device_that_is_gone(self):
        backing = self.pool.directory / 'fabric/devices/cmm-9'
        self.pool.cli('device', 'add', 'cmm-9', '--capacity', '64MiB', '--granule', '64MiB')
        wait_until(lambda: self.findings('') == {}, WITHIN_S, 'it is there')
        self.assertFalse(backing.exists(), 'the emulated fabric has no file of it that could go')
        self.pool.cli('device', 'fail', 'cmm-9', '--reason', 'a burnt smell', '--yes')
        finding = self.wait_said('device/cmm-9', 'DEVICE_FAILED')
        self.assertIn('a burnt smell', finding['text'])
        self.run_said(finding['commands'][0])
        self.wait_ended('device/cmm-9', 'DEVICE_FAILED')

    def test_a_device_that_failed_under_a_region(self):
        self.pool.cli('device', 'add', 'cmm-5', '--capacity', '64MiB', '--granule', '64MiB')
        wait_until(lambda: self.findings('') == {}, WITHIN_S, 'it is there')
        self.pool.allocate('kv', '64MiB', 'host-a', '--device', 'cmm-5')
        self.pool.cli('device', 'fail', 'cmm-5', '--reason', 'a burnt smell', '--yes')
        finding = wait_until(lambda: self.says('cmm-5', waits_for='regions/kv'), WITHIN_S, 'it says who has bytes there')
        self.assertEqual(finding['urgency'], 'WRONG')
        self.assertTrue(finding['since'])
        detach, release, remove = finding['commands']
        self.run_said(detach)
        wait_until(lambda: not self.pool.regions()['kv'].get('attachments'), WITHIN_S, 'it is detached')
        self.run_said(release)
        wait_until(lambda: 'kv' not in self.pool.regions(), WITHIN_S, 'kv is gone')
        self.run_said(remove)
        self.wait_ended('device/cmm-5', 'DEVICE_FAILED')

    def says(self, device, waits_for):
        finding = self.findings(f'device/{device}').get((f'devices/{device}', 'DEVICE_FAILED'), {})
        return finding if waits_for in finding.get('waits_for', []) and '--force' in finding['commands'][1] else None

    def test_a_host_that_the_fabric_cannot_be_asked_about(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        slot = self.pool.attachment('kv', 'host-a')['segments'][0]['slot']
        side = self.pool.directory / f'fabric/hosts/host-a/slot-{slot}/fabric.textproto'
        sound = side.read_bytes()
        side.write_text('nonsense')
        self.addCleanup(lambda: side.exists() and side.read_text() == 'nonsense' and side.write_bytes(sound))
        finding = self.wait_said('host/host-a', 'FABRIC_AWAY')
        self.assertIn(f'slot-{slot}', finding['text'])
        self.assertTrue(finding['since'])
        self.assertIn(f'slot-{slot}', self.run_said(finding['commands'][0]))
        self.pool.release('kv', wait=False)
        self.assertEqual(self.wait_said('region/kv', 'FABRIC_AWAY')['since'], finding['since'])
        side.write_bytes(sound)
        self.wait_ended('host/host-a', 'FABRIC_AWAY')
        self.wait_ended('region/kv', 'FABRIC_AWAY')

    def test_a_host_that_can_take_no_memory(self):
        host = self.pool.hosts['host-b']
        text = host.config.read_text()
        root = f'root = "{self.pool.directory}/fabric"'
        self.assertIn(root, text)

        def restart_with(config):
            host.config.write_text(config)
            host.agent.kill()
            host.agent.start()
        self.addCleanup(self.pool.wait_hosts_online)
        self.addCleanup(restart_with, text)
        restart_with(text.replace(root, f'root = "{self.pool.directory}/nowhere"'))
        finding = self.wait_said('host/host-b', 'UNFIT')
        self.assertIn('nowhere', finding['text'])
        self.assertTrue(finding['since'])
        self.assertIn('nowhere', self.run_said(finding['commands'][0]))
        self.assertNotEqual(host.run(['cxlpool-agent', 'check', '--config', host.config]).status, 0)
        host.config.write_text(text)  # As the check says; what ends it is that the agent reads it.
        self.run_said(finding['commands'][1])
        self.wait_ended('host/host-b', 'UNFIT')

    def test_a_scrub_that_fails(self):
        extent, kept = self.break_scrub('host-a')
        finding = self.wait_said('region/kv', 'SCRUB_WAITS')
        self.assertEqual(finding['urgency'], 'WRONG')
        self.assertIn(finding['waits_for'][0].split('/')[1], self.run_said(finding['commands'][0]))
        extent.rmdir()
        extent.write_bytes(kept)
        self.wait_ended('region/kv', 'SCRUB_WAITS')

    def test_a_scrub_that_fails_for_good(self):
        self.pool.cli('device', 'add', 'cmm-6', '--capacity', '64MiB', '--granule', '64MiB')
        wait_until(lambda: self.findings('') == {}, WITHIN_S, 'it is there')
        self.break_scrub('host-a', '--device', 'cmm-6')
        finding = self.wait_said('region/kv', 'SCRUB_WAITS')
        self.assertEqual(finding['waits_for'], ['devices/cmm-6'])
        self.run_said(finding['commands'][1])
        self.wait_ended('region/kv', 'SCRUB_WAITS')
        wait_until(lambda: 'kv' not in self.pool.regions(), WITHIN_S, 'kv is gone')
        self.run_said(self.wait_said('device/cmm-6', 'DEVICE_FAILED')['commands'][0])
        self.wait_ended('device/cmm-6', 'DEVICE_FAILED')

    def break_scrub(self, host, *where):
        """Region kv is released, and cannot be cleared; its extent's path, and what stood there."""
        self.pool.allocate('kv', '64MiB', host, *where)
        extent = self.pool.directory / 'fabric/extents' / f'{self.pool.regions()["kv"]["tag"]}.0'
        self.pool.cli('region', 'detach', 'kv', '--host', host, '--wait')
        kept = extent.read_bytes()[:1]
        extent.unlink()
        extent.mkdir()  # What is no file cannot be cleared.
        self.addCleanup(lambda: extent.is_dir() and extent.rmdir())
        self.pool.release('kv', wait=False)
        return extent, kept

    def test_a_pool_without_a_device(self):
        def remove(device):
            self.pool.cli('device', 'drain', device)
            self.pool.cli('device', 'remove', device, '--yes')
        for device in self.pool.devices:
            self.addCleanup(self.pool.cli, 'device', 'add', device)
            remove(device)
        finding = wait_until(lambda: self.findings('').get(('', 'NO_DEVICE')), WITHIN_S, 'there is no device')
        self.assertEqual(finding['urgency'], 'WRONG')
        self.run_said(finding['commands'][0], DEVICE='cmm-8', SIZE='1GiB')
        wait_until(lambda: ('', 'NO_DEVICE') not in self.findings(''), WITHIN_S, 'there is one')
        for device in self.pool.devices:
            self.pool.cli('device', 'add', device)
        remove('cmm-8')

    def test_a_full_pool_and_a_full_tenant(self):
        self.pool.cli('tenant', 'set', 'ml', '--quota', '64MiB')
        self.pool.allocate('kv', '64MiB', None, '--tenant', 'ml', wait=False)
        finding = self.findings('')['tenants/ml', 'TENANT_FULL']
        self.assertTrue(finding['since'])
        self.assertIn('kv', self.run_said(finding['commands'][0]).splitlines()[1])
        self.run_said(finding['commands'][1], SIZE='1GiB')
        self.assertNotIn(('tenants/ml', 'TENANT_FULL'), self.findings(''))
        self.pool.allocate('much', '1920MiB', None, '--max-extents', '16', wait=False)
        finding = self.findings('')['', 'POOL_FULL']
        self.assertTrue(finding['since'])
        self.assertIn('much', self.run_said(finding['commands'][0]).splitlines()[1])
        self.run_said(finding['commands'][1], DEVICE='cmm-7', SIZE='1GiB')
        wait_until(lambda: ('', 'POOL_FULL') not in self.findings(''), WITHIN_S, 'it is not full any more')
        for name in ('kv', 'much'):
            self.pool.release(name)
        self.pool.cli('tenant', 'remove', 'ml')
        self.pool.cli('device', 'drain', 'cmm-7')
        self.pool.cli('device', 'remove', 'cmm-7', '--yes')

    def test_a_pool_in_pieces(self):
        names = [f'piece-{i}' for i in range(64)]
        for name in names:
            self.pool.allocate(name, '32MiB', None, wait=False)
        for name in names[::2]:
            self.pool.release(name)
        finding = self.findings('')['', 'POOL_FRAGMENTED']
        self.assertTrue(finding['since'])
        self.assertIn('one device has 512 MiB free', finding['text'])
        with self.assertRaisesRegex(CliError, 'POOL_FRAGMENTED'):
            self.pool.allocate('big', '256MiB', None, wait=False)
        self.run_said(finding['commands'][0], NAME='big', SIZE='256MiB')
        self.assertEqual(self.pool.cli('region', 'show', 'big')['size_bytes'], str(256 << 20))
        self.assertRegex(self.run_said(finding['commands'][1]).splitlines()[1], r'piece-\d')  # The small ones, which lie between.
        for name in reversed(names[1::2]):
            self.run_said(finding['commands'][2], NAME=name)
            wait_until(lambda: name not in self.pool.regions(), WITHIN_S, f'{name} is gone')
            if ('', 'POOL_FRAGMENTED') not in self.findings(''):
                return
        self.fail('the pool is still in pieces')

    def test_a_lease_that_ends(self):
        self.pool.allocate('kv', '64MiB', None, '--ttl', '5m', wait=False)
        finding = self.wait_said('region/kv', 'LEASE_ENDS')
        self.run_said(finding['commands'][0])
        self.wait_ended('region/kv', 'LEASE_ENDS')

    def test_b_certificate_that_ends(self):
        self.pool.run_cli('pki', 'renew', 'host', 'host-a', '--days', '9', '--dir', self.pool.pki)
        agent = self.pool.hosts['host-a'].agent
        agent.kill()
        agent.start()
        finding = self.wait_said('host/host-a', 'CERTIFICATE_ENDS')
        self.assertEqual(finding['urgency'], 'NOTE')
        self.pool.run_cli(*shlex.split(finding['commands'][0])[1:], '--dir', self.pool.pki)
        agent.kill()
        agent.start()
        self.wait_ended('host/host-a', 'CERTIFICATE_ENDS')

    def test_what_is_gone_and_what_never_was(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        self.pool.release('kv')
        gone = self.findings('region/kv')['regions/kv', 'GONE']
        self.assertIn('scrubbed', gone['text'])
        self.assertIn('ReleaseRegion', self.run_said(gone['commands'][0]))
        for what, reason in (('region/nil', 'UNKNOWN_REGION'), ('host/nil', 'UNKNOWN_HOST'), ('device/nil', 'UNKNOWN_DEVICE'),
                             ('region/N', 'BAD_NAME'), ('kv', 'USAGE'), ('tenant/ml', 'USAGE')):
            with self.assertRaisesRegex(CliError, reason):
                self.pool.cli('explain', what)


class ManagersOwnTest(PoolTest):
    """What is wrong with the manager itself, and its machine's commands, of which systemctl is this testbed's."""

    # It is 25 hours later once the file is there.
    LATER = """
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (real == NULL) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, now);
  if (clock == CLOCK_REALTIME && access(getenv("LATER_FILE"), F_OK) == 0) now->tv_sec += 25 * 3600;
  return result;
}
"""

    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]]}, devices={'cmm-0': '1GiB'})

    def wait_own(self, problem):
        return wait_until(lambda: self.findings('').get(('', problem)), WITHIN_S, f'the manager says {problem}')

    def wait_own_ended(self, problem):
        wait_until(lambda: ('', problem) not in self.findings(''), WITHIN_S, f'{problem} is over')

    def run_there(self, host, words):
        self.assertEqual(host, "the manager's machine")
        if words == ['systemctl', 'stop', 'cxlpool-fm']:
            return self.pool.manager.stop()
        if words == ['systemctl', 'start', 'cxlpool-fm']:
            return self.pool.start_manager()
        if words == ['systemctl', 'reload', 'cxlpool-fm']:
            return self.pool.manager.process.send_signal(signal.SIGHUP)
        self.assertEqual(words[:4], ['runuser', '-u', 'cxlpool', '--'])  # Here the files are ours.
        command = [BUILD / 'bin' / words[4], *words[5:]]
        return subprocess.run(command, capture_output=True, text=True).stdout

    def test_its_certificate_ends(self):
        reissue(self.pool.pki, 'manager-fm', timedelta(days=-1), timedelta(days=13))
        self.pool.manager.process.send_signal(signal.SIGHUP)
        finding = self.wait_own('CERTIFICATE_ENDS')
        self.assertEqual(finding['urgency'], 'NOTE')
        self.assertIn('manager-fm.pem', finding['text'])
        self.pool.run_cli(*shlex.split(finding['commands'][0])[1:], '--dir', self.pool.pki)
        self.run_said(finding['commands'][1])
        self.wait_own_ended('CERTIFICATE_ENDS')

    def test_nobody_takes_a_backup(self):
        source, library, later = (self.directory / name for name in ('later.c', 'later.so', 'later'))
        source.write_text(self.LATER)
        subprocess.run(['gcc', '-shared', '-fPIC', '-D_GNU_SOURCE', source, '-o', library], check=True)
        self.addCleanup(self.pool.restart_manager)
        self.pool.restart_manager({'LD_PRELOAD': str(library), 'LATER_FILE': str(later), 'ASAN_OPTIONS': 'verify_asan_link_order=0'})
        self.assertNotIn(('', 'BACKUP_OLD'), self.findings(''))
        later.touch()
        self.addCleanup(later.unlink)
        finding = self.wait_own('BACKUP_OLD')
        self.assertEqual(finding['text'], 'no backup was taken since the manager started')
        self.assertTrue(finding['since'])
        self.run_said(finding['commands'][0], FILE=str(self.directory / 'backup.db'))
        self.wait_own_ended('BACKUP_OLD')

    def test_its_audit_trail_was_altered(self):
        self.pool.cli('tenant', 'set', 'ml', '--quota', '1GiB')
        self.pool.manager.stop()
        subprocess.run([BUILD / 'bin/forge-trail', self.pool.directory / 'store/pool.db'], check=True)
        self.pool.start_manager()
        finding = self.wait_own('AUDIT_ALTERED')
        self.assertEqual(finding['urgency'], 'WRONG')
        verify, backup, stop, repair, start = finding['commands']
        with self.assertRaisesRegex(CliError, 'AUDIT_ALTERED'):
            self.run_said(verify)
        self.run_said(backup, FILE=str(self.directory / 'evidence.db'))
        self.run_said(stop)
        self.assertIn('row 1 was altered', self.run_said(repair))
        self.run_said(start)
        self.wait_own_ended('AUDIT_ALTERED')
        self.run_said(verify)
        self.pool.cli('tenant', 'remove', 'ml')


class SharedDevicesTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return SharedPool(BUILD, directory)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.pool.release_all)  # After a test's own cleanups: once the agents that it ended run again.

    def restart(self, *hosts):
        for name in hosts:
            self.pool.hosts[name].agent.kill()
        for name in hosts:
            self.pool.hosts[name].agent.start()

    def test_a_device_that_one_host_does_not_reach(self):
        config = self.pool.hosts['host-b'].config
        text = config.read_text()
        self.addCleanup(self.restart, 'host-b')
        self.addCleanup(config.write_text, text)
        config.write_text(text.replace(f"'{self.pool.files['cmm-1']}'", f"'{self.directory}/devices/none'"))
        (self.directory / 'devices/none').touch()
        os.truncate(self.directory / 'devices/none', 1 << 30)
        self.restart('host-b')
        finding = self.wait_said('host/host-b', 'DEVICE_NOT_REACHED')
        self.assertEqual(finding['waits_for'], ['devices/cmm-1'])
        self.assertTrue(finding['since'])
        self.assertIn('host-b', self.run_said(finding['commands'][0]))
        config.write_text(text)
        self.run_said(finding['commands'][-1])
        self.wait_ended('host/host-b', 'DEVICE_NOT_REACHED')

    def test_a_scrub_that_waits_for_its_device(self):
        self.pool.allocate('kv', '512MiB', None, '--device', 'cmm-1', wait=False)
        for host in self.pool.hosts.values():
            host.agent.kill()
        self.addCleanup(self.pool.wait_hosts_online)
        self.addCleanup(lambda: [host.agent.start() for host in self.pool.hosts.values() if not host.agent.running])
        self.assertTrue(self.wait_said('device/cmm-1', 'DEVICE_UNREACHABLE', 60)['since'])
        self.pool.release('kv', wait=False)
        finding = self.wait_said('region/kv', 'SCRUB_WAITS')
        self.assertEqual(finding['waits_for'], ['devices/cmm-1'])
        self.assertIn('DEVICE_UNREACHABLE', self.run_said(finding['commands'][0]))
        device = self.findings('device/cmm-1')['devices/cmm-1', 'DEVICE_UNREACHABLE']
        self.assertEqual(device['waits_for'], ['hosts/host-a', 'hosts/host-b'])
        for command in device['commands'][:2]:
            self.run_said(command)
        self.wait_ended('region/kv', 'SCRUB_WAITS', 60)
        self.wait_ended('device/cmm-1', 'DEVICE_UNREACHABLE', 60)

    def test_a_host_that_nothing_can_fence(self):
        self.pool.allocate('kv', '512MiB', 'host-a')
        agent = self.pool.hosts['host-a'].agent
        agent.kill()
        self.addCleanup(self.pool.wait_hosts_online)
        self.addCleanup(lambda: agent.running or agent.start())
        self.pool.release('kv', wait=False)
        finding = self.wait_said('region/kv', 'FABRIC_AWAY', 60)
        self.assertIn('on host-a: reboot it', finding['commands'][-1])
        self.assertNotIn('fence host-a', ' '.join(finding['commands']))
        self.assertNotIn('fence host-a', self.pool.run_cli('region', 'show', 'kv'))
        with self.assertRaisesRegex(CliError, 'NO_FENCE') as refused:
            self.pool.cli('host', 'fence', 'host-a', '--reason', 'it hangs', '--yes')
        self.assertEqual(refused.exception.status, 4)
        self.run_said(finding['commands'][1])
        self.wait_ended('region/kv', 'FABRIC_AWAY', 60)


class RefusedAgentTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]]}, devices={'cmm-0': '1GiB'})

    def test_an_agent_that_nobody_enrolled(self):
        self.pool.cli('host', 'add', 'host-b', '--slots', '1')
        self.pool.run_cli('pki', 'issue', 'host', 'host-b', '--dir', self.pool.pki)
        agent = EmulatedHost(self.pool, 'host-b', [[1]]).agent.start()
        self.addCleanup(agent.kill)
        finding = wait_until(lambda: self.findings('').get(('', 'PEER_REFUSED')), WITHIN_S, 'it is refused')
        self.assertEqual(finding['urgency'], 'WRONG')
        self.assertRegex(finding['text'], r'^an agent from ipv4:127\.0\.0\.1 was refused \d+ times?, last (just now|\d+s ago): NOT_ENROLLED: ')
        self.run_said(finding['commands'][0])
        agent.kill()
        agent.start()  # It would come by itself, within a minute.
        self.pool.wait_hosts_online()


@unittest.skipUnless(os.geteuid() == 0, 'a file system can be mounted by root only')
class FullStoreTest(PoolTest):
    """The manager's store on a file system of a few MiB, which only the manager's processes see."""
    @classmethod
    def make_pool(cls, directory):
        return on_a_small_disk(EmulatedPool(BUILD, directory, granule='64MiB'))

    def run_there(self, host, words):
        """On the manager's machine: where it sees its store."""
        self.assertEqual(host, "the manager's machine")
        enter = ['nsenter', '--mount', f'--target={self.pool.manager.process.pid}']
        return subprocess.run([*enter, *words], check=True, capture_output=True, text=True).stdout

    def test_a_store_that_is_full(self):
        filler = fill_small_disk(self.pool)
        with self.assertRaisesRegex(CliError, 'STORE_FULL'):
            for i in range(1000):
                self.pool.cli('tenant', 'set', f't{i}', '--fail-fast')
        findings = [f for f in self.pool.cli('doctor')['findings'] if f['problem'] == 'STORE_FULL']
        self.assertEqual([f['urgency'] for f in findings], ['WRONG'])
        folder = self.pool.directory / 'store'
        self.assertEqual(findings[0]['commands'], [f"on the manager's machine: df --human-readable {folder}",
                                                   f"on the manager's machine: du --all --human-readable {folder}"])
        self.assertRegex(self.run_said(findings[0]['commands'][0]), r'\b(100|99)% ')
        self.assertIn(str(folder / 'filler'), self.run_said(findings[0]['commands'][1]))  # What may go, only its owner knows.
        filler.unlink()
        self.pool.cli('tenant', 'set', 'more')
        self.assertNotIn('STORE_FULL', self.pool.run_cli('doctor'))


if __name__ == '__main__':
    main()
