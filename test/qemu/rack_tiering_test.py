"""The kernel's memory policy is the pool's while memory of the pool is system-ram, and else the host's own: through release,
stop and crash."""

from testbed.rack import RackPool
from testbed.rack_trials import SESSIONS, RackTrials
from testbed.testing import BUILD, main, require_qemu

HOST = 'host-a'
SAVED = '/run/cxlpool/kernel-policy'
DEMOTION = '/sys/kernel/mm/numa/demotion_enabled'
BALANCING = '/proc/sys/kernel/numa_balancing'
WEIGHTS = '/sys/kernel/mm/mempolicy/weighted_interleave'
AUTO = f'{WEIGHTS}/auto'
TIERING = """[tiering]
demotion = true
numa_balancing = "tiering"
local_weight = 3
pool_weight = 2
"""


class TieringPool(RackPool):
    def agent_toml(self, name):
        return super().agent_toml(name) + TIERING


class RackTieringTest(RackTrials):
    topology = {'device': [{'name': f'cmm-{i}', 'size': '256 MiB'} for i in range(2)],
                'host': [{'name': HOST, 'bridges': 4, 'ports': 2}]}

    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        pool = TieringPool(BUILD, directory, cls.topology)
        pool.manager_toml = SESSIONS
        return pool

    def setUp(self):
        super().setUp()
        self.guest = self.pool.hosts[HOST]
        self.own = self.policy()
        self.assertNotIn('true', self.own[DEMOTION])
        self.assertNotEqual(self.own[BALANCING], '2')

    def policy(self):
        """Every setting by file; the pool's nodes, which come and go, only while they are there."""
        lines = self.guest.output(f'grep -s "" {DEMOTION} {BALANCING} {WEIGHTS}/*').splitlines()
        return dict(line.split(':') for line in lines)

    def take_ram(self, name, device):
        """Its NUMA node."""
        self.take(name, HOST, device, '--mode', 'system-ram')
        return int(self.segment(name, HOST)['numa_node'])

    def wait_set(self, *nodes):
        self.guest.wait_for(f'grep -q true {DEMOTION} && grep -q 2 {BALANCING} && grep -qx 3 {WEIGHTS}/node0')
        for node in nodes:
            self.guest.wait_for(f'grep -qx 2 {WEIGHTS}/node{node}')
        self.guest.output(f'test -e {SAVED}')
        if AUTO in self.own:
            self.assertEqual(self.policy()[AUTO], 'false')

    def wait_own(self):
        self.wait_taken_back()
        # Linux 6.12 shows the weights of all nodes that there could be, Linux 7 of those that are.
        now = self.policy()
        if now.get(AUTO) != self.own.get(AUTO):  # The firmware of these machines tells no bandwidths.
            self.assertEqual(now[AUTO], 'false')
            self.assertRegex(self.log(), r'TIERING_UNSUPPORTED: .*/auto cannot be set to true')
            self.own[AUTO] = 'false'
        self.assertEqual({name: now[name] for name in self.own}, self.own)

    def wait_taken_back(self):
        """Nothing is saved any more but, on Linux 7, the weights of nodes that are gone."""
        self.guest.wait_for(f'! grep -svE "^cxlpool |^weighted_interleave/node[1-9]" {SAVED}')
        if AUTO not in self.own:
            self.guest.wait_for(f'! [ -e {SAVED} ]')

    def log(self):
        return self.guest.output('cat /var/log/cxlpool-agent.log')

    def test_1_from_the_first_memory_to_the_last(self):
        print(f'before: {self.own}')
        self.take('dax', HOST, 'cmm-1')
        self.assertEqual(self.policy(), self.own)
        self.pool.release('dax')
        first = self.take_ram('first', 'cmm-0')
        self.wait_set(first)
        print(f'with it: {self.policy()}')
        second = self.take_ram('second', 'cmm-1')
        self.wait_set(first, second)
        self.pool.release('first')
        self.wait_set(second)
        self.pool.release('second')
        self.wait_own()
        self.assertNotIn('this kernel has no', self.log())
        self.assert_sound()

    def test_2_stop_and_start(self):
        node = self.take_ram('kept', 'cmm-0')
        self.wait_set(node)
        self.guest.output('touch /run/agent.stop; kill -TERM $(cat /run/cxlpool-agent.pid)')
        self.wait_agent_dead(HOST)
        self.wait_own()
        # It ended well, as nobody else's agent does: assert_sound would take it for a crash.
        self.guest.output('sed -i "/ended with status 0$/d" /var/log/cxlpool-agent.log')
        self.guest.output(f'test -d /sys/devices/system/node/node{node}')  # The memory stays.
        self.start_agent(HOST)
        self.wait_set(node)
        self.pool.wait_hosts_online()
        self.pool.release('kept')
        self.wait_own()
        self.assert_sound()

    def test_3_a_crash_and_a_release(self):
        node = self.take_ram('kept', 'cmm-0')
        self.wait_set(node)
        self.stop_agent(HOST)
        self.wait_set(node)
        self.start_agent(HOST)
        self.pool.wait_hosts_online()
        self.wait_set(node)
        self.pool.release('kept')
        self.wait_own()
        self.assert_sound()

    def test_4_a_crash_when_nothing_is_left(self):
        """The agent dies with the memory offline and the policy set: the next one only has to take it back."""
        node = self.take_ram('gone', 'cmm-0')
        self.wait_set(node)
        self.stop_agent(HOST)
        self.guest.output(f'for b in /sys/devices/system/node/node{node}/memory*/state; do echo offline >$b; done')
        self.pool.release('gone', wait=False)
        self.start_agent(HOST)
        self.wait_gone('gone')
        self.wait_own()
        self.assert_sound()

    def test_5_what_somebody_else_changed(self):
        node = self.take_ram('kept', 'cmm-0')
        self.wait_set(node)
        self.guest.output(f'echo 1 >{BALANCING}')
        self.pool.release('kept')
        self.wait_taken_back()
        self.assertEqual(self.policy()[BALANCING], '1')
        self.assertIn('numa_balancing is not as the agent set it', self.log())
        self.guest.output(f'echo {self.own[BALANCING]} >{BALANCING}')
        self.wait_own()
        self.assert_sound()

    def test_6_the_check_knows(self):
        table = self.guest.run('cxlpool-agent check --offline').out
        self.assertRegex(table, r'(?m)^ok +tiering ')


if __name__ == '__main__':
    main()
