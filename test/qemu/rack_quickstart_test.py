"""`cxlpool quickstart` on a machine that was booted with a CXL device and has the files of the package, and no more: from there
to memory that applications use."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from cxlrack.rack import Rack
from testbed.process import PATIENCE
from testbed.testing import BUILD, REPOSITORY, main, require_qemu

ONE_MACHINE = {'device': [{'name': 'cmm-0', 'size': '1 GiB'}],
               'host': [{'name': 'one', 'bridges': 1, 'ports': 1, 'whole': ['cmm-0']}]}
GUEST_SECONDS = 60 * PATIENCE
# What a person who follows the output by hand types, in this order.
STEPS = (r'^\$ cxlpool-fm init', r'^\$ cxlpool pki init', r'^\$ cxlpool pki issue manager', r'^\$ cxlpool pki issue host one',
         r'^wrote /etc/cxlpool/fm.toml', r'^\$ setsid cxlpool-fm', r'^\$ cxlpool host enrol one', r'^\$ cxlpool-agent init',
         r'^wrote /etc/cxlpool/agent.toml', r'^\$ setsid cxlpool-agent',
         r'^\$ cxlpool device discover', r'^\$ cxlpool device add cmm-0 --path one/', r'^\$ cxlpool region allocate first',
         r'^Region first is online')


class RackQuickstartTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_qemu()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-quickstart-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        package, image = cls.directory / 'package', cls.directory / 'image'
        for component in ('fm', 'agent', 'cli', 'examples'):
            subprocess.run(['cmake', '--install', BUILD, '--prefix', '/usr', '--component', component], check=True,
                           stdout=subprocess.DEVNULL, env={**os.environ, 'DESTDIR': str(package)})
        programs = [path for path in package.glob('usr/*bin/*')]
        subprocess.run([REPOSITORY / 'qemu-cxl/mkimage', '--out', image,
                        *(word for path in programs for word in ('--bin', f'{path}=/{path.relative_to(package)}'))],
                       check=True, stdout=subprocess.DEVNULL)
        for path in programs:
            path.unlink()  # They are in the image, with their libraries.
        cls.rack = Rack.up(ONE_MACHINE, cls.directory / 'rack', image, {'one': package})
        cls.addClassCleanup(cls.rack.down)
        cls.host = cls.rack.host('one')

    def quickstart(self, *words):
        """What it printed, and how many of the machine's own seconds it took."""
        up = float(self.host.output('cut -d" " -f1 /proc/uptime'))
        done = self.host.run(' '.join(('cxlpool quickstart', *words)), timeout=300)
        took = float(self.host.output('cut -d" " -f1 /proc/uptime')) - up
        said = done.out + done.err
        logs = '' if done.status == 0 else self.host.run('tail -n 30 /var/log/cxlpool/*.log').out
        self.assertEqual(done.status, 0, said + logs)
        return said, took

    def refused(self, why):
        done = self.host.run('cxlpool quickstart --file /srv/theirs')
        self.assertEqual(done.status, 4)
        self.assertIn(why, done.err)

    def test_from_the_package_to_memory(self):
        said, took = self.quickstart()
        print(f'quickstart: {took:.1f} s')
        self.assertLess(took, GUEST_SECONDS, said)
        at = 0
        for step in STEPS:
            found = re.compile(step, re.M).search(said, at)
            self.assertTrue(found, f'no {step} after this:\n{said[:at]}\nin\n{said}')
            at = found.end()
        # The words that it ends with.
        self.host.output('pool-write --region first --seed 1 && pool-verify --region first --seed 1')
        # Once more: nothing is left to be done, and nothing changes.
        again, _ = self.quickstart()
        self.assertNotRegex(again, r'(?m)^wrote |pki issue|device add|region allocate|setsid')
        self.host.output('pool-verify --region first --seed 1')
        self.host.output('cxlpool region release first --detach-all --wait', timeout=120)
        # What it did not make it leaves alone, a file in a device's place above all.
        self.refused('this machine was set up by quickstart --host one')
        self.host.output('mkdir -p /srv && echo theirs > /srv/theirs && mv /etc/cxlpool/quickstart /tmp')
        self.refused('/etc/cxlpool/agent.toml is there, and quickstart did not make it')
        self.host.output('mv /etc/cxlpool /tmp/etc && mv /var/lib/cxlpool /tmp/state')
        self.refused('/srv/theirs is there, and quickstart did not make it')
        self.assertEqual(self.host.output('cat /srv/theirs').strip(), 'theirs')


if __name__ == '__main__':
    main()
