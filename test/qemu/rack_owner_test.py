"""Regions that live as long as a process, on a host with a real kernel: the process dies, alone or with its host, while the
manager or the agent is away, and the Region is released once. Persistent ones come back by themselves."""

from testbed.process import wait_until
from testbed.rack_trials import RackTrials
from testbed.testing import main

HOST = 'host-a'


class RackOwnerTest(RackTrials):
    topology = {'device': [{'name': f'cmm-{i}', 'size': '256 MiB'} for i in range(3)],
                'host': [{'name': HOST, 'bridges': 4, 'ports': 2}]}
    programs = ()

    def own(self, name, seed):
        """A process that allocates a Region and lives on; its pid."""
        pid, _ = self.hold(HOST, 'pool-write', '--allocate', '256MiB', '--name', name, '--seed', seed, '--hold', 600,
                           says='holding')
        self.assertEqual(self.pool.regions()[name]['owner']['pid'], pid)
        return pid

    def keep(self, name, seed):
        self.program(HOST, 'pool-write', '--allocate', '256MiB', '--name', name, '--seed', seed, '--persistent')
        self.assertNotIn('owner', self.pool.regions()[name])

    def kill(self, pid):
        self.pool.hosts[HOST].output(f'kill -9 {pid}')

    def assert_released_once(self, name):
        self.wait_gone(name, 90)
        log = self.pool.hosts[HOST].output('cat /var/log/cxlpool-agent.log')
        self.assertEqual(log.count(f'released regions/{name}: its owner has ended'), 1, log)

    def test_1_a_process_is_killed(self):
        self.keep('kept1', 11)
        self.kill(self.own('own1', 12))
        self.assert_released_once('own1')
        self.verify(HOST, 'kept1', 11)
        self.pool.release('kept1')
        self.assert_sound()

    def test_2_it_dies_while_the_manager_is_gone(self):
        pid, other = self.own('own2', 21), self.own('other2', 22)
        self.pool.manager.kill()
        self.kill(pid)
        self.pool.hosts[HOST].wait_for('grep -q "the owner of regions/own2, has ended" /var/log/cxlpool-agent.log')
        self.pool.start_manager()
        self.assert_released_once('own2')
        self.wait_state('other2', HOST, 'ONLINE')
        self.kill(other)
        self.assert_released_once('other2')
        self.assert_sound()

    def test_3_it_dies_while_no_agent_runs(self):
        pid, other = self.own('own3', 31), self.own('other3', 32)
        self.stop_agent(HOST)
        self.kill(pid)
        self.start_agent(HOST)
        self.assert_released_once('own3')
        self.pool.hosts[HOST].output(f'kill -0 {other}')
        self.wait_state('other3', HOST, 'ONLINE')
        self.kill(other)
        self.assert_released_once('other3')
        self.assert_sound()

    def test_4_its_host_is_reset(self):
        guest = self.pool.hosts[HOST]
        self.own('own4', 41)
        self.keep('kept4', 42)
        incarnation = self.host_state(HOST)['incarnation']
        guest.reset(wait=False)
        guest.wait_ready()
        wait_until(lambda: self.host_state(HOST)['incarnation'] not in ('', incarnation), 60, 'another incarnation')
        self.assert_released_once('own4')
        self.wait_state('kept4', HOST, 'ONLINE', timeout=90)
        self.verify(HOST, 'kept4', 42)
        self.pool.release('kept4')
        self.assert_sound()

    def test_5_its_host_is_reset_while_the_manager_is_gone(self):
        guest = self.pool.hosts[HOST]
        self.own('own5', 51)
        self.keep('kept5', 52)
        self.pool.manager.kill()
        guest.reset()
        self.pool.start_manager()
        self.assert_released_once('own5')
        self.wait_state('kept5', HOST, 'ONLINE', timeout=90)
        self.verify(HOST, 'kept5', 52)
        self.pool.release('kept5')
        self.assert_sound()


if __name__ == '__main__':
    main()
