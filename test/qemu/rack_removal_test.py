"""Surprise removal: an LD is taken out of the host in each state of its Attachment. Agent and manager live on, the ladder
binds it again or ends, an application gets a SIGBUS that it can handle, and no byte goes astray."""

import json

from testbed.pool_bytes import check_pattern
from testbed.process import wait_until
from testbed.rack_trials import SLICE, RackTrials
from testbed.testing import main

HOST = 'host-a'


class RackRemovalTest(RackTrials):
    topology = {'device': [{'name': f'cmm-{i}', 'size': '256 MiB'} for i in range(2)],
                'host': [{'name': HOST, 'bridges': 4, 'ports': 2}]}

    def setUp(self):
        super().setUp()
        self.guest = self.pool.hosts[HOST]
        self.manager = self.pool.manager.process.pid

    def attach(self, name):
        self.pool.allocate(name, self.size_of('cmm-0'), HOST, '--device', 'cmm-0', wait=False)

    def pull_ld_of(self, name):
        """Its serial, which the host has seen for the last time."""
        segment = self.segment(name, HOST)
        self.pull(HOST, segment['slot'])
        return segment['serial']

    def wait_bound_again(self, name, serial):
        wait_until(lambda: self.state(name, HOST) == 'ONLINE' and self.segment(name, HOST)['serial'] != serial, 90,
                   f'{name} is online under a new serial')

    def check_pattern(self, device, seed):
        check_pattern(self, [(self.pool.rack.device_path(device), 0, SLICE)], seed)

    def end(self, name):
        """Nothing of what was lost is left in the host, whose decoders are as free as at first."""
        if name in self.pool.regions():
            self.pool.release(name)
        self.assertEqual(self.pool.manager.process.pid, self.manager)
        self.pool.wait_hosts_online()
        def bridges():
            return [(b['live_regions'], b['blocked']) for b in self.host_state(HOST)['bridges']]
        wait_until(lambda: bridges() == [(0, False)] * 4, 30, 'every host bridge is free')
        # -i: also a region that is disabled, as all are whose memdevs were pulled out.
        for what in ('-Ri', '-M'):
            wait_until(lambda: self.cxl_list(what) == [], 20, f'cxl list {what} is empty')
        self.assert_sound()

    def cxl_list(self, what):
        return json.loads(self.guest.output(f'cxl list {what}') or '[]')

    def test_1_bound_and_no_agent_to_see_it(self):
        self.agent_dies_at(HOST, 'before-PowerOn')
        self.attach('bound')
        self.wait_agent_dead(HOST)
        self.wait_state('bound', HOST, 'BOUND')
        serial = self.pull_ld_of('bound')
        self.start_agent(HOST)
        self.wait_bound_again('bound', serial)
        self.end('bound')

    def test_2_half_way_up(self):
        self.agent_dies_at(HOST, 'before-BindDax')
        self.attach('region')
        self.wait_agent_dead(HOST)
        serial = self.pull_ld_of('region')
        self.start_agent(HOST)
        self.wait_bound_again('region', serial)
        self.end('region')

    def test_3_online_and_mapped(self):
        self.take('other', HOST, 'cmm-1')
        self.write(HOST, 'other', 30)
        other = self.segment('other', HOST)
        self.take('mapped', HOST, 'cmm-0')
        _, log = self.hold(HOST, 'pool-touch', 'mapped', 31, 600, says='touching')
        agent = self.guest.output('cat /run/cxlpool-agent.pid')
        serial = self.pull_ld_of('mapped')
        self.guest.wait_for(f'grep -q "SIGBUS BUS_ADRERR, and it lives on" {log}', timeout=60)
        self.wait_bound_again('mapped', serial)
        self.assertEqual(self.guest.output('cat /run/cxlpool-agent.pid'), agent)
        self.verify(HOST, 'mapped', 31)  # The bytes were safe in the pool.
        # Contained: who has other memory noticed nothing.
        self.assertEqual(self.segment('other', HOST), other)
        self.verify(HOST, 'other', 30)
        self.pool.release('other')
        self.end('mapped')

    def test_4_online_and_no_manager_to_see_it(self):
        self.take('unseen', HOST, 'cmm-0')
        self.write(HOST, 'unseen', 41)
        segment = self.segment('unseen', HOST)
        self.pool.manager.kill()
        self.pull(HOST, segment['slot'])
        self.pool.start_manager()
        self.manager = self.pool.manager.process.pid
        self.wait_bound_again('unseen', segment['serial'])
        self.check_pattern('cmm-0', 41)
        self.end('unseen')

    def test_5_online_and_released_before_the_agent_sees_it(self):
        self.take('orphan', HOST, 'cmm-0')
        self.stop_agent(HOST)
        self.pull_ld_of('orphan')
        self.pool.release('orphan')  # It ends without the agent: the fabric has proof.
        self.start_agent(HOST)
        self.end('orphan')

    def test_6_half_way_down(self):
        self.take('down', HOST, 'cmm-0')
        self.agent_dies_at(HOST, 'after-UnbindDax')
        self.pool.release('down', wait=False)
        self.wait_agent_dead(HOST)
        self.pull_ld_of('down')
        self.start_agent(HOST)
        self.wait_gone('down')
        self.end('down')

    def test_7_ejecting(self):
        self.take('ejecting', HOST, 'cmm-0')
        self.agent_dies_at(HOST, 'before-PowerOff')
        self.pool.release('ejecting', wait=False)
        self.wait_agent_dead(HOST)
        self.wait_state('ejecting', HOST, 'EJECTING')
        self.pull_ld_of('ejecting')
        self.wait_gone('ejecting')  # The proof is the fabric's; no agent has to say anything.
        self.start_agent(HOST)
        self.end('ejecting')

    def test_8_blocked_by_its_user(self):
        self.take('held', HOST, 'cmm-0')
        _, log = self.hold(HOST, 'pool-touch', 'held', 81, 600, says='touching')
        self.pool.release('held', wait=False)
        self.wait_state('held', HOST, 'RELEASE_BLOCKED')
        self.pull_ld_of('held')
        self.guest.wait_for(f'grep -q "SIGBUS BUS_ADRERR, and it lives on" {log}', timeout=60)
        self.wait_gone('held')
        self.end('held')

    def test_9_system_ram(self):
        self.take('ram', HOST, 'cmm-0', '--mode', 'system-ram')
        serial = self.pull_ld_of('ram')
        self.wait_bound_again('ram', serial)
        self.end('ram')

    def test_a_pulled_between_two_agents(self):
        """The new agent finds a host region without targets, and knows whose it was by the word of the one before."""
        self.take('orphan', HOST, 'cmm-0')
        self.stop_agent(HOST)
        self.pull_ld_of('orphan')
        self.pool.release('orphan')  # Nobody has a record of it any more.
        [region] = self.cxl_list('-Ri')
        self.assertEqual(region.get('decode_state', 'reset'), 'reset', region)
        self.start_agent(HOST)
        wait_until(lambda: self.cxl_list('-Ri') == [], 20, 'the host region is gone')
        self.end('orphan')

    def test_b_a_fatal_error_takes_the_dax_device_away(self):
        """The kernel resets the link: host region and memdev are there, the DAX device is not, and who had it mapped gets a
        SIGBUS. It says that recovery failed where the driver was given back while the kernel took it away (test_c): what
        follows is the same."""
        if not self.guest.output('uname -r').startswith('6.'):
            self.skipTest('from 7.x on this kernel hears nothing of what QEMU injects')
        self.take('fatal', HOST, 'cmm-0')
        self.write(HOST, 'fatal', 31)
        _, log = self.hold(HOST, 'pool-touch', 'fatal', 31, 600, says='touching')
        [ld] = self.witness.reach(self.guest)
        memdev = self.segment('fatal', HOST)['memdev']
        function = self.guest.output(f'basename $(dirname $(readlink -f /sys/bus/cxl/devices/{memdev}))')
        # Internal errors are masked at first: bit 22 of the Uncorrectable Error Mask.
        self.guest.output(f'setpci -s {function} ECAP_AER+8.l=0:400000')
        self.guest.qmp('cxl-inject-uncorrectable-errors', {
            'path': f'/machine/peripheral/{ld}', 'errors': [{'type': 'cache-address-parity', 'header': list(range(32))}]})
        self.guest.wait_for(f'grep -q "SIGBUS BUS_ADRERR, and it lives on" {log}', timeout=60)
        self.guest.wait_for('dmesg | grep -qE "device recovery (successful|failed)"', timeout=60)
        driver = '/sys/bus/dax/devices/dax*/driver'
        wait_until(lambda: self.guest.run(f'readlink {driver}').out.strip().endswith('device_dax')
                   and self.state('fatal', HOST) == 'ONLINE', 60, 'the DAX device was made again')
        self.verify(HOST, 'fatal', 31)  # The bytes were safe in the pool.
        self.end('fatal')

    def test_c_a_memdev_without_its_driver(self):
        """The kernel leaves a memdev like this when it takes the driver away and gives it back at the same time (see test_b)."""
        self.agent_dies_at(HOST, 'before-CreateHostRegion')
        self.attach('bare')
        self.wait_agent_dead(HOST)
        self.guest.output('cd /sys/bus/cxl/drivers/cxl_mem && basename mem* >unbind')
        self.start_agent(HOST)
        self.wait_state('bare', HOST, 'ONLINE')
        self.end('bare')


if __name__ == '__main__':
    main()
