"""`cxlpool-agent check` in a machine with CXL: nothing is missing; then each thing is taken away, and named alone."""

import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from cxlrack.rack import Rack
from testbed.testing import BUILD, REPOSITORY, main, require_qemu

CONFIG = r'host = \"host-a\"\nadapter = \"linux\"\n[manager]\naddress = \"unix:/run/fm.sock\"\ninsecure = true\n'
SETPRIV = '/usr/local/bin/setpriv'  # Busybox's knows less.

# What cannot be unloaded: how it is hidden from one process, by mounts of its own; and what is complained of then.
HIDDEN = [
    ('echo 6.1.0-rc1 > /tmp/f; mount --bind /tmp/f /proc/sys/kernel/osrelease', {'kernel': 'missing'}),
    ('mount -o remount,bind,ro /sys', {'permissions': 'missing'}),
    ('hide /sys/bus', dict.fromkeys(['cxl_bus', 'cxl_acpi', 'cxl_pci', 'cxl_port', 'cxl_mem', 'cxl_region', 'dax_cxl',
                                     'dax_bus', 'device_dax', 'kmem', 'hotplug_slots'], 'missing')),
    ('hide /sys/bus/cxl/drivers cxl_mem cxl_region cxl_dax_region', {'cxl_port': 'missing'}),
    ('hide /sys/bus/cxl/drivers cxl_mem cxl_port cxl_dax_region', {'cxl_region': 'missing'}),
    ('hide /sys/bus/dax drivers/device_dax drivers/kmem', {'dax_bus': 'missing'}),
    ('hide /sys/devices/system/memory', {'memory_hotplug': 'missing'}),
    ('hide /sys/bus/cxl/devices/root0/decoder0.0', {'volatile_window': 'missing', 'window_space': 'warning'}),
    ('hide /sys/bus/pci/slots', {'hotplug_slots': 'missing'}),
    ('hide /sys/bus/pci_express/drivers', {'pciehp': 'warning'}),
    ('''hide /run udev/rules.d; echo 'SUBSYSTEM=="memory", ATTR{state}="online"' > /run/udev/rules.d/40-online.rules''',
     {'udev_rules': 'warning'}),
    ('hide /etc daxctl.conf.d; echo "[reconfigure-device all]" > /etc/daxctl.conf.d/all.conf', {'daxctl_conf': 'warning'}),
    ('hide /sys/kernel/security; echo "none [integrity]" > /sys/kernel/security/lockdown', {'lockdown': 'warning'}),
    ('sed "s/^flags.*/& hypervisor/" /proc/cpuinfo > /tmp/f; mount --bind /tmp/f /proc/cpuinfo',
     {'processor': 'warning'}),
    ('echo MemAvailable: 0 kB > /tmp/f; mount --bind /tmp/f /proc/meminfo', {'page_structs': 'warning'}),
    ('umount /sys/kernel/tracing /sys/kernel/debug', {'trace_events': 'warning'}),
    ('hide /tmp', {'config': 'missing'}),
]
# An empty folder in place of one, with these in it.
HIDE = 'hide() { mount -t tmpfs none $1 && cd $1 && shift && for name; do mkdir -p $name; done; }; '


class RackCheckTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_qemu()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-check-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        image = cls.directory / 'image'
        subprocess.run([REPOSITORY / 'qemu-cxl/mkimage', '--out', image, '--bin',
                        f'{BUILD}/bin/cxlpool-agent=/usr/local/bin/cxlpool-agent',
                        '--bin', f'{shutil.which("setpriv")}={SETPRIV}'], check=True, stdout=subprocess.DEVNULL)
        rack = Rack.up('one-bridge', cls.directory / 'rack', image)
        cls.addClassCleanup(rack.down)
        cls.host = rack.host('host-a')
        cls.run_in_host(f'printf "{CONFIG}" > /tmp/agent.toml')

    @classmethod
    def run_in_host(cls, command):
        done = cls.host.run(command, timeout=120)
        if done.status != 0:
            raise AssertionError(f'{command}: {done.status}: {done.out}{done.err}')

    def complaints(self, under=''):
        """What is not in order, as id: verdict; and that the exit status fits."""
        done = self.host.run(f'{under} cxlpool-agent check --offline -o json --config /tmp/agent.toml', timeout=120)
        self.assertIn(done.status, (0, 1), done.err)
        report = json.loads(done.out)
        self.assertEqual(done.status, 0 if report['fit'] else 1)
        return {f['id']: f['verdict'] for f in report['findings'] if f['verdict'] != 'ok'}

    def test_1_a_good_machine_whose_image_left_its_policy_on(self):
        self.assertEqual(self.complaints(), {'dax_autoprobe': 'warning', 'auto_online': 'warning'})
        self.run_in_host('echo 0 > /sys/bus/dax/drivers_autoprobe')
        self.assertEqual(self.complaints(), {'auto_online': 'warning'})
        self.run_in_host('echo offline > /sys/devices/system/memory/auto_online_blocks')
        self.assertEqual(self.complaints(), {})
        table = self.host.run('cxlpool-agent check --offline --config /tmp/agent.toml', timeout=120).out
        # 7.x counts a bridge's decoders once something is under it.
        self.assertRegex(table, r'host bridges, by their decoders: 1 (with 4|not known before\s+its first memory device)\n')

    def test_2_each_module_that_is_missing_is_named_alone(self):
        # Those that Debian's kernels have as modules.
        for module in ('kmem', 'device_dax', 'dax_cxl', 'cxl_mem', 'cxl_pci', 'cxl_acpi'):
            with self.subTest(module):
                # Those that use it go first: on 7.x cxl_pci uses cxl_mem.
                gone = [*self.host.output(f'ls /sys/module/{module}/holders').split(), module]
                self.run_in_host(f'rmmod {" ".join(gone)}')
                self.assertEqual(self.complaints(), {name: 'missing' for name in gone})
                self.run_in_host(f'modprobe {gone[0]}')
                self.assertEqual(self.complaints(), {})

    def test_3_the_rights_of_the_unit_are_enough_and_fewer_are_not(self):
        unit = (REPOSITORY / 'packaging/cxlpool-agent.service').read_text()
        [line] = re.findall(r'(?m)^CapabilityBoundingSet=(.*)$', unit)
        words = [word.removeprefix('CAP_').lower() for word in line.split()]
        as_in_unit = f'{SETPRIV} --no-new-privs --bounding-set -all,' + ','.join(f'+{word}' for word in words)
        self.assertEqual(self.complaints(as_in_unit), {})
        for word in words:
            with self.subTest(word):
                self.assertEqual(self.complaints(as_in_unit.replace(f',+{word}', '')), {'permissions': 'missing'})
        self.assertEqual(self.complaints(f'{SETPRIV} --reuid 65534'), {'permissions': 'missing'})

    def test_4_each_other_thing_that_is_missing_is_named_alone(self):
        for hidden, complaints in HIDDEN:
            with self.subTest(hidden):
                self.host.put('/tmp/hidden.sh', f'set -e; {HIDE}{hidden}\ncd /; exec "$@"'.encode())
                self.assertEqual(self.complaints('unshare -m sh /tmp/hidden.sh'), complaints)
        self.assertEqual(self.complaints(), {})

    def test_5_certificates_and_the_manager(self):
        done = self.host.run('cxlpool-agent check -o json --config /tmp/agent.toml', timeout=120)
        verdicts = {f['id']: f['verdict'] for f in json.loads(done.out)['findings'] if f['verdict'] != 'ok'}
        self.assertEqual(verdicts, {'manager': 'missing'})
        with_tls = CONFIG.replace('unix:/run/fm.sock', '127.0.0.1:1').replace('insecure = true', '[tls]') + \
            r'ca = \"/tmp/ca.pem\"\ncert = \"/tmp/host.pem\"\nkey = \"/tmp/host.key\"\n'
        self.run_in_host(f'printf "{with_tls}" > /tmp/agent.toml')
        self.addCleanup(self.run_in_host, f'printf "{CONFIG}" > /tmp/agent.toml')
        self.assertEqual(self.complaints(), {'credentials': 'missing'})


if __name__ == '__main__':
    main()
