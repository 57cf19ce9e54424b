"""The Debian packages on a machine with a real systemd: from their installation over an upgrade, with memory online, to nothing left."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from running_units_test import AGENT, AGENT_TOML, CLI_TOML, FM_TOML, MANAGER
from testbed.machines import Machine, make_packages, require_machines
from testbed.process import wait_until
from testbed.testing import main

PACKAGES = ('cxlpool-agent', 'cxlpool-cli', 'cxlpool-doc', 'cxlpool-fm', 'libcxlpool-dev', 'libcxlpool-heap1', 'libcxlpool1',
            'python3-cxlpool')
BYTES = 64 << 20
# What dpkg, systemd and the machine itself write while anything is installed.
NOT_OURS = re.compile(r'/var/(lib/(dpkg|systemd|apt)|log|cache|backups)/|/etc/(passwd|group|shadow|gshadow)-|/etc/\.pwd\.lock|/etc/ld\.so\.cache|/packages|'
                      r'/newer|/proc|/sys|/dev|/run|/tmp|/root')


def newer(packages, directory):
    """The same packages once more, under a greater version. Returns it."""
    directory.mkdir()
    for package in packages:
        tree = directory / 'tree'
        subprocess.run(['dpkg-deb', '--raw-extract', package, tree], check=True)
        control = tree / 'DEBIAN/control'
        version = re.search(r'^Version: (.*)$', control.read_text(), re.M)[1]
        control.write_text(re.sub(rf'(^Version: |\(= ){re.escape(version)}', rf'\g<0>+1', control.read_text(), flags=re.M))
        subprocess.run(['dpkg-deb', '-Znone', '--root-owner-group', '--build', tree, directory / package.name], check=True,
                       capture_output=True)
        shutil.rmtree(tree)
    return f'{version}+1'


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = require_machines()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-package-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        packages = make_packages(cls.directory / 'packages')
        cls.names = sorted(path.name.partition('_')[0] for path in packages)
        cls.newer = newer(packages, cls.directory / 'newer')

    def setUp(self):
        self.machine = Machine('fm', self.root, self.directory / 'fm.log',
                               shares={f'/{name}': self.directory / name for name in ('packages', 'newer')})
        self.addCleanup(self.machine.stop)
        self.machine.start()
        self.before = self.files()
        self.machine.run('dpkg -i /packages/*.deb')

    def files(self):
        return {path for path in self.machine.output('find / -xdev').splitlines() if not NOT_OURS.match(path)}

    def purge(self):
        self.machine.run(f'dpkg --purge {" ".join(PACKAGES)}')
        self.assertEqual(sorted(self.files() - self.before), [])
        self.assertEqual(self.machine.output("dpkg-query -W -f '${Package}\\n' '*cxlpool*'", check=False), '')
        self.assertEqual(self.machine.output("systemctl list-unit-files --no-legend 'cxlpool*'", check=False), '')
        # The user stays, for its number must not become somebody else's.
        self.assertEqual(self.machine.output('grep -lw "^Uid:.*$(id -u cxlpool)" /proc/[0-9]*/status', check=False), '')
        self.assertEqual(self.machine.output('ls -d /run/cxlpool*', check=False), '')

    def configure(self):
        """As docs/install.md, on one machine."""
        self.machine.run('''
            cxlpool pki init --dir pki
            cxlpool pki issue manager fm --dir pki
            cxlpool pki issue host host-a --dir pki
            install -D -m 0644 -t /etc/cxlpool/pki pki/ca.pem pki/manager-fm.pem pki/host-host-a.pem
            install -m 0600 -o cxlpool -g cxlpool -t /etc/cxlpool/pki pki/manager-fm.key pki/host-host-a.key
            install -D -m 0644 /usr/share/doc/cxlpool/examples/cxlpool-agent-emulated.conf /etc/systemd/system/cxlpool-agent.service.d/emulated.conf
            systemctl daemon-reload
            ''')
        for name, text in (('fm', FM_TOML), ('agent', AGENT_TOML), ('cli', CLI_TOML)):
            self.machine.write(f'/etc/cxlpool/{name}.toml', text)
        self.machine.run(f'systemctl enable --now {MANAGER}; cxlpool host enrol host-a; systemctl enable --now {AGENT}')

    def pid(self, unit):
        state = self.machine.unit(unit, 'MainPID', 'SubState')
        return int(state['MainPID']) if state['SubState'] == 'running' else 0

    def wait_running(self, unit, *, not_pid=0):
        return wait_until(lambda: self.pid(unit) not in (0, not_pid) and self.pid(unit), 30, f'{unit} runs')

    def wait_online(self):
        wait_until(lambda: 'ONLINE' in self.machine.run('cxlpool host list', check=False).stdout, 30, 'the host is online')
        self.machine.run('pool-verify --region kv --seed 3')

    def assert_stays(self, package, why):
        refused = self.machine.run(f'dpkg --remove {package}', check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(why, refused.stderr)
        self.assertIn(f'{package} stays', refused.stderr)
        self.assertIn('CXLPOOL_REMOVE_ANYWAY=1', refused.stderr)
        self.assertEqual(self.machine.output(f"dpkg-query -W -f '${{Status}}' {package}"), 'deinstall ok installed')

    def test_from_install_to_purge(self):
        self.assertEqual(self.names, sorted(PACKAGES))
        for unit in (MANAGER, AGENT):
            self.assertEqual(self.machine.unit(unit, 'UnitFileState', 'ActiveState'), {'UnitFileState': 'disabled', 'ActiveState': 'inactive'})
        self.configure()
        self.machine.run(f'cxlpool region allocate kv --size {BYTES} --host host-a --wait; pool-write --region kv --seed 3')
        self.assertIn('kv', self.machine.output("python3 -c 'import cxlpool; print(cxlpool.open(\"kv\").name)'"))

        killed = self.pid(MANAGER)
        self.machine.run(f'kill -9 {killed}')
        self.wait_running(MANAGER, not_pid=killed)
        self.wait_online()

        pids = {unit: self.wait_running(unit) for unit in (MANAGER, AGENT)}
        self.machine.run('dpkg -i /newer/*.deb')
        for unit, pid in pids.items():
            self.wait_running(unit, not_pid=pid)
            self.assertEqual(self.machine.output(f"systemctl is-enabled {unit}; dpkg-query -W -f '${{Version}}' {unit}"), f'enabled\n{self.newer}')
        self.wait_online()

        self.assert_stays(MANAGER, 'the pool has 1 Region')
        self.assert_stays(AGENT, f'this host has {BYTES} bytes of the pool')
        for unit in (MANAGER, AGENT):
            self.wait_running(unit)
        self.wait_online()
        self.machine.run(f'systemctl stop {MANAGER}')
        self.assert_stays(MANAGER, 'the pool has 1 Region')
        self.assertEqual(self.pid(MANAGER), 0, 'it was stopped')
        self.machine.run(f'systemctl start {MANAGER}')
        self.wait_online()

        self.machine.run('cxlpool region release kv --detach-all --wait')
        self.machine.run('rm -r /etc/systemd/system/cxlpool-agent.service.d')
        self.purge()

    def test_the_same_build_makes_the_same_bytes(self):
        again = make_packages(self.directory / 'again')
        self.assertEqual([path.name for path in again if path.read_bytes() != (self.directory / 'packages' / path.name).read_bytes()], [])
        self.assertEqual(len(again), len(PACKAGES))

    def test_what_was_never_set_up_goes(self):
        self.purge()

    def test_it_can_be_removed_anyway(self):
        self.configure()
        self.machine.run(f'cxlpool region allocate kv --size {BYTES}')
        self.machine.run(f'mv /etc/cxlpool/fm.toml /root; systemctl stop {MANAGER}')
        self.assert_stays(MANAGER, '/etc/cxlpool/fm.toml')
        self.machine.run(f'CXLPOOL_REMOVE_ANYWAY=1 dpkg --remove {MANAGER}; test -s /var/lib/cxlpool/pool.db')
        self.machine.run('rm -r /etc/systemd/system/cxlpool-agent.service.d; systemctl daemon-reload')
        self.purge()


if __name__ == '__main__':
    main()
