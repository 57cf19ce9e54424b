"""The units say what they have to: as closed as systemd-analyze can tell, started again however often they end, and with
limits that the configurations fit into. What the packages' scripts do with files, below another root. test/systemd runs all of it under a
real systemd."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from testbed.testing import REPOSITORY, main

UNITS = {daemon: REPOSITORY / f'packaging/cxlpool-{daemon}.service' for daemon in ('fm', 'agent')}
# What `systemd-analyze security` may give, of 10. The agent is root, with three capabilities.
HIGHEST = {'fm': 1.5, 'agent': 3.0}


def exposure(unit):
    """What `systemd-analyze security` gives a unit file: 0.0 (closed) to 10.0 (open)."""
    done = subprocess.run(['systemd-analyze', 'security', '--offline=true', '--no-pager', unit], capture_output=True,
                          text=True, timeout=30, env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C.UTF-8'})
    found = re.search(r'Overall exposure level for \S+: (\d+\.\d+)', done.stdout)
    if not found:
        raise AssertionError(f'systemd-analyze gave no score: {done.stdout[-500:]}{done.stderr[-500:]}')
    return float(found.group(1))


def settings(unit):
    """Key -> values, in order, of all sections."""
    found = {}
    for key, value in re.findall(r'^(\w+)=(.*)$', Path(unit).read_text(), re.M):
        found.setdefault(key, []).append(value)
    return found


def constant(name, source):
    """What a config.cc bounds a key with."""
    return int(re.search(rf'constexpr \w+ {name} = (\d+);', (REPOSITORY / source).read_text()).group(1))


class ExposureTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which('systemd-analyze'):
            raise unittest.SkipTest('systemd-analyze is not on this machine')
        done = subprocess.run(['systemd-analyze', 'security', '--help'], capture_output=True, text=True, timeout=30)
        if '--offline' not in done.stdout:
            raise unittest.SkipTest('systemd-analyze of this machine cannot look at a unit file (systemd 250 can)')

    def test_both_units(self):
        for daemon, unit in UNITS.items():
            with self.subTest(daemon):
                self.assertLessEqual(exposure(unit), HIGHEST[daemon])

    def test_a_unit_without_settings_does_not_pass(self):
        with tempfile.TemporaryDirectory() as directory:
            unit = Path(directory) / 'open.service'
            unit.write_text('[Service]\nExecStart=/bin/true\n')
            self.assertGreater(exposure(unit), max(HIGHEST.values()))


class SettingsTest(unittest.TestCase):
    def setUp(self):
        self.units = {daemon: settings(unit) for daemon, unit in UNITS.items()}

    def test_no_limit_of_starts_leaves_a_daemon_dead(self):
        for daemon, unit in self.units.items():
            with self.subTest(daemon):
                self.assertEqual(unit['Restart'], ['always'])
                self.assertEqual(unit['StartLimitIntervalSec'], ['0'])

    def test_a_wrong_configuration_is_not_tried_again(self):
        for daemon, unit in self.units.items():
            with self.subTest(daemon):
                self.assertEqual(unit['RestartPreventExitStatus'], ['78'])

    def test_what_they_start_is_on_every_system(self):
        """systemd finds a program by its path; /bin/kill is procps', which small systems lack."""
        for daemon, unit in self.units.items():
            with self.subTest(daemon):
                self.assertTrue(unit['ExecStart'][0].startswith(f'/usr/sbin/cxlpool-{daemon} '))
                self.assertEqual(unit['ExecReload'], [f'{unit["ExecStart"][0]} --check-config', '/bin/sh -c "kill -HUP $MAINPID"'])

    def test_the_manager_is_a_user_of_its_own_without_capabilities(self):
        unit = self.units['fm']
        self.assertEqual((unit['User'], unit['Group']), (['cxlpool'], ['cxlpool']))
        self.assertEqual((unit['CapabilityBoundingSet'], unit['AmbientCapabilities']), ([''], ['']))

    def test_directories_are_not_shared(self):
        """systemd gives the whole of a RuntimeDirectory to the user of the unit that starts: with one for both, the
        manager's user would own what the agent, who is root, reads."""
        self.assertEqual(self.units['fm']['RuntimeDirectory'], ['cxlpool-fm'])
        self.assertEqual(self.units['agent']['RuntimeDirectory'], ['cxlpool'])

    def test_descriptors_are_enough_for_the_greatest_configuration(self):
        """The agent's: a connection each, and a pidfd for the process that owns a Region."""
        connections = constant('kMaxConnections', 'host-agent/config.cc')
        self.assertGreaterEqual(int(self.units['agent']['LimitNOFILE'][0]), 2 * connections + 1024)
        self.assertGreaterEqual(int(self.units['fm']['LimitNOFILE'][0]), 65536)

    def test_memory_and_tasks_are_bounded(self):
        self.assertRegex(self.units['fm']['MemoryMax'][0], r'^\d+G$')
        # The qemu driver has a thread for each host.
        self.assertGreaterEqual(int(self.units['fm']['TasksMax'][0]), constant('kMaxHostEntries', 'fabric-manager/model/pool/topology_entry.h') + 256)
        # Each drain hook has a thread of the agent's, and tasks of its own.
        runs = constant('kMaxDrainRuns', 'host-agent/local/drain_program.h')
        self.assertGreaterEqual(int(self.units['agent']['TasksMax'][0]), 24 * runs + 256)


