"""The Debian packages on a machine with a real systemd: from their installation over an upgrade, with memory online, to nothing left."""

import re
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from running_units_test import AGENT, AGENT_TOML, CLI_TOML, FM_TOML, MANAGER
from testbed.machines import Machine, make_packages, require_machines
from testbed.process import wait_until
from testbed.testing import main

PACKAGES = ('cxlpool-agent', 'cxlpool-cli', 'cxlpool-doc', 'cxlpool-fm', 'libcxlpool-dev', 'libcxlpool-heap1', 'libcxlpool1',
            'cxlpool-slurm', 'python3-cxlpool')
BYTES = 64 << 20
# Reads all of its mapping again and again, until it is told to end; says then how often the bytes were right.
READER = """
import hashlib, os, time, cxlpool
map = cxlpool.open('kv').map()
right, times = hashlib.sha256(map).digest(), 0
while not os.path.exists('/run/enough'):
    if hashlib.sha256(map).digest() != right:
        raise SystemExit('other bytes')
    times += 1
    open('/run/times', 'w').write(str(times))
    time.sleep(0.1)
"""
# Where SQLite has the number of the schema (PRAGMA user_version): a big-endian word.
SCHEMA_OFFSET = 60
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

    def boot(self):
        """A machine with the packages, new."""
        self.machine = Machine('fm', self.root, self.directory / 'fm.log',
                               shares={f'/{name}': self.directory / name for name in ('packages', 'newer')})
        self.addCleanup(self.machine.stop)
        self.machine.start()
        self.before = self.files()
        self.machine.run('dpkg -i /packages/*.deb')

    def test_guides_are_read_as_they_are(self):
        """None is compressed, so that the links from one to another hold."""
        doc = next((self.directory / 'packages').glob('cxlpool-doc_*.deb'))
        files = subprocess.run(['dpkg-deb', '--contents', doc], capture_output=True, text=True, check=True).stdout.splitlines()
        guides = [line.rpartition('/')[2] for line in files if '/usr/share/doc/cxlpool/' in line]
        self.assertIn('operations.md', guides)
        self.assertEqual([name for name in guides if name.endswith('.md.gz')], [])

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

    def begin_to_read(self):
        """A program that has the Region mapped from here on."""
        self.machine.write('/run/reader.py', READER)
        self.machine.run('setsid sh -c "python3 /run/reader.py >/run/reader.log 2>&1; echo $? >/run/reader.status" </dev/null >/dev/null 2>&1 &')
        self.wait_read_again(0)

    def times_read(self):
        return int(self.machine.output('cat /run/times || cat /run/reader.log >&2', check=False) or 0)

    def wait_read_again(self, times):
        wait_until(lambda: self.times_read() > times, 30, 'the program that has it mapped reads its bytes again')

    def end_reading(self):
        self.wait_read_again(self.times_read())
        self.machine.run('touch /run/enough')
        wait_until(lambda: self.machine.output('cat /run/reader.status', check=False), 30, 'the program that reads ends')
        self.assertEqual(self.machine.output('cat /run/reader.status /run/reader.log'), '0')

    def schema(self, more=0):
        """The number of the store's schema, after `more` was added to it. The manager is stopped."""
        return int(self.machine.output(f'''python3 -c "
with open('/var/lib/cxlpool/pool.db', 'r+b') as store:
    store.seek({SCHEMA_OFFSET})
    number = int.from_bytes(store.read(4)) + {more}
    store.seek({SCHEMA_OFFSET})
    store.write(number.to_bytes(4))
    print(number)"'''))

    def assert_stays(self, package, why):
        refused = self.machine.run(f'dpkg --remove {package}', check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(why, refused.stderr)
        self.assertIn(f'{package} stays', refused.stderr)
        self.assertIn('CXLPOOL_REMOVE_ANYWAY=1', refused.stderr)
        self.assertEqual(self.machine.output(f"dpkg-query -W -f '${{Status}}' {package}"), 'deinstall ok installed')

    def test_from_install_to_purge(self):
        self.boot()
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

        self.begin_to_read()
        pids = {unit: self.wait_running(unit) for unit in (MANAGER, AGENT)}
        self.machine.run('dpkg -i /newer/*.deb')
        for unit, pid in pids.items():
            self.wait_running(unit, not_pid=pid)
            self.assertEqual(self.machine.output(f"systemctl is-enabled {unit}; dpkg-query -W -f '${{Version}}' {unit}"), f'enabled\n{self.newer}')
        self.wait_online()
        self.downgrade_and_return()
        self.hang()
        self.end_reading()

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
        self.machine.run('rm -r /etc/systemd/system/cxlpool-*.service.d')
        self.purge()

    def downgrade_and_return(self):
        """The newer release wrote a schema of its own; the older one says so, and is not started again and again."""
        self.machine.run(f'systemctl stop {MANAGER}')
        known = self.schema()
        self.schema(more=1)
        self.machine.run(f'dpkg -i /packages/{MANAGER}_*.deb')
        self.assertNotEqual(self.machine.run(f'systemctl start {MANAGER}', check=False).returncode, 0)
        time.sleep(2.5)  # More than RestartSec=.
        self.assertEqual(self.machine.unit(MANAGER, 'ActiveState', 'ExecMainStatus', 'NRestarts'),
                         {'ActiveState': 'failed', 'ExecMainStatus': '78', 'NRestarts': '0'})
        said = self.machine.run(f'systemctl status --full {MANAGER}', check=False).stdout
        self.assertIn(f'was written by a later release: schema {known + 1}, this one knows {known}', said)
        self.assertIn('run that release, or restore the backup made before the update', said)
        # Hosts go on with what they have.
        self.machine.run('pool-verify --region kv --seed 3')
        self.wait_read_again(self.times_read())
        # The newer release of this test is the same program, and knows no other schema.
        self.assertEqual(self.schema(more=-1), known)
        self.machine.run(f'dpkg -i /newer/{MANAGER}_*.deb; systemctl start {MANAGER}')
        self.assertIn('kv', self.machine.output('cxlpool region list'))
        self.wait_online()

    def hang(self):
        """Both daemons stop in the middle of their work. In place of the units' 30 s the watchdog waits 3 s here."""
        for unit in (MANAGER, AGENT):
            self.machine.write(f'/etc/systemd/system/{unit}.service.d/watchdog.conf', '[Service]\nWatchdogSec=3\n')
        self.machine.run(f'systemctl daemon-reload; systemctl restart {MANAGER} {AGENT}')
        pids = {unit: self.wait_running(unit) for unit in (MANAGER, AGENT)}
        self.machine.run(f'kill -STOP {" ".join(map(str, pids.values()))}')
        for unit, pid in pids.items():
            self.wait_running(unit, not_pid=pid)
            self.assertIn('Watchdog timeout', self.machine.output(f'journalctl -o cat -u {unit}'))
        self.wait_online()

    def test_the_same_build_makes_the_same_bytes(self):
        again = make_packages(self.directory / 'again')
        self.assertEqual([path.name for path in again if path.read_bytes() != (self.directory / 'packages' / path.name).read_bytes()], [])
        self.assertEqual(len(again), len(PACKAGES))

    def test_what_was_never_set_up_goes(self):
        self.boot()
        self.purge()

    def test_it_can_be_removed_anyway(self):
        self.boot()
        self.configure()
        self.machine.run(f'cxlpool region allocate kv --size {BYTES}')
        self.machine.run(f'mv /etc/cxlpool/fm.toml /root; systemctl stop {MANAGER}')
        self.assert_stays(MANAGER, '/etc/cxlpool/fm.toml')
        self.machine.run(f'CXLPOOL_REMOVE_ANYWAY=1 dpkg --remove {MANAGER}; test -s /var/lib/cxlpool/pool.db')
        self.machine.run('rm -r /etc/systemd/system/cxlpool-agent.service.d; systemctl daemon-reload')
        self.purge()


if __name__ == '__main__':
    main()
