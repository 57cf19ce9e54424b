"""The contracts of test/contract against the real things: the qemu driver on real QEMUs, and the Linux host
memory adapter inside a machine."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from cxlrack.rack import Rack
from testbed.rack import make_image
from testbed.testing import BUILD, REPOSITORY, main, require_qemu

MiB = 1 << 20


class ContractTest(unittest.TestCase):
    def setUp(self):
        require_qemu()
        self.directory = Path(tempfile.mkdtemp(prefix='cxlpool-contract-'))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def up(self, topology, image):
        rack = Rack.up(topology, self.directory / 'rack', image)
        self.addCleanup(rack.down)
        return rack

    def assert_all_ran(self, output, status):
        if status != 0:
            print(output[-20000:])
        self.assertEqual(status, 0)
        self.assertNotIn('SKIPPED', output)
        self.assertRegex(output, r'\[  PASSED  \] [1-9]')

    def test_the_qemu_driver(self):
        image = make_image(BUILD, self.directory / 'image')
        rack = self.up('two-hosts', image)
        scripts = {}
        for verb in ('on', 'off'):
            scripts[verb] = self.directory / f'slot-{verb}'
            scripts[verb].write_text(f'#!/bin/sh\nexec {REPOSITORY}/qemu-cxl/rack exec --dir {self.directory}/rack '
                                     f'"$1" -- slot-power "$2" {verb}\n')
            scripts[verb].chmod(0o755)
        hosts = ','.join(f'{name}={rack.host(name).paths.qmp}' for name in ('host-a', 'host-b'))
        # Not: a host that is taken for another one. The case ends that other one, which here is a host of the rack; the
        # driver's own test and its contract test with fake QEMUs do it.
        # Nor what changes while the driver runs: this rig opens it with its lists, that of the fake QEMUs configures it.
        cases = ('--gtest_filter=*Rack*:-*AHostThatTheRecordsKnowInAnotherLife*:*NotTouchedByAConfigure*:*AHostThatLeaves*:'
                 '*ADeviceComesAndGoes*')
        done = subprocess.run([BUILD / 'test/contract/contract_test', cases],
                              capture_output=True, text=True, timeout=600, env={
                                  **os.environ, 'CXLPOOL_RACK_QMP': hosts, 'CXLPOOL_RACK_FENCE': '1',
                                  'CXLPOOL_RACK_POOL': str(rack.device_path('cmm-0')),
                                  'CXLPOOL_RACK_EJECT': str(scripts['off']), 'CXLPOOL_RACK_POWER_ON': str(scripts['on'])})
        self.assert_all_ran(done.stdout + done.stderr, done.returncode)

    def test_the_linux_host_memory_adapter(self):
        binary = BUILD / 'test/contract/host_memory_linux_contract_test'
        image = self.directory / 'image'
        subprocess.run([REPOSITORY / 'qemu-cxl/mkimage', '--out', image, '--bin', f'{binary}=/usr/local/bin/contract'],
                       check=True, stdout=subprocess.DEVNULL)
        host = self.up('wide', image).host('host-a')
        rack_device = self.directory / 'rack/pool/cmm-0'
        plugged = []
        # Five on the first bridge, one more than its decoders; two on the second.
        for index, (bridge, port) in enumerate([(0, i) for i in range(5)] + [(1, 0), (1, 1)]):
            slot, serial, name = 17 + 20 * bridge + port, 0x500 + index, f'ld{index}'
            host.qmp('object-add', {'qom-type': 'memory-backend-file', 'id': f'{name}-backend', 'share': True,
                                    'mem-path': str(rack_device), 'size': 256 * MiB, 'offset': index * 256 * MiB})
            host.qmp('device_add', {'driver': 'cxl-type3', 'bus': f'p{bridge}_{port}', 'id': name, 'sn': serial,
                                    'volatile-memdev': f'{name}-backend'})
            acpi = host.host_bridge(slot)
            self.assertRegex(acpi, re.compile(r'^ACPI0016:'))
            plugged.append(f'{slot}:{serial:#x}:{acpi}')
        done = host.run(f'CXLPOOL_LINUX_SLOTS={",".join(plugged)} contract', timeout=600)
        self.assert_all_ran(done.out + done.err, done.status)


if __name__ == '__main__':
    main()