class ModulesTest(unittest.TestCase):
    def test_modules_are_loaded_before_the_agent(self):
        """It can load none itself, and DeviceAllow= knows char-dax only by the module dax."""
        unit = UNITS['agent'].read_text()
        self.assertRegex(unit, r'(?m)^After=.*\bsystemd-modules-load\.service\b')
        self.assertIn('\nDeviceAllow=char-dax rw\n', unit)
        lines = (REPOSITORY / 'packaging/modules-load.d/cxlpool.conf').read_text().splitlines()
        modules = [line for line in lines if not line.startswith('#')]
        self.assertEqual(sorted(set(modules)), sorted(modules))
        self.assertLessEqual({'dax', 'device_dax', 'kmem', 'cxl_acpi', 'cxl_port', 'cxl_pci', 'cxl_mem', 'dax_cxl'},
                             set(modules))


class QuickstartTest(unittest.TestCase):
    def test_a_host_that_does_not_answer_shows_no_device(self):
        """What the command prints below the table is no row of it."""
        seen = re.search(r'^ *seen\(\) \{.*$', (REPOSITORY / 'packaging/quickstart').read_text(), re.M)[0]
        self.assertIn('" shows nothing: "', (REPOSITORY / 'tools/cli/render/inventory.cc').read_text())
        printed = ('other  mem3  0x78  1 GiB  2 MiB  1  -\none    mem0  0x77  1 GiB  2 MiB  2  -\n'
                   'one/mem0 is unfit: it is in use\none shows nothing: its agent did not answer in time\n')
        done = subprocess.run(['sh', '-euc', f'host=one; cxlpool() {{ printf %s "$PRINTED"; }}\n{seen}\nseen'], capture_output=True,
                              text=True, timeout=30, env={'PATH': '/usr/bin:/bin', 'PRINTED': printed})
        self.assertEqual(done.stdout, 'mem0\n', done.stderr)

    def test_without_systemd_each_daemon_is_the_user_that_init_made_its_files_for(self):
        """The manager refuses a store of another user; packages make the user cxlpool also where no systemd runs."""
        script = (REPOSITORY / 'packaging/quickstart').read_text()
        part = script[script.index('start() {'):script.index('manager_answers || start fm')]
        for user, manager, owned in (('true', 'runuser -u cxlpool -- cxlpool-fm', 'cxlpool: state run/cxlpool-fm'), ('false', 'cxlpool-fm', '')):
            with self.subTest(user), tempfile.TemporaryDirectory() as directory:
                stubs = f"systemd='' logs=log state=state\nid() {{ {user}; }}\nchown() {{ echo $* >>owned; }}\nsetsid() {{ echo $*; }}\n"
                done = subprocess.run(['sh', '-euc', f'{stubs}{part.replace("/run/cxlpool", "run/cxlpool")}\nstart fm; start agent; wait'],
                                      capture_output=True, text=True, timeout=30, cwd=directory, env={'PATH': '/usr/bin:/bin'})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((Path(directory) / 'log/fm.log').read_text().strip(), manager)
                self.assertIn(f'$ setsid {manager} >>log/fm.log', done.stdout)
                self.assertEqual((Path(directory) / 'log/agent.log').read_text(), 'cxlpool-agent\n')
                told = Path(directory) / 'owned'
                self.assertEqual(told.read_text().strip() if told.exists() else '', owned)

    def test_the_agents_init_hears_of_the_file(self):
        """It lets the unit write where that is (AgentInitTest): nothing else does."""
        line = re.search(r'^.*run (cxlpool-agent init .*?) \|\|$', (REPOSITORY / 'packaging/quickstart').read_text(), re.M)[1]
        for file, words in (('/srv/a/cmm-0', ' --file /srv/a/cmm-0'), ('', '')):
            done = subprocess.run(['sh', '-euc', f'host=one file={file}; agent() {{ echo "$*"; }}\n{line.replace("cxlpool-agent", "agent")}'],
                                  capture_output=True, text=True, timeout=30, env={'PATH': '/usr/bin:/bin'})
            self.assertEqual(done.stdout, f'init /etc/cxlpool/hosts/one.tar{words}\n', done.stderr)


