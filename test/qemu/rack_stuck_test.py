"""Memory that a host cannot let go of: the release ends or says what is in its way, the agent answers all the while,
no byte is lost, and it goes on by itself once nothing is in the way any more."""

from testbed.process import wait_until
from testbed.rack_trials import RackTrials
from testbed.testing import main

HOST = 'host-a'
POLICY = '/sys/devices/system/memory/auto_online_blocks'
AUTOPROBE = '/sys/bus/dax/drivers_autoprobe'

# Says of each memory block that was not there at first in which zone it is online, unless it is Movable.
WATCH_ZONES = """#!/bin/sh
blocks=/sys/devices/system/memory
own=" $(ls $blocks | tr '\\n' ' ') "
echo watching
while :; do
  for block in $(ls $blocks | grep memory); do
    case $own in *" $block "*) continue ;; esac
    { read -r before; read -r zone rest <$blocks/$block/valid_zones; read -r after <$blocks/$block/state; } \\
      2>/dev/null <$blocks/$block/state || continue
    [ "$before $after" != 'online online' ] || [ "$zone" = Movable ] || echo "$block $zone"
  done
  usleep 20000
done
"""


class RackStuckTest(RackTrials):
    topology = {'device': [{'name': f'cmm-{i}', 'size': '256 MiB'} for i in range(2)],
                'host': [{'name': HOST, 'bridges': 4, 'ports': 2}]}
    programs = ('pool-pin', 'pool-ask')

    def setUp(self):
        super().setUp()
        self.guest = self.pool.hosts[HOST]
        self.agent = self.guest.output('cat /run/cxlpool-agent.pid')

    def take_ram(self, name):
        """All of cmm-0; its NUMA node."""
        self.take(name, HOST, 'cmm-0', '--mode', 'system-ram')
        return int(self.segment(name, HOST)['numa_node'])

    def pin(self, *words):
        pid, log = self.hold(HOST, 'pool-pin', *words, says='pinned')
        self.addCleanup(self.guest.run, f'kill -9 {pid}')
        return pid, log

    def assert_intact(self, pid, log):
        """What the program stored is what it finds."""
        self.guest.output(f'kill -USR1 {pid}')
        self.guest.wait_for(f'grep -qE "intact|damaged" {log}')
        self.assertNotIn('damaged', self.guest.output(f'cat {log}'))

    def pages_on(self, node, pid):
        return sum(int(word.split('=')[1]) for word in self.guest.output(f'cat /proc/{pid}/numa_maps').split()
                   if word.startswith(f'N{node}='))

    def online_blocks(self, segment):
        """How many memory blocks of a segment the kernel has not brought offline."""
        block = int(self.guest.output('cat /sys/devices/system/memory/block_size_bytes'), 16)
        first = int(segment['hpa_bytes']) // block
        states = self.guest.output('cat ' + ' '.join(f'/sys/devices/system/memory/memory{first + i}/state'
                                                     for i in range(segment['total_blocks'])))
        return sum(state != 'offline' for state in states.split())

    def assert_numbers(self, name):
        """What is reported of its memory blocks is how they are; some are still online."""
        def as_they_are():
            segment = self.segment(name, HOST)
            return segment['total_blocks'] == 2 and 0 < segment['online_blocks'] == self.online_blocks(segment)
        wait_until(as_they_are, 30, f'the blocks of {name} are reported as they are')

    def ask_meanwhile(self):
        """As ask(), about a Region of its own."""
        self.take('asked', HOST, 'cmm-1')
        ended = self.ask(HOST, 'asked')

        def answered():
            ended()
            self.pool.release('asked')
        return answered

    def wait_blocked(self, name):
        """Its release is RELEASE_BLOCKED; the reason that stands there, and that an operator is told; `said` ends it."""
        self.pool.release(name, wait=False)
        self.wait_state(name, HOST, 'RELEASE_BLOCKED', timeout=120)
        reason = self.pool.attachment(name, HOST)['state_reason']
        finding = self.wait_said(f'region/{name}', 'RELEASE_BLOCKED')
        self.assertIn(reason.split()[0], finding['text'])
        self.run_said(finding['commands'][0])
        self.said = finding['commands']
        self.assertEqual(self.said[1], f'on {HOST}: end the processes that use it')  # It knows none by libpool.
        return reason

    def end(self):
        self.assertEqual(self.guest.output('cat /run/cxlpool-agent.pid'), self.agent, 'the agent is the one it was')
        self.assert_sound()

    def test_1_locked_pages_move(self):
        node = self.take_ram('locked')
        pid, log = self.pin('mlock', node, 64)
        self.assertEqual(self.pages_on(node, pid), 64 << 20 >> 12)
        self.pool.release('locked')
        self.assertEqual(self.pages_on(node, pid), 0)
        self.assertRegex(self.guest.output(f'grep VmLck /proc/{pid}/status'), r'VmLck:\s+65536 kB')
        self.assert_intact(pid, log)
        self.guest.output(f'kill {pid}')
        self.end()

    def test_2_an_offline_that_hangs(self):
        node = self.take_ram('hung')
        pid, log = self.pin('vmsplice', node, 16)
        answered = self.ask_meanwhile()
        reason = self.wait_blocked('hung')
        self.assertRegex(reason, r'^BLOCKS_BUSY\b.*\bof 2\b')
        self.assert_numbers('hung')
        # Only a signal ends such an attempt, and it has ended.
        self.guest.wait_for(f'! pgrep -P {self.agent}', timeout=120)
        self.assert_refused('other', HOST, 'cmm-0', 1)
        # While another attempt goes on, a page that it would move is counted nowhere.
        wait_until(lambda: self.pages_on(node, pid) > 0, 60, 'the pages are on the node')
        self.assert_intact(pid, log)
        self.assertEqual(self.state('hung', HOST), 'RELEASE_BLOCKED')
        self.guest.output(f'kill {pid}')
        self.wait_gone('hung', timeout=120)
        answered()
        self.end()

    def test_3_a_mapping_that_stays(self):
        self.take('mapped', HOST, 'cmm-0')
        segment = self.segment('mapped', HOST)
        # Behind the agent's back: it was not asked for this one.
        pid, log = self.pin('devdax', '--ignore-signals', f'/dev/{segment["dax_device"]}')
        answered = self.ask_meanwhile()
        unbound = self.unbound()
        reason = self.wait_blocked('mapped')
        self.assertRegex(reason, rf'^HOLDERS.*\b{pid}\b')
        self.guest.output(f'kill -TERM {pid}; kill -INT {pid}; kill -HUP {pid}; kill -QUIT {pid}')
        self.assert_refused('other', HOST, 'cmm-0', 3)
        self.assert_intact(pid, log)
        self.assertEqual(self.unbound(), unbound)
        self.assertEqual({key: self.segment('mapped', HOST)[key] for key in ('dax_device', 'hpa_bytes')},
                         {key: segment[key] for key in ('dax_device', 'hpa_bytes')})
        self.assertEqual(self.state('mapped', HOST), 'RELEASE_BLOCKED')
        told = self.findings('region/mapped')['regions/mapped', 'RELEASE_BLOCKED']
        self.assertRegex(told['text'], rf'\b{pid}\b')
        self.guest.output(f'kill -9 {pid}')  # "end the processes that use it"
        self.wait_gone('mapped')
        answered()
        self.end()

    def unbound(self):
        """How often the agent took a DAX device from its driver."""
        return sum('UnbindDax: ' in line and 'in use' not in line
                   for line in self.guest.output('cat /var/log/cxlpool-agent.log').splitlines())

    def watch_zones(self):
        """Looks at all memory blocks all the while; the function that ends it and says which were online where none may be."""
        self.guest.put('/tmp/watch-zones', WATCH_ZONES.encode(), mode=0o755)
        pid, log = self.hold(HOST, '/tmp/watch-zones', says='watching')

        def seen():
            self.guest.output(f'kill {pid}')
            return self.guest.output(f'grep ^memory {log}; true')
        return seen

    def test_4_autoprobe_and_auto_online_left_on(self):
        self.stop_agent(HOST)
        self.guest.output(f'echo 1 >{AUTOPROBE}; echo online >{POLICY}')
        self.assertEqual(self.guest.output(f'cat {AUTOPROBE} {POLICY}').split(), ['1', 'online'])
        seen = self.watch_zones()
        self.start_agent(HOST)
        self.agent = self.guest.output('cat /run/cxlpool-agent.pid')
        self.pool.wait_hosts_online()
        self.guest.wait_for(f'grep -q 0 {AUTOPROBE}')
        for again in range(2):
            node = self.take_ram('auto')
            zones = self.guest.output(f'cat /sys/devices/system/node/node{node}/memory*/valid_zones').split('\n')
            self.assertEqual(zones, ['Movable'] * 2)
            self.take('dax', HOST, 'cmm-1')
            driver = f'/sys/bus/dax/devices/{self.segment("dax", HOST)["dax_device"]}/driver'
            self.assertEqual(self.guest.output(f'basename $(readlink {driver})'), 'device_dax')
            self.assertEqual(self.guest.output(f'cat {POLICY}'), 'online')  # It is this host's, not the pool's.
            self.pool.release('auto')
            self.pool.release('dax')
            # Somebody switches it on under the agent, as udev or modprobe may.
            self.guest.output(f'echo {1 - again} >{AUTOPROBE}')
        self.assertEqual(seen(), '')
        self.assertEqual(self.guest.output(f'cat {POLICY}'), 'online')
        self.end()

    def test_5_pages_that_cannot_move(self):
        # The kernel wins the race once: nobody is there, and it brings the memory online as it likes.
        self.agent_dies_at(HOST, 'after-CreateHostRegion')
        self.pool.allocate('kernel', self.size_of('cmm-0'), HOST, '--device', 'cmm-0', '--mode', 'system-ram', wait=False)
        self.wait_agent_dead(HOST)
        dax = self.guest.output('ls /sys/bus/dax/devices')
        self.guest.output(f'echo online >{POLICY}; echo {dax} >/sys/bus/dax/drivers_probe')
        node = int(self.guest.output(f'cat /sys/bus/dax/devices/{dax}/target_node'))
        wait_until(lambda: self.guest.run(f'cat /sys/devices/system/node/node{node}/memory*/valid_zones').out.split()
                   == ['Normal'] * 2, 30, 'the kernel brought the memory online')
        pid, _ = self.pin('pipes', node, 16)
        self.start_agent(HOST)
        self.agent = self.guest.output('cat /run/cxlpool-agent.pid')
        self.pool.wait_hosts_online()
        answered = self.ask_meanwhile()
        self.assertNotEqual(self.state('kernel', HOST), 'ONLINE')
        reason = self.wait_blocked('kernel')
        self.assertRegex(reason, r'^BLOCKS_BUSY\b.*\bof 2\b')
        self.assert_numbers('kernel')
        self.assert_refused('other', HOST, 'cmm-0', 1)
        self.guest.output(f'kill -0 {pid}')
        answered()
        self.assertEqual(self.guest.output('cat /run/cxlpool-agent.pid'), self.agent)
        # Some such pages nobody can free: what is left is the fence, which is written down.
        self.run_said(self.said[-1])
        self.wait_gone('kernel')
        self.guest.boot()
        self.assert_sound()


if __name__ == '__main__':
    main()
