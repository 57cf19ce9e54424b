"""What a host's kernel tells: poison under a mapping, media and memory-module events, PCIe errors. The application hears of
what it lost, the manager of all, and nobody is given bytes that a device cannot keep."""

import os
import time

from testbed.guest_programs import SETPRIV_PROGRAM
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.rack_trials import SLICE, RackTrials
from testbed.testing import main

HOST = 'host-a'
WITHIN_S = 5
OFFSET = 0x200000
HAS_AER = os.environ.get('CXLPOOL_RACK_KERNEL', '6.12') == '6.12'  # 7.2 tells of none that QEMU injects.


class RackEventTest(RackTrials):
    topology = {'device': [{'name': f'cmm-{i}', 'size': '256 MiB'} for i in range(2)],
                'host': [{'name': HOST, 'bridges': 4, 'ports': 2}]}
    programs = ('pool-poison', 'pool-watch', SETPRIV_PROGRAM)

    def setUp(self):
        super().setUp()
        self.guest = self.pool.hosts[HOST]
        self.agent = self.guest.output('cat /run/cxlpool-agent.pid')
        self.manager = self.pool.manager.process.pid

    def ld_of(self, name):
        """What QEMU calls the LD of the Region."""
        serial = int(self.segment(name, HOST)['serial'])
        [ld] = [ld for ld in self.witness.reach(self.guest) if self.serial_of(self.guest, ld) == serial]
        return f'/machine/peripheral/{ld}'

    def log_says(self, *words):
        lines = (line for line in self.pool.manager.log.read_text().splitlines() if 'events: ' in line)
        return any(all(word in line for word in words) for line in lines)

    def end(self):
        self.assertEqual(self.guest.output('cat /run/cxlpool-agent.pid'), self.agent)
        self.assertEqual(self.pool.manager.process.pid, self.manager)
        self.assert_sound()

    def release_bad(self):
        [bad] = [name for name in self.pool.regions() if name.startswith('bad-')]
        self.pool.release(bad, '--force', '--reason', 'the poison was injected', '--yes')
        self.wait_gone(bad)

    def test_1_poison_under_a_mapping(self):
        self.take('kv', HOST, 'cmm-0')
        writer, _ = self.hold(HOST, 'pool-write', '--region', 'kv', '--seed', 41, '--hold', 600, says='wrote')
        watcher, log = self.hold(HOST, 'pool-watch', '--for', 600, says='watching')
        began = time.monotonic()
        self.guest.qmp('cxl-inject-poison', {'path': self.ld_of('kv'), 'start': OFFSET, 'length': 256})
        self.guest.wait_for(f'grep -q "^fault " {log}', timeout=WITHIN_S)
        self.assertEqual(self.guest.output(f'grep "^fault " {log}').split()[:4], ['fault', 'regions/kv', str(OFFSET), '256'])

        def kept():
            return int(self.pool.cli('capacity')['quarantined_bytes']) == SLICE
        wait_until(kept, WITHIN_S, 'the extent is quarantined', exactly=True)
        took = time.monotonic() - began
        print(f'{self._testMethodName}: reported and kept after {took:.1f} s')
        self.assertLess(took, WITHIN_S)
        [extent] = self.pool.regions()['kv']['extents']
        self.assertIn('POISON', extent['bad_reason'])
        self.assertEqual(self.state('kv', HOST), 'ONLINE')  # Contained: the other bytes can be used.
        self.guest.output(f'kill -0 {writer}; kill {writer}')

        self.run_said(self.wait_said('region/kv', 'LOST_BYTES')['commands'][0])
        self.wait_gone('kv')
        [bad] = self.pool.regions()
        self.assertTrue(bad.startswith('bad-cmm-0-'), bad)
        self.assert_accounts()
        with self.assertRaises(CliError):
            self.pool.allocate('next', self.size_of('cmm-0'), HOST, '--device', 'cmm-0', wait=False)
        self.pool.allocate('next', self.size_of('cmm-0'), HOST)
        [extent] = self.pool.regions()['next']['extents']
        self.assertEqual(extent['device'], 'devices/cmm-1')
        self.pool.release('next')
        self.release_bad()
        self.end()

    def test_2_what_loses_no_bytes_is_only_told(self):
        self.take('kv', HOST, 'cmm-0')
        path = self.ld_of('kv')
        self.guest.qmp('cxl-inject-memory-module-event', {
            'path': path, 'log': 'warning', 'flags': 1, 'type': 3, 'sub-type': 1, 'health-status': 3, 'media-status': 7,
            'additional-status': 33, 'life-used': 30, 'temperature': -15, 'dirty-shutdown-count': 4,
            'corrected-volatile-error-count': 3200, 'corrected-persistent-error-count': 300})
        self.guest.qmp('cxl-inject-general-media-event', {
            'path': path, 'log': 'informational', 'flags': 1, 'dpa': 0x4000, 'descriptor': 2, 'type': 0, 'sub-type': 0,
            'transaction-type': 1})
        for kind in ('MEMORY_MODULE', 'GENERAL_MEDIA'):
            wait_until(lambda: self.log_says('region=kv', f'kind={kind} ', 'bytes_lost=0'), 2 * WITHIN_S,
                       f'the manager hears of {kind}')
        self.assertEqual(int(self.pool.cli('capacity').get('quarantined_bytes', 0)), 0)
        self.assertFalse(self.pool.regions()['kv']['extents'][0].get('bad_reason'))
        self.pool.release('kv')
        self.end()

    def test_3_an_uncorrectable_media_error_keeps_the_extent(self):
        self.take('kv', HOST, 'cmm-0')
        self.guest.qmp('cxl-inject-general-media-event', {
            'path': self.ld_of('kv'), 'log': 'failure', 'flags': 1, 'dpa': 0x4000, 'descriptor': 1, 'type': 0, 'sub-type': 0,
            'transaction-type': 1})
        wait_until(lambda: 'GENERAL_MEDIA' in self.pool.regions()['kv']['extents'][0].get('bad_reason', ''), WITHIN_S,
                   'the extent is marked', exactly=True)
        self.pool.release('kv')
        self.release_bad()
        self.end()

    def test_4_a_correctable_pcie_error(self):
        if not HAS_AER:
            self.skipTest('this kernel tells of no PCIe errors in QEMU')
        self.take('kv', HOST, 'cmm-0')
        # Internal errors are masked at first.
        self.guest.output('for f in $(ls /sys/bus/pci/drivers/cxl_pci | grep :); do '
                          'setpci -s $f ECAP_AER+8.l=0:400000 ECAP_AER+14.l=0:4000; done')
        self.guest.qmp('cxl-inject-correctable-error', {'path': self.ld_of('kv'), 'type': 'mem-data-ecc'})
        wait_until(lambda: self.log_says('region=kv', 'kind=AER_CORRECTABLE '), 2 * WITHIN_S, 'the manager hears of it')
        self.assertEqual(self.state('kv', HOST), 'ONLINE')
        self.pool.release('kv')
        self.end()

    def test_5_a_surprise_removal(self):
        self.take('kv', HOST, 'cmm-0')
        segment = self.segment('kv', HOST)
        self.pull(HOST, segment['slot'])
        wait_until(lambda: self.log_says('kind=SURPRISE_REMOVAL ', f'serial=0x{int(segment["serial"]):x} '), 30,
                   'the manager hears of it')
        wait_until(lambda: self.state('kv', HOST) == 'ONLINE' and self.segment('kv', HOST)['serial'] != segment['serial'], 90,
                   'it is online again')
        self.pool.release('kv')
        self.end()

    def test_6_the_trace_instance_goes_with_the_agent_and_is_found_again(self):
        instance = '/sys/kernel/tracing/instances/cxlpool'
        self.stop_agent(HOST)  # kill -9: it stays,
        self.guest.output(f'[ -d {instance} ]')
        self.start_agent(HOST)  # and is taken up.
        self.pool.wait_hosts_online()
        self.take('kv', HOST, 'cmm-0')
        self.guest.qmp('cxl-inject-poison', {'path': self.ld_of('kv'), 'start': 0, 'length': 64})
        wait_until(lambda: self.pool.regions()['kv']['extents'][0].get('bad_reason'), WITHIN_S, 'the extent is marked',
                   exactly=True)
        self.pool.release('kv')
        self.release_bad()
        self.guest.output('touch /run/agent.stop; kill $(cat /run/cxlpool-agent.pid)')
        self.wait_agent_dead(HOST)
        self.guest.output(f'[ ! -d {instance} ]')
        self.start_agent(HOST)
        self.agent = self.guest.output('cat /run/cxlpool-agent.pid')
        # It was asked to end, and did: no crash.
        self.guest.output("sed -i '/ended with status 0$/d' /var/log/cxlpool-agent.log")
        self.assert_sound()

    def test_7_lost_bytes_under_what_libpool_does(self):
        """A page that the kernel takes out (MADV_HWPOISON) while a program copies it: the true SIGBUS, which no injection into a
        device brings about in QEMU."""
        for name, device in (('kv', 'cmm-0'), ('other', 'cmm-1')):
            self.take(name, HOST, device, '--open-to', 'uid=1000')
        bystander, _ = self.hold(HOST, 'pool-write', '--region', 'kv', '--seed', 41, '--hold', 600, says='wrote')
        _, log = self.hold(HOST, 'pool-watch', '--count', 5, '--for', 600, says='watching')
        began = time.monotonic()
        taken_out = self.poison(HOST, 'kv', 'other')
        print(f'{self._testMethodName}: {time.monotonic() - began:.1f} s')
        # Who maps the same pages, and did not touch them, hears nothing.
        self.guest.output(f'kill -0 {bystander}; kill {bystander}')
        # Who watches does: of each page, and of no other Region.
        self.guest.wait_for(f'[ $(grep -c "^fault " {log}) = {len(taken_out)} ]', timeout=WITHIN_S)
        faults = [line.split()[1:4] for line in self.guest.output(f'grep "^fault " {log}').splitlines()]
        self.assertCountEqual(faults, [['regions/kv', str(at), '4096'] for at in taken_out])
        self.assertIn('POISON', self.pool.regions()['kv']['extents'][0]['bad_reason'])
        for name in ('kv', 'other'):
            self.pool.release(name)
        self.release_bad()
        self.end()


if __name__ == '__main__':
    main()
