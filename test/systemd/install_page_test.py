"""docs/install.md, followed to the letter: every command and every file of it, on four machines with systemd.

What is not run as it is printed: tools/setup, tools/package (which packages the build that is tested in place of a release),
and scp, which copies between the machines here.
"""

import collections
import re
import shutil
import tempfile
import time
import unittest
from pathlib import Path

from testbed.machines import Machine, make_packages, require_machines
from testbed.testing import REPOSITORY, main

PAGE = REPOSITORY / 'docs/install.md'
POOL = ('fm', 'host-a', 'host-b')  # They share a network and an emulated fabric.
PLACES = (*POOL, 'one')


def blocks():
    """The page's blocks in order, as (kind, places, text): `sh` with the machines, `toml` with MACHINE:PATH."""
    for info, text in re.findall(r'^```([^\n]*)\n(.*?)^```$', PAGE.read_text(), re.M | re.S):
        kind, *places = info.split()
        yield kind, places, text


class InstallPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        root = require_machines()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-page-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.machines = {}
        for name in PLACES:
            shares = {'/transfer': cls.directory / 'transfer'}
            if name in POOL:
                shares['/var/lib/cxlpool/fabric'] = cls.directory / 'fabric'
            for directory in shares.values():
                directory.mkdir(exist_ok=True)
            machine = Machine(name, root, cls.directory / f'{name}.log', shares=shares,
                              network_of=cls.machines.get('fm') if name in POOL else None)
            cls.addClassCleanup(machine.stop)
            cls.machines[name] = machine.start()
            machine.run("echo '127.0.0.1 fm.rack7.example' >> /etc/hosts")

    def build(self, text):
        """On this machine, with the build that is tested in the place of the release."""
        self.assertEqual(text, 'tools/setup --no-qemu\ntools/package --out packages\n')
        make_packages(self.directory / 'transfer/packages')
        for machine in self.machines.values():
            machine.run('cp -r /transfer/packages /root')

    def copy(self, here, words):
        """scp FILE... TO, where one side is root@MACHINE:PATH."""
        *files, to = words
        machine, path = here, to
        if remote := re.fullmatch(r'root@([\w-]+):(.*)', to):
            machine, path = self.machines[remote.group(1)], remote.group(2)
        shutil.rmtree(self.directory / 'transfer/scp', ignore_errors=True)
        for file in files:
            source = here
            if remote := re.fullmatch(r'root@([\w-]+):(.*)', file):
                source, file = self.machines[remote.group(1)], remote.group(2)
            source.run(f'mkdir -p /transfer/scp && cp {file} /transfer/scp')
        machine.run(f'cp /transfer/scp/{"*" if len(files) > 1 else Path(files[0].partition(":")[2] or files[0]).name} {path}')

    def follow(self, kind, places, text):
        """Returns what was said, a machine after the other."""
        said = ''
        if places == ['build']:
            self.build(text)
        elif kind == 'toml':
            (place,) = places
            name, path = place.split(':')
            self.machines[name].write(path, text)
        else:
            for place in places:
                for line in text.splitlines():
                    if line.startswith('scp '):
                        self.copy(self.machines[place], line.split()[1:])
                    else:
                        said += self.machines[place].output(line) + '\n'
        return said

    def test_the_page(self):
        said, took = [], collections.Counter()
        for kind, places, text in blocks():
            self.assertIn(kind, ('sh', 'toml'))
            self.assertTrue(places and set(p.split(':')[0] for p in places) <= {'build', *PLACES}, places)
            began = time.monotonic()
            said.append(self.follow(kind, places, text))
            took[places[0] if places[0] in ('build', 'one') else 'rack'] += time.monotonic() - began
        print(f'packages {took["build"]:.0f} s, three machines {took["rack"]:.0f} s, one machine {took["one"]:.0f} s')
        everything = '\n'.join(said)
        self.assertIn('cxlpool-fm.service - cxlpool fabric manager', everything)
        self.assertIn('This machine can use pool memory', everything)
        self.assertRegex(everything, r'wrote 536870912 bytes of regions/kv')
        self.assertRegex(everything, r'verified 536870912 bytes of regions/kv')
        self.assertIn('kv is gone: 512 MiB', everything)
        self.assertIn('first is gone: 256 MiB', everything)
        # And on the machine that has all of it: the program on the first page.
        program = re.search(r'^```python\n(.*?)^```$', (REPOSITORY / 'README.md').read_text(), re.M | re.S)[1]
        self.machines['one'].write('/root/hello.py', program)
        self.assertRegex(self.machines['one'].output('python3 hello.py'), r'^268435456 bytes at 0x')
        left = self.machines['host-b'].output("find / -xdev -name '*cxlpool*' -not -path '/transfer*' -not -path '/root/*' "
                                              "-not -path '/proc/*' -not -path '/var/lib/systemd/*'")
        # The user stays: its number must not become somebody else's. The directory has the emulated fabric in it, which is mounted there.
        self.assertEqual(left, '/var/lib/cxlpool')


if __name__ == '__main__':
    main()
