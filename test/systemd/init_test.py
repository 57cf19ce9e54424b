"""`cxlpool-fm init` and `cxlpool-agent init` asked and answered on a machine with a real systemd: what they make, leave alone and refuse."""

import shutil
import tempfile
import unittest
from pathlib import Path

from testbed.machines import Machine, make_packages, require_machines
from testbed.testing import main

ANSWERS = 'fm.rack7.example\nemulated\n\nhost-a host-b\n'  # The third: the devices that it proposes.
EMULATED = '--address fm.rack7.example:7600 --driver emulated --device cmm-0=4GiB'


class InitTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        root = require_machines()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-init-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        make_packages(cls.directory / 'packages')
        cls.machine = Machine('fm', root, cls.directory / 'fm.log', shares={'/packages': cls.directory / 'packages'})
        cls.addClassCleanup(cls.machine.stop)
        cls.machine.start()
        cls.machine.run('dpkg -i /packages/*.deb')

    def setUp(self):
        self.machine.run('rm -rf /etc/cxlpool /var/lib/cxlpool /etc/systemd/system/cxlpool-agent.service.d')

    def said(self, command, status=0, answers=''):
        done = self.machine.run(f"printf '%s' '{answers}' | {command}", check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def files(self):
        return set(self.machine.output('cd /etc/cxlpool && find . -type f -exec sha256sum {} +').splitlines())

    def test_asks_what_it_needs_and_ends_with_a_check(self):
        said = self.said('cxlpool-fm init', answers=ANSWERS)
        self.assertIn('/etc/cxlpool/fm.toml: OK', said)
        self.assertIn('systemctl enable --now cxlpool-fm', said)
        config = self.machine.output('cat /etc/cxlpool/fm.toml')
        for text in ('# Hosts reach it at fm.rack7.example:7600.', 'address = "[::]:7600"',
                     'address = "unix:/run/cxlpool-fm/fm.sock"\ninsecure = true', 'id = "cmm-1"\ncapacity = "4GiB"', 'id = "host-b"'):
            self.assertIn(text, config)
        modes = self.machine.output('cd /etc/cxlpool && stat -c "%a %U %n" authority/ca.key pki/*.key hosts/*')
        self.assertEqual(modes.splitlines(), ['600 root authority/ca.key', '600 cxlpool pki/manager-fm.key', '600 root pki/operator-root.key',
                                              '600 root hosts/host-a.tar', '600 root hosts/host-b.tar'])
        # The host's part: here on the same machine, whose manager is not up.
        said = self.said('cxlpool-agent init', status=1, answers='/etc/cxlpool/hosts/host-a.tar\n')
        self.assertIn('wrote /etc/cxlpool/agent.toml', said)
        self.machine.run("echo '127.0.0.1 fm.rack7.example' >> /etc/hosts; systemctl start cxlpool-fm; cxlpool host enrol host-a")
        # The way back in, though /etc/cxlpool/cli.toml has certificates, and though they are refused.
        way_in = 'cxlpool --manager unix:/run/cxlpool-fm/fm.sock'
        self.assertIn('cxlpool://operator/local', self.said(f'{way_in} access whoami'))
        self.said(f'{way_in} certificate revoke cxlpool://operator/root --reason test')
        self.said('cxlpool host list', status=7)
        self.said(f'{way_in} certificate restore cxlpool://operator/root')
        self.said('cxlpool host list')
        said = self.said('cxlpool-agent init /etc/cxlpool/hosts/host-a.tar')
        self.assertNotIn('wrote', said)
        self.assertIn('This machine can use pool memory', said)
        self.machine.run('systemctl start cxlpool-agent; cxlpool host show host-a -o json | grep ONLINE; systemctl stop cxlpool-agent cxlpool-fm')

    def test_what_is_there_stays_and_more_hosts_get_their_files(self):
        self.said(f'cxlpool-fm init {EMULATED} --host host-a')
        before = self.files()
        self.said('cxlpool-fm init')
        self.assertEqual(self.files(), before)
        said = self.said('cxlpool-fm init --host host-a --host host-c')
        self.assertIn('hosts/host-a.tar is there, and stays as it is', said)
        self.assertIn('cxlpool host add host-c --slots 17,18', said)
        self.assertEqual(sorted(line.split()[1] for line in self.files() - before),
                         ['./authority/host-host-c.key', './authority/host-host-c.pem', './hosts/host-c.tar'])
        # Broken off before its last step: the next goes on, with the certificates that are there.
        self.machine.run('rm /etc/cxlpool/fm.toml')
        self.said(f'cxlpool-fm init {EMULATED} --host host-a')
        self.assertEqual(before - self.files(), set())

    def test_a_run_that_was_killed_between_a_key_and_its_certificate_goes_on(self):
        self.machine.run('mkdir -p /etc/cxlpool/authority; echo half > /etc/cxlpool/authority/ca.key')
        self.said(f'cxlpool-fm init {EMULATED} --host host-a')
        self.machine.run('cd /etc/cxlpool; rm fm.toml authority/manager-fm.pem pki/manager-fm.* authority/host-host-a.pem hosts/host-a.tar')
        self.assertIn('hosts/host-a.tar', self.said(f'cxlpool-fm init {EMULATED} --host host-a'))

    def test_says_what_is_wrong_and_makes_nothing(self):
        for words, why in (('--address fm:port:x', '"fm:port:x:7600" is no address'),
                           ('--address 7600', '"7600" is no address'),
                           ('--driver emulated --device cmm-0', '"cmm-0" is no device'),
                           ('--driver emulated --device cmm-0=lots', 'capacity'),
                           ('--driver shared --device cmm-0=1GiB', 'devices of a shared pool are not configured'),
                           ('--driver shared --host Host_A', '"Host_A" is no name of a host'),
                           ('--driver shared --host "a;b"', 'is no name of a host'),
                           ('--address "a b:1"', '"a b:1" is no address'),
                           ('--address "[x]"', 'is no address')):
            with self.subTest(words):
                self.assertIn(why, self.said(f'cxlpool-fm init {words}', status=1))
                self.assertEqual(self.machine.output('ls /etc/cxlpool/fm.toml', check=False), '')
        self.assertIn('--driver', self.said('cxlpool-fm init --driver qemu', status=2))
        self.machine.write('/etc/cxlpool/fm.toml', '[fabric]')
        self.assertIn('was not written by', self.said('cxlpool-fm init --host host-a', status=1))

    def test_a_host_takes_its_own_file_only(self):
        self.said(f'cxlpool-fm init {EMULATED} --host host-a --host host-b')
        self.assertIn('there is no file', self.said('cxlpool-agent init', status=1))
        self.machine.run('tar -C /etc/cxlpool -cf /root/odd.tar fm.toml pki; tar -C / -cf /root/worse.tar -P /etc/passwd')
        for odd in ('/root/odd.tar', '/root/worse.tar', '/etc/passwd'):
            self.assertIn('is not what', self.said(f'cxlpool-agent init {odd}', status=1))
        # A link in a certificate's place.
        self.machine.run('mkdir link; tar -C link -xf /etc/cxlpool/hosts/host-a.tar; ln -sf /etc/shadow link/pki/ca.pem; '
                         'tar -C link -cf /root/link.tar agent.toml pki')
        before = self.machine.output('stat -c "%a %U" /etc/shadow')
        self.assertIn('something else than files', self.said('cxlpool-agent init /root/link.tar', status=1))
        self.assertEqual(self.machine.output('stat -c "%a %U" /etc/shadow'), before)
        self.said('cxlpool-agent init /etc/cxlpool/hosts/host-a.tar', status=1)  # The manager is not up.
        self.assertIn('agent.toml is there, and says something else', self.said('cxlpool-agent init /etc/cxlpool/hosts/host-b.tar', status=1))
        self.assertEqual(self.machine.output('ls -d /etc/cxlpool/agent.new', check=False), '')

    def test_what_an_emulated_fabric_left_is_not_for_another(self):
        drop_in = '/etc/systemd/system/cxlpool-agent.service.d/emulated.conf'
        self.said(f'cxlpool-fm init {EMULATED} --host host-a')
        self.said('cxlpool-agent init /etc/cxlpool/hosts/host-a.tar', status=1)  # The manager is not up.
        self.machine.run(f'test -e {drop_in}; rm -r /etc/cxlpool /var/lib/cxlpool')
        self.said('cxlpool-fm init --address fm.rack7.example:7600 --driver shared --host host-a')
        self.assertIn(f'rm {drop_in}', self.said('cxlpool-agent init /etc/cxlpool/hosts/host-a.tar', status=1))
        self.assertEqual(self.machine.output('ls /etc/cxlpool/agent.toml', check=False), '')


if __name__ == '__main__':
    main()
