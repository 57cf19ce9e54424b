"""What the agent does alone: a manager that is gone for a minute; and what a host is refused that could not even describe
the memory to itself."""

import time

from testbed.pool import CliError
from testbed.rack_trials import RackTrials
from testbed.testing import main

HOST = 'host-a'
AWAY_S = 60


class RackAwayTest(RackTrials):
    # The kernel wants 64 bytes for each 4 KiB page: 512 MiB for the big one, which is all that the host has.
    topology = {'device': [{'name': 'cmm-0', 'size': '256 MiB'}, {'name': 'cmm-1', 'size': '256 MiB'},
                           {'name': 'big', 'size': '32 GiB'}],
                'host': [{'name': HOST, 'bridges': 4, 'ports': 2, 'memory': '512 MiB', 'window': '32 GiB'}]}
    programs = ('pool-ask',)

    def test_1_page_structs_that_would_not_fit(self):
        for mode in ('devdax', 'system-ram'):
            with self.subTest(mode):
                with self.assertRaises(CliError) as refused:
                    self.take('big', HOST, 'big', '--mode', mode)
                self.assertEqual(refused.exception.status, 5, refused.exception.stderr)
                self.assertIn('"reason": "PAGE_STRUCT_SPACE"', refused.exception.stderr)
                self.assert_accounts()
                self.assertEqual(self.pool.regions(), {})
        self.take('small', HOST, 'cmm-0', '--mode', 'system-ram')
        self.pool.release('small')
        self.assert_sound()

    def test_2_the_manager_is_gone_for_a_minute(self):
        guest = self.pool.hosts[HOST]
        self.take('dax', HOST, 'cmm-0')
        self.take('ram', HOST, 'cmm-1', '--mode', 'system-ram')
        self.write(HOST, 'dax', 21)
        before = {name: self.segment(name, HOST) for name in ('dax', 'ram')}
        agent = guest.output('cat /run/cxlpool-agent.pid')
        holder, _ = self.hold(HOST, 'pool-verify', '--region', 'dax', '--seed', 21, '--hold', 600, says='verified')
        answered = self.ask(HOST, 'dax')
        self.pool.manager.kill()
        end, uses = time.monotonic() + AWAY_S, 0
        while time.monotonic() < end:
            self.verify(HOST, 'dax', 21)
            self.program(HOST, 'pool-verify', '--region', 'ram', '--node', '--bytes', '16MiB')
            uses += 1
        print(f'{self._testMethodName}: used {uses} times meanwhile')
        answered()
        guest.output(f'kill -0 {holder}')
        self.pool.start_manager()
        self.pool.wait_hosts_online()
        self.assert_accounts()
        for name, segment in before.items():
            self.wait_state(name, HOST, 'ONLINE')
            self.assertEqual(self.segment(name, HOST), segment)
        self.verify(HOST, 'dax', 21)
        self.assertEqual(guest.output('cat /run/cxlpool-agent.pid'), agent)
        guest.output(f'kill {holder}')
        for name in before:
            self.pool.release(name)
        self.assert_sound()


if __name__ == '__main__':
    main()
