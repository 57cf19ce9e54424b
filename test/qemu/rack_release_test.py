"""Memory reaches a new host only after proof of release: hosts whose agent dies, that are paused beyond their lease,
fenced, reset, or come back with what they knew before, and another host that asks for the very same bytes meanwhile."""

import os
import signal

from cxlrack.errors import RackError
from testbed.pool_bytes import check_pattern, check_zero
from testbed.process import wait_until
from testbed.rack_trials import SLICE, RackTrials
from testbed.testing import main


class RackReleaseTest(RackTrials):
    topology = {'device': [{'name': f'cmm-{i}', 'size': '256 MiB'} for i in range(4)],
                'host': [{'name': name, 'bridges': 4, 'ports': 2} for name in ('host-a', 'host-b')]}

    def file(self, device):
        return self.pool.rack.device_path(device)

    def check_file(self, device, seed):
        check_pattern(self, [(self.file(device), 0, SLICE)], seed)

    def asked_to_release(self, name):
        self.pool.release(name, wait=False)
        self.assertEqual(self.pool.regions()[name]['state'], 'RELEASING')

    def granted(self, name, host, device):
        """The other host gets exactly these bytes, and finds nothing in them."""
        check_zero(self, self.file(device))
        self.take(name, host, device)
        self.verify_zero(host, name)

    def test_1_an_agent_that_is_killed_lets_nothing_go(self):
        self.take('a1', 'host-a', 'cmm-0')
        self.write('host-a', 'a1', 11)
        self.stop_agent('host-a')
        self.asked_to_release('a1')
        self.assert_refused('b1', 'host-b', 'cmm-0', 1)
        self.wait_session_over('host-a')
        self.wait_said('host/host-a', 'AGENT_AWAY')
        said = self.wait_said('region/a1', 'AGENT_AWAY')['commands'][0]
        self.assert_refused('b1', 'host-b', 'cmm-0', 1)
        self.restart_manager(online='host-b')
        self.assert_refused('b1', 'host-b', 'cmm-0', 1)
        self.check_file('cmm-0', 11)
        self.run_said(said)
        self.wait_gone('a1')
        self.wait_ended('host/host-a', 'AGENT_AWAY')
        self.granted('b1', 'host-b', 'cmm-0')
        self.pool.release('b1')
        self.assert_sound()

    def test_2_a_host_that_is_paused_lets_go_once_it_goes_on(self):
        guest = self.pool.hosts['host-a']
        self.take('a2', 'host-a', 'cmm-0')
        holder, _ = self.hold('host-a', 'pool-write', '--region', 'a2', '--seed', 21, '--hold', 600, says='holding')
        guest.pause()
        self.asked_to_release('a2')
        self.wait_session_over('host-a')
        self.assert_refused('b2', 'host-b', 'cmm-0', 1)
        self.restart_manager(online='host-b')
        self.assert_refused('b2', 'host-b', 'cmm-0', 1)
        self.check_file('cmm-0', 21)
        guest.resume()
        # It comes back with its old state, and a user: that one is named, and the bytes stay.
        self.wait_state('a2', 'host-a', 'RELEASE_BLOCKED')
        self.assertIn('HOLDERS', self.pool.attachment('a2', 'host-a')['state_reason'])
        self.assert_refused('b2', 'host-b', 'cmm-0', 1)
        self.check_file('cmm-0', 21)
        guest.output(f'kill {holder}')
        self.wait_gone('a2')
        self.granted('b2', 'host-b', 'cmm-0')
        self.pool.release('b2')
        self.assert_sound()

    def test_3_a_host_that_was_fenced_reaches_nothing(self):
        guest = self.pool.hosts['host-a']
        self.take('a3', 'host-a', 'cmm-0')
        self.hold('host-a', 'pool-touch', 'a3', 31, 600, says='touching')  # Stores for as long as it lives.
        guest.pause()
        self.asked_to_release('a3')
        self.wait_session_over('host-a')
        self.assert_refused('b3', 'host-b', 'cmm-0', 1)
        process = guest.process
        said = self.wait_said('region/a3', 'AGENT_AWAY')['commands'][-1]
        self.run_said(said)
        self.assertFalse(process.alive())
        self.wait_gone('a3')
        self.granted('b3', 'host-b', 'cmm-0')
        self.write('host-b', 'b3', 32)
        guest.boot()
        self.pool.wait_hosts_online()
        self.assertEqual(self.witness.reach(guest), {})
        self.assertEqual(guest.run('pool-touch a3 31 1').status, 3)
        self.assertEqual(guest.run('pool-touch b3 31 1').status, 3)
        self.verify('host-b', 'b3', 32)
        self.check_file('cmm-0', 32)
        self.pool.release('b3')
        self.assert_sound()

    def test_4_a_host_that_is_reset_gets_back_what_is_its_own(self):
        guest = self.pool.hosts['host-a']
        self.take('dax', 'host-a', 'cmm-0')
        self.write('host-a', 'dax', 41)
        self.take('ram', 'host-a', 'cmm-1', '--mode', 'system-ram')
        self.program('host-a', 'pool-verify', '--region', 'ram', '--node', '--bytes', '16MiB')
        self.take('leaving', 'host-a', 'cmm-2')
        self.hold('host-a', 'pool-write', '--region', 'leaving', '--seed', 42, '--hold', 600, says='holding')
        self.asked_to_release('leaving')
        self.wait_state('leaving', 'host-a', 'RELEASE_BLOCKED')
        serials = {name: self.segment(name, 'host-a')['serial'] for name in ('dax', 'ram')}
        incarnation = self.host_state('host-a')['incarnation']
        self.pool.allocate('coming', self.size_of('cmm-3'), 'host-a', '--device', 'cmm-3', wait=False)

        guest.reset(wait=False)
        for device in ('cmm-0', 'cmm-1', 'cmm-2', 'cmm-3'):
            self.assert_refused('b4', 'host-b', device, 0.3)
        guest.wait_ready()
        wait_until(lambda: self.host_state('host-a')['incarnation'] not in ('', incarnation), 60, 'another incarnation')
        self.wait_gone('leaving')
        for name in ('dax', 'ram', 'coming'):
            self.wait_state(name, 'host-a', 'ONLINE', timeout=90)
        # The fabric never lost them: the new boot meets the same LDs.
        self.assertEqual({name: self.segment(name, 'host-a')['serial'] for name in serials}, serials)
        self.verify('host-a', 'dax', 41)
        self.program('host-a', 'pool-verify', '--region', 'ram', '--node', '--bytes', '16MiB')
        self.assert_accounts()
        self.granted('b4', 'host-b', 'cmm-2')
        for name in ('b4', 'dax', 'ram', 'coming'):
            self.pool.release(name)
        self.assert_sound()

    def test_5_a_host_that_was_off_gets_nothing_that_is_not_its_own(self):
        guest = self.pool.hosts['host-a']
        self.take('lost', 'host-a', 'cmm-0')
        self.take('kept', 'host-a', 'cmm-1')
        self.write('host-a', 'lost', 51)
        self.write('host-a', 'kept', 52)
        serial = self.segment('kept', 'host-a')['serial']
        guest.kill()  # The power is gone, and that is proof.
        self.pool.release('lost')
        self.granted('b5', 'host-b', 'cmm-0')
        self.write('host-b', 'b5', 53)
        self.assert_refused('b6', 'host-b', 'cmm-1', 1)
        with self.assertRaises(RackError):
            guest.output('true')
        guest.boot()
        wait_until(lambda: self.state('kept', 'host-a') == 'ONLINE' and self.segment('kept', 'host-a')['serial'] != serial,
                   90, 'what is its own is bound again')
        self.assertEqual({file for file, _, _ in self.witness.reach(guest).values()}, {str(self.file('cmm-1'))})
        self.assertEqual(guest.run('pool-touch lost 51 1').status, 3)
        self.check_file('cmm-1', 52)
        self.verify('host-b', 'b5', 53)
        self.check_file('cmm-0', 53)
        for name in ('kept', 'b5'):
            self.pool.release(name)
        self.assert_sound()

    def test_6_a_host_that_pulls_the_wrong_way_proves_nothing(self):
        guest = self.pool.hosts['host-a']
        self.take('a6', 'host-a', 'cmm-0')
        self.write('host-a', 'a6', 61)
        segment = self.segment('a6', 'host-a')
        self.stop_agent('host-a')
        [ld] = self.witness.reach(guest)
        # Slot Control before the power: the LD is in no list any more, and still loads and stores.
        guest.qmp('device_del', {'id': ld})
        guest.output(f'slot=/sys/bus/pci/slots/{segment["slot"]}; '
                     'port=$(basename $(readlink -f /sys/class/pci_bus/$(cut -d: -f1,2 $slot/address)/device)); '
                     'setpci -s $port CAP_EXP+18.w=0700:0700')
        wait_until(lambda: self.witness.reach(guest) == {}, 30, 'no list has it any more')
        address = int(segment['hpa_bytes']) + 4096
        guest.output(f'busybox devmem {address:#x} 64 0x6161616161616161')
        with open(self.file('cmm-0'), 'rb') as f:
            f.seek(4096)
            self.assertEqual(f.read(8), b'a' * 8, 'QEMU has changed its ways: this trial shows nothing any more')
        self.asked_to_release('a6')
        self.assert_refused('b6', 'host-b', 'cmm-0', 3)
        self.restart_manager(online='host-b')
        self.assert_refused('b6', 'host-b', 'cmm-0', 3)
        self.pool.cli('host', 'fence', 'host-a', '--reason', 'it pulled the wrong way', '--yes', timeout='40s')
        self.wait_gone('a6')
        self.granted('b6', 'host-b', 'cmm-0')
        self.pool.release('b6')
        guest.boot()
        self.assert_sound()

    def test_7_a_qemu_that_hangs_is_fenced(self):
        guest = self.pool.hosts['host-a']
        self.take('a7', 'host-a', 'cmm-0')
        self.write('host-a', 'a7', 71)
        process = guest.process
        os.kill(process.pid, signal.SIGSTOP)  # Neither its processors go on, nor does it answer on QMP.
        self.addCleanup(lambda: process.alive() and os.kill(process.pid, signal.SIGCONT))
        self.asked_to_release('a7')
        said = [self.wait_said(what, 'FABRIC_AWAY', 60) for what in ('host/host-a', 'region/a7')]
        self.assertEqual(said[1]['waits_for'], ['hosts/host-a'])
        self.assertEqual(said[0]['since'], said[1]['since'])
        self.assert_refused('b7', 'host-b', 'cmm-0', 1)
        self.check_file('cmm-0', 71)
        self.assertEqual(said[0]['commands'][-1], said[1]['commands'][-1])
        self.run_said(said[1]['commands'][-1])
        self.assertFalse(process.alive())
        self.wait_gone('a7')
        self.granted('b7', 'host-b', 'cmm-0')
        self.pool.release('b7')
        guest.boot()
        self.wait_ended('host/host-a', 'FABRIC_AWAY', 60)
        self.assert_sound()


if __name__ == '__main__':
    main()