# As `cxlpool pki`: it writes the key first, and replaces none unless it is told to.
PKI = """
run() { "$@"; }
die() { echo "$1 ($2)" >&2; exit 1; }
cxlpool() {
  shift
  case $1 in
    init) stem=ca; shift ;;
    issue) stem=$2-$3; shift 3 ;;
  esac
  [ $# = 3 ] || [ ! -e "$2/$stem.key" ] || { echo "$stem.key exists" >&2; return 1; }
  mkdir -p "$2"
  echo "the key of $stem" >"$2/$stem.key"
  echo "$stem" >"$2/$stem.pem"
}
"""


class FmInitTest(unittest.TestCase):
    """The part of packaging/fm-init that makes certificates."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.etc = Path(directory.name) / 'etc'
        script = (REPOSITORY / 'packaging/fm-init').read_text()
        part = script[script.index('# --- Certificates.'):script.index('chmod 0644 $pki/*.pem')]
        self.script = f'etc={self.etc} authority=$etc/authority pki=$etc/pki\n{PKI}{part}\nissue host host-a\n'

    def run_it(self):
        return subprocess.run(['sh', '-euc', self.script], capture_output=True, text=True, timeout=30, env={'PATH': '/usr/bin:/bin'})

    def files(self):
        return {str(path.relative_to(self.etc)): path.read_text() for path in self.etc.rglob('*') if path.is_file()}

    def made(self):
        done = self.run_it()
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.files()

    def test_a_run_that_was_broken_off_goes_on(self):
        """After a key and before its certificate, or in the middle of a copy."""
        whole = self.made()
        self.assertEqual(self.made(), whole)
        for gone in (('authority/host-host-a.pem',),
                     ('authority/operator-root.pem', 'pki/operator-root.pem', 'pki/operator-root.key'),
                     ('pki/manager-fm.key',)):
            for name in gone:
                (self.etc / name).unlink()
            (self.etc / 'pki/manager-fm.key.new').write_text('hal')
            self.assertEqual(self.made() | {'pki/manager-fm.key.new': ''}, whole | {'pki/manager-fm.key.new': ''}, gone)
        shutil.rmtree(self.etc)
        (self.etc / 'authority').mkdir(parents=True)
        (self.etc / 'authority/ca.key').write_text('nobody has it')
        self.assertEqual(self.made(), whole)

    def test_an_address_is_a_host_and_a_port(self):
        """Hosts are told it as it is: one that is no address would be found out only on each of them."""
        script = (REPOSITORY / 'packaging/fm-init').read_text()
        part = script[script.index('  case ${address##*:} in'):script.index('  ask driver ')]
        for address, whole in (('fm.rack7.example', 'fm.rack7.example:7600'), ('fm:1', 'fm:1'), ('10.0.0.5', '10.0.0.5:7600'),
                               ('[fe80::1]', '[fe80::1]:7600'), ('[::1]:76', '[::1]:76'), ('7600', ''), (':7600', ''), ('fm:', ''),
                               ('fm:port:x', ''), ('a b:1', ''), ('fe80::1', ''), ('[x]', ''), ('[::1:7600', ''), ('[:1', ''), ('[]:1', ''), (':', '')):
            with self.subTest(address):
                done = subprocess.run(['sh', '-euc', f"address='{address}'\ndie() {{ exit 1; }}\n{part}\nprintf %s \"$address\""],
                                      capture_output=True, text=True, timeout=30, env={'PATH': '/usr/bin:/bin'})
                self.assertEqual((done.returncode, done.stdout), (0, whole) if whole else (1, ''), done.stderr)

    def test_a_key_in_use_stays(self):
        for gone in ('authority/ca.pem', 'authority/manager-fm.pem'):
            self.made()
            (self.etc / gone).unlink()
            before = self.files()
            done = self.run_it()
            self.assertNotEqual(done.returncode, 0, gone)
            self.assertIn('.key exists', done.stderr)
            self.assertEqual(self.files(), before)
            shutil.rmtree(self.etc)

    def test_no_second_authority_is_made(self):
        """docs/install.md says to keep its folder somewhere else."""
        self.made()
        shutil.rmtree(self.etc / 'authority')
        before = self.files()
        done = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertIn('kept elsewhere', done.stderr)
        self.assertEqual(self.files(), before)


class AgentInitTest(unittest.TestCase):
    """Parts of packaging/agent-init, which are for files in the place of devices."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.drop_ins = Path(directory.name) / 'service.d'
        self.drop_in = self.drop_ins / 'files.conf'
        self.script = (REPOSITORY / 'packaging/agent-init').read_text()

    def run_it(self, *files):
        script = self.script
        options = script[script.index("from=''"):script.index('etc=/etc/cxlpool')]
        part = script[script.index("writable=''"):script.index('mkdir -p $pki')]
        names = f'systemd=yes new={self.drop_ins.parent} files_drop_in={self.drop_in}'
        done = subprocess.run(['sh', '-euc', f'{options}\n{names}\nsystemctl() {{ :; }}\nrun() {{ echo "$*"; "$@"; }}\n{part}\nprintf "%s\\n" "<$unfit|$unseen>"',
                               'agent-init', *(word for file in files for word in ('--file', file))],
                              capture_output=True, text=True, timeout=30, env={'PATH': '/usr/bin:/bin'})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_unit_may_write_where_the_files_are(self):
        """It may nowhere else: without this the agent could open none of them for writing."""
        files = ('/srv/a/cmm-0', '/srv/b/cmm-1')
        self.assertIn('systemctl daemon-reload', self.run_it(*files))
        self.assertEqual(settings(self.drop_in), {'ReadWritePaths': ['-/srv/a', '-/srv/b']})
        self.assertEqual(self.drop_in.stat().st_mode & 0o777, 0o644)
        self.assertEqual(self.run_it(*files), '<|>\n', 'run again it changes nothing')
        with self.drop_in.open('a') as drop_in:
            drop_in.write('Nice=1\n')
        self.assertEqual(self.run_it(*files), '<|>\n', 'what an operator added stays')
        self.run_it('/srv/a/cmm-0')
        self.assertEqual(settings(self.drop_in), {'ReadWritePaths': ['-/srv/a']}, 'of the pool before nothing stays')
        self.run_it('/srv/c/cmm-0')
        self.assertEqual(settings(self.drop_in), {'ReadWritePaths': ['-/srv/c']})
        self.assertIn('systemctl daemon-reload', self.run_it())
        self.assertFalse(self.drop_in.exists(), 'the memory is devices')
        self.assertEqual(self.run_it(), '<|>\n')

    def test_paths_that_would_not_do_are_seen(self):
        for file in ('srv/cmm-0', '/cmm-0', '/srv/a b', '/srv/a"b', "/srv/a'b", '/srv/a\\b', '/srv/a$b', '/srv/a`b', '/srv/100%', '/srv/*',
                     '/srv/a?', '/srv/[a]', '/srv/', ''):
            with self.subTest(file):
                self.assertIn(f'<"{file}"|>', self.run_it('/srv/a/cmm-0', file))
        self.assertIn('<|/tmp/cmm-0>', self.run_it('/tmp/cmm-0'))
        # It says so before it writes anything.
        for word in ('$unfit', '$unseen'):
            self.assertLess(self.script.index(f'[ -z "{word}" ]'), self.script.index('mkdir -p $etc'))


