"""Small machines with a real systemd, for the tests of units and of the installation: containers of systemd-nspawn.

All run the same root, made by test/systemd/fetch, and write into memory: what they change is gone with them. They
share one network, which leads nowhere else.
"""

import json
import os
import subprocess
import unittest
from pathlib import Path

from .process import TestbedError, wait_until
from .testing import BUILD, REPOSITORY

# A manager of an emulated pool as docs/install.md sets it up, without hosts.
EMULATED_FM_TOML = '''
[[listen]]
address = "127.0.0.1:7600"
[[listen]]
address = "unix:/run/cxlpool-fm/fm.sock"
insecure = true
[tls]
ca = "/etc/cxlpool/pki/ca.pem"
cert = "/etc/cxlpool/pki/manager-fm.pem"
key = "/etc/cxlpool/pki/manager-fm.key"
[store]
path = "/var/lib/cxlpool/pool.db"
[fabric]
driver = "emulated"
root = "/var/lib/cxlpool/fabric"
[[device]]
id = "cmm-0"
capacity = "1GiB"
granule = "16MiB"
'''

PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'


def require_machines(*kind):
    """The root that machines run. Skips, with the reason, where there can be none; in CI that is a failure."""
    done = subprocess.run([REPOSITORY / 'test/systemd/fetch', '--check', *kind], capture_output=True, text=True)
    if done.returncode == 0:
        return Path(done.stdout.strip())
    reason = f'no machines with systemd here: {done.stderr.strip()}'
    if os.environ.get('CI'):
        raise AssertionError(reason)
    raise unittest.SkipTest(reason)


def make_packages(directory):
    """The Debian packages of the build that is tested, as files. Without compression, which takes most of the time."""
    done = subprocess.run([REPOSITORY / 'tools/package', '--build', BUILD, '--out', directory], capture_output=True, text=True,
                          timeout=240, env={**os.environ, 'DPKG_DEB_COMPRESSOR_TYPE': 'none'})
    if done.returncode:
        raise AssertionError(f'tools/package ends with {done.returncode}:\n{done.stderr}')
    return [Path(line) for line in done.stdout.splitlines()]


def install_packages(root, packages, tree, script=''):
    """`tree`, a copy of the root with these packages in it, installed as dpkg does; then runs a shell script there."""
    subprocess.run(['cp', '-a', root, tree], check=True, timeout=120)
    done = subprocess.run(
        ['systemd-nspawn', '--quiet', f'--directory={tree}', '--register=no', '--keep-unit', '--private-network',
         f'--bind-ro={packages[0].parent}:/packages', '--console=pipe', f'--setenv=PATH={PATH}', 'sh', '-euc',
         f'dpkg -i {" ".join(f"/packages/{path.name}" for path in packages)}\n{script}'],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(f'the packages are not installed in {tree}, exit {done.returncode}:\n{done.stdout}{done.stderr}')
    return tree


def own_cgroups(name):
    """Control groups for one machine, in the hierarchies that systemd uses. Without them all machines have the same, where each
    kills and removes what is another's."""
    made = []
    for line in Path('/proc/self/cgroup').read_text().splitlines():
        _, controllers, path = line.split(':', 2)
        mounts = {'name=systemd': ['/sys/fs/cgroup/systemd'], '': ['/sys/fs/cgroup/unified', '/sys/fs/cgroup']}.get(controllers, [])
        made += [Path(mount + path, name) for mount in mounts if Path(mount, 'cgroup.procs').exists()]
    for directory in made:
        directory.mkdir()
    return made


def is_removed(cgroup):
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:  # Its last process is just ending.
            return False
    return True


class Machine:
    """One container. `shares`: its path -> a directory of this machine."""

    def __init__(self, name, root, log, *, network_of=None, shares=None):
        self.name, self.root, self.log = name, root, Path(log)
        self.network_of, self.shares = network_of, dict(shares or {})
        self.process, self.leader = None, None
        self.cgroups = []

    def start(self):
        network = ['--private-network']
        if self.network_of:
            network = [f'--network-namespace-path=/proc/{self.network_of.leader}/ns/net']
        shares = [f'--bind={here}:{there}' for there, here in self.shares.items()]
        self.cgroups = own_cgroups(f'cxlpool-{self.name}-{os.getpid()}')
        with open(self.log, 'ab') as log:
            self.process = subprocess.Popen(
                ['systemd-nspawn', '--quiet', f'--directory={self.root}', '--volatile=overlay', '--boot', '--register=no',
                 '--keep-unit', f'--machine={self.name}', '--console=pipe', *network, *shares],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self.enter_cgroups)
        self.leader = wait_until(self.find_leader, 20, f'{self.name} begins to boot')
        wait_until(self.is_up, 60, f'{self.name} is up')
        return self

    def enter_cgroups(self):
        for cgroup in self.cgroups:
            (cgroup / 'cgroup.procs').write_text(str(os.getpid()))

    def find_leader(self):
        if self.process.poll() is not None:
            raise TestbedError(f'{self.name} does not boot:\n{self.log.read_text()[-2000:]}')
        try:
            children = Path(f'/proc/{self.process.pid}/task/{self.process.pid}/children').read_text().split()
            named = [pid for pid in children if Path(f'/proc/{pid}/comm').read_text().strip() == 'systemd']
        except (FileNotFoundError, ProcessLookupError):  # One of them ended meanwhile: look again.
            return None
        return named[0] if named else None

    def is_up(self):
        return self.run('systemctl is-system-running', check=False).stdout.strip() in ('running', 'degraded')

    def run(self, script, *, check=True, timeout=120):
        """Runs a shell script there, as root; AssertionError with all that it said where it fails and `check`."""
        done = subprocess.run(
            ['nsenter', f'--target={self.leader}', '--mount', '--uts', '--ipc', '--net', '--pid', '--', '/usr/bin/env', '-i',
             f'PATH={PATH}', 'HOME=/root', 'LC_ALL=C.UTF-8', 'sh', '-euc', f'cd /root\n{script}'],
            capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise AssertionError(f'on {self.name}, exit {done.returncode}:\n{script}\n{done.stdout[-3000:]}{done.stderr[-3000:]}'
                                 f'--- {self.name}\'s journal:\n{self.journal()}')
        return done

    def output(self, script, **options):
        return self.run(script, **options).stdout.strip()

    def json(self, script, **options):
        return json.loads(self.output(script, **options))

    def write(self, path, text):
        self.run(f"mkdir -p \"$(dirname {path})\"; cat > {path} <<'END-OF-FILE'\n{text}\nEND-OF-FILE")

    def unit(self, name, *properties):
        """What `systemctl show` says of a unit, by property."""
        lines = self.output(f'systemctl show {name} {" ".join(f"-p {p}" for p in properties)}').splitlines()
        return dict(line.split('=', 1) for line in lines)

    def journal(self, unit='cxlpool-*', lines=40):
        return self.run(f"journalctl --no-pager -o cat -n {lines} -u '{unit}'", check=False).stdout

    def stop(self):
        """Powers it off; it is gone afterwards in any case."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.run('systemctl poweroff --force --force', check=False, timeout=20)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for cgroup in self.cgroups:
            wait_until(lambda cgroup=cgroup: is_removed(cgroup), 10, f'{cgroup} is removed')
        self.process = None
