"""The units under a real systemd: what they start, what they allow, and that neither daemon stays dead."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from testbed.machines import EMULATED_FM_TOML, Machine, require_machines
from testbed.process import wait_until
from testbed.testing import BUILD, main

MANAGER, AGENT = 'cxlpool-fm', 'cxlpool-agent'

FM_TOML = EMULATED_FM_TOML + '''
[[host]]
id = "host-a"
slots = [17, 18]
'''

AGENT_TOML = '''
host = "host-a"
adapter = "emulated"
[manager]
address = "127.0.0.1:7600"
[tls]
ca = "/etc/cxlpool/pki/ca.pem"
cert = "/etc/cxlpool/pki/host-host-a.pem"
key = "/etc/cxlpool/pki/host-host-a.key"
[applications]
max_connections = 4096
[emulated]
root = "/var/lib/cxlpool/fabric"
[[emulated.bridge]]
name = "ACPI0016:00"
slots = [17, 18]
'''

CLI_TOML = 'manager = "unix:/run/cxlpool-fm/fm.sock"\n'


class RunningUnitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        root = require_machines()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-units-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        subprocess.run(['cmake', '--install', BUILD, '--prefix', '/usr'], check=True, capture_output=True, timeout=120,
                       env={**os.environ, 'DESTDIR': str(cls.directory / 'tree')})
        cls.machine = Machine('fm', root, cls.directory / 'fm.log', shares={'/tree': cls.directory / 'tree'})
        cls.addClassCleanup(cls.machine.stop)
        cls.machine.start()
        cls.machine.run('''
            cp -a /tree/usr/. /usr/
            systemd-sysusers
            systemctl daemon-reload
            mkdir -p /etc/cxlpool/pki
            cxlpool pki init --dir /etc/cxlpool/pki
            cxlpool pki issue manager fm --dir /etc/cxlpool/pki
            cxlpool pki issue host host-a --dir /etc/cxlpool/pki
            chown cxlpool: /etc/cxlpool/pki/*-*.key
            mkdir -p /etc/systemd/system/cxlpool-agent.service.d
            ''')
        cls.machine.write('/etc/cxlpool/cli.toml', CLI_TOML)

    def setUp(self):
        """A pool of its own for each test: nothing is left of the one before."""
        self.machine.run(f'''
            systemctl stop {AGENT} {MANAGER}
            systemctl reset-failed
            rm -rf /var/lib/cxlpool/* /etc/systemd/system/cxlpool-*.service.d/*
            cp /usr/share/doc/cxlpool/examples/cxlpool-agent-emulated.conf /etc/systemd/system/cxlpool-agent.service.d/
            systemctl daemon-reload
            ''')
        self.machine.write('/etc/cxlpool/fm.toml', FM_TOML)
        self.machine.write('/etc/cxlpool/agent.toml', AGENT_TOML)

    def start_both(self):
        self.machine.run(f'systemctl start {MANAGER}; cxlpool host enrol host-a; systemctl start {AGENT}')

    def state(self, unit):
        return self.machine.unit(unit, 'ActiveState', 'SubState', 'Result', 'NRestarts', 'ExecMainStatus', 'MainPID')

    def is_online(self):
        return 'ONLINE' in self.machine.run('cxlpool host list', check=False).stdout

    def write_and_verify(self, name):
        self.machine.run(f'cxlpool region allocate {name} --size 16MiB --host host-a --wait')
        self.machine.run(f'pool-write --region {name} --seed 3 && pool-verify --region {name} --seed 3')
        self.machine.run(f'cxlpool region release {name} --detach-all --wait')

    def test_a_region_from_start_to_end(self):
        self.start_both()
        self.write_and_verify('kv')
        self.machine.run(f'systemctl stop {AGENT} {MANAGER}')
        for unit in (AGENT, MANAGER):
            state = self.state(unit)
            self.assertEqual((state['ActiveState'], state['Result'], state['NRestarts']), ('inactive', 'success', '0'))
        # The agent's stays for the next of this boot; nothing of the manager's but its state does.
        self.assertEqual(self.machine.output('ls -d /run/cxlpool*'), '/run/cxlpool')
        self.assertEqual(self.machine.run('pgrep -u cxlpool || ps -C cxlpool-fm,cxlpool-agent', check=False).stdout, '')

    def test_one_request_is_followed_in_the_journal(self):
        self.start_both()
        request = '0b0e6a1c-0000-4000-8000-000000000001'
        self.machine.run(f'cxlpool region allocate kv --size 16MiB --host host-a --wait --request-id {request}')
        self.machine.run('cxlpool region release kv --detach-all --wait')
        self.machine.run('journalctl --sync')
        entries = [json.loads(line) for line in
                   self.machine.output(f'journalctl --no-pager -o json CXLPOOL_REQUEST_ID={request}').splitlines()]
        for unit, rungs in ((MANAGER, {'BOUND', 'ONLINE', 'ALLOCATED'}), (AGENT, {'PowerOn', 'CreateHostRegion', 'BindDax'})):
            own = [entry for entry in entries if entry['_SYSTEMD_UNIT'] == f'{unit}.service']
            self.assertEqual({entry['SYSLOG_IDENTIFIER'] for entry in own}, {unit})
            self.assertEqual({entry['CXLPOOL_REGION'] for entry in own}, {'kv'})
            self.assertLessEqual(rungs, {entry.get('CXLPOOL_RUNG') for entry in own})

    def test_the_first_allocation_of_a_new_pool(self):
        """Twenty times: READY=1 comes when the devices are there."""
        for number in range(20):
            with self.subTest(number):
                self.machine.run(f'systemctl stop {MANAGER}; rm -rf /var/lib/cxlpool/*; systemctl start {MANAGER}; '
                                 'cxlpool region allocate kv --size 16MiB')

    def test_what_the_manager_runs_as(self):
        self.start_both()
        pid = self.state(MANAGER)['MainPID']
        status = self.machine.output(f'cat /proc/{pid}/status')
        user = self.machine.output('id -u cxlpool')
        self.assertRegex(status, rf'(?m)^Uid:\t{user}\t{user}\t{user}\t{user}$')
        for line in ('CapPrm:\t0000000000000000', 'CapEff:\t0000000000000000', 'CapBnd:\t0000000000000000', 'NoNewPrivs:\t1',
                     'Seccomp:\t2'):
            self.assertIn(line, status)
        unit, system = (re.search(r'Max open files +(\d+) +(\d+)', self.machine.output(f'cat /proc/{which}/limits')).groups()
                      for which in (pid, 1))
        self.assertEqual(int(unit[0]), min(65536, int(system[1])))
        self.assertEqual(self.machine.output('stat -c "%U %a" /var/lib/cxlpool /var/lib/cxlpool/pool.db'),
                         'cxlpool 700\ncxlpool 600')

    def test_who_may_be_operator_by_the_socket(self):
        self.machine.run(f'systemctl start {MANAGER}')
        self.machine.run('cxlpool capacity')
        self.machine.run('runuser -u cxlpool -- cxlpool capacity')
        refused = self.machine.run('setpriv --reuid=65534 --regid=65534 --clear-groups cxlpool --timeout 1s capacity',
                                   check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn('MANAGER_UNREACHABLE', refused.stderr)

    def test_seven_kills_leave_both_running(self):
        """1.4 s apart, where systemd's own limit is five starts in 10 s."""
        self.start_both()
        for _ in range(7):
            for unit in (AGENT, MANAGER):
                wait_until(lambda unit=unit: self.state(unit)['MainPID'] != '0', 20, f'{unit} is started again')
            self.machine.run(f'systemctl kill --signal=KILL --kill-who=main {AGENT} {MANAGER}')
            time.sleep(1.4)
        wait_until(self.is_online, 30, 'the host is online again')
        for unit in (AGENT, MANAGER):
            wait_until(lambda unit=unit: self.state(unit)['SubState'] == 'running', 20, f'{unit} says that it is ready')
            self.assertGreaterEqual(int(self.state(unit)['NRestarts']), 7)
        self.write_and_verify('kv')

    def test_the_watchdog_restarts_what_hangs(self):
        for unit in (AGENT, MANAGER):
            self.machine.write(f'/etc/systemd/system/{unit}.service.d/watchdog.conf', '[Service]\nWatchdogSec=2\n')
        self.machine.run('systemctl daemon-reload')
        self.start_both()
        for unit in (AGENT, MANAGER):
            self.machine.run(f'systemctl kill --signal=STOP --kill-who=main {unit}')
            wait_until(lambda unit=unit: int(self.state(unit)['NRestarts']) >= 1, 20, f'{unit} is started again')
        wait_until(self.is_online, 30, 'the host is online again')
        self.write_and_verify('kv')

    def test_a_wrong_configuration_is_told_and_not_tried_again(self):
        self.machine.run(f'systemctl start {MANAGER}; systemctl stop {MANAGER}')  # Its folders are there for the agent.
        self.machine.write('/etc/cxlpool/fm.toml', FM_TOML.replace('granule', 'granul'))
        self.machine.write('/etc/cxlpool/agent.toml', AGENT_TOML.replace('adapter', 'adaptor'))
        for unit, what in ((MANAGER, 'granul'), (AGENT, 'adapter: is missing')):
            # The journal is busy meanwhile: it reads the line when who wrote it has ended.
            self.machine.run('systemctl kill --signal=STOP systemd-journald')
            self.assertNotEqual(self.machine.run(f'systemctl start {unit}', check=False).returncode, 0)
            self.machine.run('systemctl kill --signal=CONT systemd-journald')
            time.sleep(2.5)
            state = self.state(unit)
            self.assertEqual((state['ActiveState'], state['ExecMainStatus'], state['NRestarts']), ('failed', '78', '0'))
            self.assertIn(what, self.machine.journal(unit))

    def test_a_reload_takes_over_what_it_can_and_refuses_what_will_not_do(self):
        self.start_both()
        wait_until(self.is_online, 30, 'the host is online')
        pids = [self.state(unit)['MainPID'] for unit in (AGENT, MANAGER)]
        self.machine.write('/etc/cxlpool/drain', '#!/bin/sh\ntouch /run/cxlpool/drained')
        self.machine.run('chmod 0755 /etc/cxlpool/drain')
        release = '\n[release]\ndrain_hook = "/etc/cxlpool/drain"\n'
        for unit, file, why, good, bad in (
                (MANAGER, 'fm', 'access.admin', FM_TOML + '\n[access]\nadmins = ["cxlpool://operator/alice"]\n', FM_TOML + '\n[access]\nadmin = []\n'),
                (AGENT, 'agent', '/etc/cxlpool/none is not run', AGENT_TOML + release, AGENT_TOML + release.replace('drain"', 'none"'))):
            self.machine.write(f'/etc/cxlpool/{file}.toml', bad)
            refused = self.machine.run(f'systemctl reload {unit}', check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertEqual(self.state(unit)['ActiveState'], 'active')
            self.assertIn(why, self.machine.journal(unit, lines=5))
            self.machine.write(f'/etc/cxlpool/{file}.toml', 'log_level = "info"' + good)
            self.machine.run(f'systemctl reload {unit}')
            wait_until(lambda unit=unit: 'was read again' in self.machine.journal(unit), 10, f'{unit} has read it')
        # What is online is taken by a release with force: the hook has run first.
        self.machine.run('cxlpool region allocate kv --size 16MiB --host host-a --wait')
        self.machine.run('cxlpool region release kv --detach-all --wait')
        self.assertEqual(self.machine.run('ls /run/cxlpool/drained', check=False).stdout.strip(), '/run/cxlpool/drained')
        # Only warnings from now on.
        self.machine.write('/etc/cxlpool/fm.toml', 'log_level = "warning"' + FM_TOML)
        self.machine.run(f'systemctl reload {MANAGER}; sleep 1')
        self.machine.run('cxlpool region allocate quiet --size 16MiB; cxlpool region release quiet --wait')
        self.assertNotIn('quiet', self.machine.journal(MANAGER))
        self.assertEqual(pids, [self.state(unit)['MainPID'] for unit in (AGENT, MANAGER)])

    def test_a_start_that_fails_leaves_no_device_behind(self):
        """The example's TLS files are not there: its devices must not become the pool's."""
        self.machine.run('cp /usr/share/doc/cxlpool/examples/fm.toml /etc/cxlpool/fm.toml; '
                         'sed -i s,/etc/cxlpool/pki/,/etc/cxlpool/none/, /etc/cxlpool/fm.toml')
        self.assertNotEqual(self.machine.run(f'systemctl start {MANAGER}', check=False).returncode, 0)
        self.machine.run(f'systemctl stop {MANAGER}')
        self.machine.write('/etc/cxlpool/fm.toml', FM_TOML)
        self.machine.run(f'systemctl start {MANAGER}')
        self.machine.run('cxlpool region allocate kv --size 16MiB')

    def test_certificates_are_read_anew(self):
        self.start_both()
        wait_until(self.is_online, 30, 'the host is online')
        pids = [self.state(unit)['MainPID'] for unit in (AGENT, MANAGER)]

        def serial():
            return re.search(r'"certificate_?[sS]erial": *"(\w+)"', self.machine.output('cxlpool -o json host show host-a'))[1]
        before = serial()
        self.machine.run(f'''
            cxlpool pki issue manager fm --force --dir /etc/cxlpool/pki
            cxlpool pki issue host host-a --force --dir /etc/cxlpool/pki
            chown cxlpool: /etc/cxlpool/pki/*-*.key
            systemctl reload {MANAGER} {AGENT}
            cxlpool host fence host-a --reason test --yes
            ''')
        # The fence ended the agent's session: the next one is with the new certificate.
        wait_until(lambda: self.is_online() and serial() != before, 30, 'the agent shows its new certificate')
        self.write_and_verify('kv')
        self.assertEqual([self.state(unit)['MainPID'] for unit in (AGENT, MANAGER)], pids)

    def test_the_agent_of_a_host_with_hardware(self):
        """Its unit as it is: root with three capabilities. This machine has no CXL, so it runs, and is unfit."""
        self.machine.run('rm /etc/systemd/system/cxlpool-agent.service.d/*; systemctl daemon-reload; '
                         'chown root: /etc/cxlpool/pki/host-host-a.key')
        text = AGENT_TOML.replace('"emulated"', '"linux"')
        self.machine.write('/etc/cxlpool/agent.toml', text[:text.index('[emulated]')])
        self.machine.run(f'systemctl start {MANAGER}; cxlpool host enrol host-a; systemctl start --no-block {AGENT}')
        try:
            wait_until(lambda: re.search(r'"unfit_reason": *"[^"]', self.machine.output('cxlpool -o json host list')), 20,
                       'the manager hears what is missing on the host')
            pid = self.state(AGENT)['MainPID']
            status = self.machine.output(f'cat /proc/{pid}/status')
            # CAP_DAC_READ_SEARCH (2), CAP_SYS_PTRACE (19), CAP_SYS_ADMIN (21).
            self.assertIn(f'CapEff:\t{1 << 2 | 1 << 19 | 1 << 21:016x}', status)
            self.assertIn('Seccomp:\t2', status)
            self.assertIn('Uid:\t0\t0\t0\t0', status)
        finally:
            self.machine.run('chown cxlpool: /etc/cxlpool/pki/host-host-a.key')

    def test_the_agent_has_descriptors_for_all_its_connections(self):
        self.start_both()
        path = f'/proc/{self.machine.leader}/root/run/cxlpool/agent.sock'
        connections = []
        try:
            for _ in range(4090):
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.connect(path)
                connections.append(connection)
            self.write_and_verify('kv')
        finally:
            for connection in connections:
                connection.close()


if __name__ == '__main__':
    main()