class RemoveTest(unittest.TestCase):
    """debian/cxlpool-fm.prerm with a directory in place of the machine's root, where no systemd runs."""

    def asks_as(self, package, trace, owner):
        script = (REPOSITORY / f'debian/{package}.prerm').read_text()
        with tempfile.TemporaryDirectory() as directory:
            script, paths = re.subn('/(?=(etc|var|run)/)', f'{directory}/', script)
            self.assertGreater(paths, 0)
            path = Path(directory) / trace
            path.parent.mkdir(parents=True)
            path.touch()
            stubs = f'runuser() {{ echo "$2 $4"; }}\nstat() {{ {owner}; }}\n'
            done = subprocess.run(['sh', '-c', stubs + script, 'prerm', 'remove'], capture_output=True, text=True, timeout=30,
                                  env={'PATH': '/usr/bin:/bin', 'DPKG_MAINTSCRIPT_PACKAGE': package})
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

    def test_the_one_whose_the_files_are_is_asked(self):
        """`cxlpool-fm init` gives the store to the user cxlpool there, too: to root the check is refused."""
        self.assertEqual(self.asks_as('cxlpool-fm', 'var/lib/cxlpool/pool.db', 'echo cxlpool'), 'cxlpool cxlpool-fm\n')
        self.assertEqual(self.asks_as('cxlpool-agent', 'run/cxlpool', 'echo root'), 'root cxlpool-agent\n')
        self.assertEqual(self.asks_as('cxlpool-fm', 'etc/cxlpool/fm.toml', 'return 1'), 'root cxlpool-fm\n')


