"""The agent's unit is as closed as systemd-analyze can tell: its exposure is at most 3.0 of 10."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from testbed.testing import REPOSITORY, main

HIGHEST = 3.0
UNIT = REPOSITORY / 'packaging/cxlpool-agent.service'


def exposure(unit):
    """What `systemd-analyze security` gives a unit file: 0.0 (closed) to 10.0 (open)."""
    done = subprocess.run(['systemd-analyze', 'security', '--offline=true', '--no-pager', unit], capture_output=True,
                          text=True, timeout=30, env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C.UTF-8'})
    found = re.search(r'Overall exposure level for \S+: (\d+\.\d+)', done.stdout)
    if not found:
        raise AssertionError(f'systemd-analyze gave no score: {done.stdout[-500:]}{done.stderr[-500:]}')
    return float(found.group(1))


class UnitScoreTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which('systemd-analyze'):
            raise unittest.SkipTest('systemd-analyze is not on this machine')
        done = subprocess.run(['systemd-analyze', 'security', '--help'], capture_output=True, text=True, timeout=30)
        if '--offline' not in done.stdout:
            raise unittest.SkipTest('systemd-analyze of this machine cannot look at a unit file (systemd 250 can)')

    def test_the_agent(self):
        self.assertLessEqual(exposure(UNIT), HIGHEST)

    def test_a_unit_without_settings_does_not_pass(self):
        with tempfile.TemporaryDirectory() as directory:
            unit = Path(directory) / 'open.service'
            unit.write_text('[Service]\nExecStart=/bin/true\n')
            self.assertGreater(exposure(unit), HIGHEST)


class ModulesTest(unittest.TestCase):
    def test_modules_are_loaded_before_the_agent(self):
        """It can load none itself, and DeviceAllow= knows char-dax only by the module dax."""
        unit = UNIT.read_text()
        self.assertRegex(unit, r'(?m)^After=.*\bsystemd-modules-load\.service\b')
        self.assertIn('\nDeviceAllow=char-dax rw\n', unit)
        lines = (REPOSITORY / 'packaging/modules-load.d/cxlpool.conf').read_text().splitlines()
        modules = [line for line in lines if not line.startswith('#')]
        self.assertEqual(sorted(set(modules)), sorted(modules))
        self.assertLessEqual({'dax', 'device_dax', 'kmem', 'cxl_acpi', 'cxl_port', 'cxl_pci', 'cxl_mem', 'dax_cxl'},
                             set(modules))


if __name__ == '__main__':
    main()