class PurgeTest(unittest.TestCase):
    """debian/*.postrm with a directory in place of the machine's root."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        self.etc = self.root / 'etc/cxlpool'
        self.etc.joinpath('pki').mkdir(parents=True)

    def put(self, *names):
        for name in names:
            (self.etc / 'pki' / name).write_text(name)

    def purge(self, package):
        script = (REPOSITORY / f'debian/{package}.postrm').read_text()
        script, paths = re.subn('/(?=(etc|var|run)/)', f'{self.root}/', script)
        self.assertGreater(paths, 0)
        subprocess.run(['sh', '-c', script, 'postrm', 'purge'], check=True, timeout=30,
                       env={'PATH': '/usr/bin:/bin', 'DPKG_MAINTSCRIPT_PACKAGE': package})

    def left(self):
        return sorted(str(path.relative_to(self.etc)) for path in self.etc.rglob('*') if path.is_file())

    def test_what_an_authority_issued_for_others_stays(self):
        """`cxlpool pki init` makes it in /etc/cxlpool/pki by default, beside what this machine uses itself."""
        others = ['ca.key', 'ca.pem', 'host-host-b.key', 'host-host-b.pem', 'manager-fm-b.key', 'manager-fm-b.pem', 'operator-bob.key', 'operator-bob.pem']
        self.put(*others)
        pki = f'{self.etc}/pki'
        for package, name, beginning in (('agent', 'host-host-a', f'{pki}/'), ('fm', 'manager-fm', f'{pki}/'), ('cli', 'operator-alice', 'pki/')):
            self.put(f'{name}.pem', f'{name}.key')
            (self.etc / f'{package}.toml').write_text(f'[tls]\nca = "{pki}/ca.pem"\ncert = "{beginning}{name}.pem"  # its own\n  key="{beginning}{name}.key"\n')
            self.purge(f'cxlpool-{package}')
            self.assertEqual(self.left(), sorted(f'pki/{other}' for other in others), package)

    def test_nothing_is_guessed_in_the_folder_of_an_authority(self):
        """Its configuration was moved away, or names what is none of a host's."""
        self.put('ca.key', 'ca.pem', 'host-host-a.pem', 'host-host-a.key')
        before = self.left()
        self.purge('cxlpool-agent')
        self.assertEqual(self.left(), before)
        (self.etc / 'agent.toml').write_text(f'[tls]\ncert = "{self.etc}/pki/ca.pem"\nkey = "{self.etc}/pki/host-x/../ca.key"\n')
        self.purge('cxlpool-agent')
        self.assertEqual(self.left(), before)

    def test_without_the_authority_all_of_it_goes(self):
        self.put('ca.pem', 'host-host-a.pem', 'host-host-a.key', 'manager-fm.pem', 'manager-fm.key', 'operator-root.pem', 'operator-root.key')
        for package in ('agent', 'fm', 'cli'):
            self.assertIn('pki/ca.pem', self.left())
            self.purge(f'cxlpool-{package}')
        self.assertFalse(self.etc.exists())

    def test_what_a_manager_shows_to_etcd_goes_with_it(self):
        """As docs/replicated.md puts it there; etcd's authority stays where somebody has it in the same folder."""
        etcd = self.etc / 'etcd'
        for names, left in ((['ca.pem', 'operator-fm-a.pem', 'operator-fm-a.key'], []),
                            (['ca.key', 'ca.pem', 'operator-fm-a.key', 'operator-fm-b.key'], ['etcd/ca.key', 'etcd/ca.pem', 'etcd/operator-fm-b.key'])):
            etcd.mkdir(parents=True)
            for name in names:
                (etcd / name).write_text(name)
            (self.etc / 'fm.toml').write_text(f'[store]\nca = "{etcd}/ca.pem"\ncert = "{etcd}/operator-fm-a.pem"\nkey = "{etcd}/operator-fm-a.key"\n')
            before = self.left()
            self.purge('cxlpool-agent')
            self.assertEqual(self.left(), before)
            self.purge('cxlpool-fm')
            self.assertEqual(self.left(), left)


if __name__ == '__main__':
    main()
