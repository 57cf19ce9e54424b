"""Devices that hosts see whole, on real kernels: two machines booted with the same ones, and one of them with Soft
Reserved memory besides. What the agent does there (LinuxSpace) is done by cxlpool-rungs and by the suite for it."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from cxlrack import topology as topologies
from cxlrack.errors import CommandFailed
from cxlrack.rack import Rack
from testbed.testing import BUILD, REPOSITORY, main, require_qemu

MiB = 1 << 20
# A quarter of host-b's boot memory, as firmware would mark it.
SOFT_RESERVED = 'memmap=256M%0x20000000-1+0xefffffff'


class DaxSpaceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_qemu()
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-space-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        image, pattern = cls.directory / 'image', cls.directory / 'dax-pattern'
        subprocess.run(['c++', '-std=c++20', '-O2', '-static', '-o', pattern, REPOSITORY / 'qemu-cxl/guest/dax_pattern.cc'],
                       check=True)
        programs = (BUILD / 'bin/cxlpool-rungs', BUILD / 'test/contract/dax_space_linux_test', pattern)
        subprocess.run([REPOSITORY / 'qemu-cxl/mkimage', '--out', image,
                        *(word for program in programs for word in ('--bin', f'{program}=/usr/local/bin/{program.name}'))],
                       check=True, stdout=subprocess.DEVNULL)
        table = topologies.load('shared')
        table['host'][1]['kernel'] = SOFT_RESERVED
        cls.rack = Rack.up(table, cls.directory / 'rack', image)
        cls.addClassCleanup(cls.rack.down)
        cls.a, cls.b = cls.rack.host('host-a'), cls.rack.host('host-b')

    def space(self, host, *words):
        return host.output(['cxlpool-rungs', 'space', *map(str, words)], timeout=120)

    def refused(self, host, *words):
        """What it says."""
        with self.assertRaises(CommandFailed) as refused:
            self.space(host, *words)
        return refused.exception.result.err

    def device(self, host, key):
        """(name, why it is unfit) of the device that has this word: its name or its serial."""
        [found] = [line for line in self.space(host, 'look').splitlines()
                   if line.startswith('device ') and key in re.split('[ =]', line)]
        return found.split()[1], found.split('unfit=')[1]

    def piece(self, host, device, offset_mib, length_mib):
        """The piece's fields, after it was found."""
        wanted = f'piece {device} {offset_mib * MiB} {length_mib * MiB} '
        [line] = [line for line in self.space(host, 'look').splitlines() if line.startswith(wanted)]
        return dict(word.split('=') for word in line[len(wanted):].split())

    def carve(self, host, device, offset_mib, length_mib, driver):
        """The DAX device."""
        words = device, offset_mib * MiB, length_mib * MiB
        self.space(host, 'carve', *words)
        self.space(host, 'bind', *words, driver)
        return self.piece(host, device, offset_mib, length_mib)['dax']

    def uncarve(self, host, device, offset_mib, length_mib):
        words = device, offset_mib * MiB, length_mib * MiB
        self.space(host, 'unbind', *words)
        self.space(host, 'uncarve', *words)

    def test_the_suite_on_one_host(self):
        done = self.a.run('CXLPOOL_DAX_SPACE=0x77 dax_space_linux_test', timeout=600)
        if not done.ok:
            print((done.out + done.err)[-20000:])
        self.assertEqual(done.status, 0)
        self.assertNotIn('SKIPPED', done.out)
        self.assertRegex(done.out, r'\[  PASSED  \] [1-9]')
        print(*re.findall(r'.*\b200: .*', done.out), sep='\n')

    def test_two_hosts_see_the_same_bytes(self):
        names = []
        for host in (self.a, self.b):
            self.space(host, 'prepare')
            name, unfit = self.device(host, '0x77')
            self.assertEqual(unfit, '')
            names.append(name)
        first, second = (self.carve(host, name, 256, 64, 'device_dax') for host, name in zip((self.a, self.b), names))
        self.a.output(f'dax-pattern store /dev/{first} {64 * MiB} 17', timeout=120)
        self.b.output(f'dax-pattern load /dev/{second} {64 * MiB} 17', timeout=120)
        with open(self.rack.device_path('cmm-0'), 'rb') as pool:
            pool.seek(320 * MiB - 8)
            self.assertEqual(int.from_bytes(pool.read(8), 'little'), 17 ^ (64 * MiB // 8 - 1))
        # Shifted by 2 MiB on one of them: the offset is the device's.
        self.uncarve(self.b, names[1], 256, 64)
        second = self.carve(self.b, names[1], 258, 2, 'device_dax')
        self.b.output(f'dax-pattern store /dev/{second} {2 * MiB} 18')
        self.assertFalse(self.a.run(f'dax-pattern load /dev/{first} {64 * MiB} 17', timeout=120).ok)
        self.a.output(f'dax-pattern load /dev/{first} {2 * MiB} 17')
        self.uncarve(self.a, names[0], 256, 64)
        first = self.carve(self.a, names[0], 258, 2, 'device_dax')
        self.a.output(f'dax-pattern load /dev/{first} {2 * MiB} 18')
        self.uncarve(self.a, names[0], 258, 2)
        self.uncarve(self.b, names[1], 258, 2)
        self.assertEqual(self.piece_count(self.a, names[0]) + self.piece_count(self.b, names[1]), 0)

    def piece_count(self, host, device):
        return self.space(host, 'look').count(f'piece {device} ')

    def test_memory_that_the_kernel_took_at_boot_is_taken_when_it_lets_go(self):
        """Soft Reserved memory, which a kernel left to itself gives to kmem and puts online."""
        name, unfit = self.device(self.b, 'hmem.2')
        self.space(self.b, 'prepare')
        self.assertEqual(self.device(self.b, name)[1], unfit)
        self.assertRegex(unfit, r'^dax2\.0 gives all of it to the kernel as system memory of NUMA node \d+ \(2 of 2 memory '
                                r'blocks are online\).* daxctl offline-memory dax2\.0, then restart the agent')
        self.assertIn('dax2.0 has some of bytes', self.refused(self.b, 'carve', name, 0, 2 * MiB))
        self.b.wait_for('daxctl offline-memory dax2.0', timeout=60)
        self.space(self.b, 'prepare')
        self.assertEqual(self.device(self.b, name), (name, ''))
        self.assertEqual(self.piece_count(self.b, name), 0)
        dax = self.carve(self.b, name, 64, 64, 'device_dax')
        self.b.output(f'dax-pattern store /dev/{dax} {64 * MiB} 3 && dax-pattern load /dev/{dax} {64 * MiB} 3', timeout=120)
        self.assertEqual(self.piece(self.b, name, 64, 64)['hpa'], '0x24000000')
        self.carve(self.b, name, 128, 128, 'kmem')
        words = name, 128 * MiB, 128 * MiB
        self.space(self.b, 'online', *words)
        self.assertEqual(self.piece(self.b, name, 128, 128)['blocks'], '1/1')
        self.assertIn('online', self.refused(self.b, 'unbind', *words))
        self.space(self.b, 'offline', *words)
        self.uncarve(self.b, name, 128, 128)
        self.uncarve(self.b, name, 64, 64)
        self.assertEqual(self.piece_count(self.b, name), 0)

    def test_a_host_region_that_firmware_or_somebody_made_is_used_as_it_is(self):
        self.a.output('echo 1 >/sys/bus/dax/drivers_autoprobe; echo online_movable >/sys/devices/system/memory/auto_online_blocks')
        region, dax, _ = self.a.output(
            f'region-create decoder0.1 256 {1024 * MiB} $(basename $(dirname $(grep -lx 0x78 /sys/bus/cxl/devices/mem*/serial)))'
        ).split()
        self.a.wait_for(f'[ -e /sys/bus/dax/devices/{dax}/driver ] && '
                        f'daxctl list -d {dax} | grep \'"online_memblocks":8\'', timeout=60)
        self.space(self.a, 'prepare')
        self.assertEqual(self.a.output('cat /sys/bus/dax/drivers_autoprobe'), '0')
        name, unfit = self.device(self.a, '0x78')
        self.assertEqual(name, region)
        self.assertIn('8 of 8 memory blocks are online', unfit)
        self.a.wait_for(f'daxctl offline-memory {dax}', timeout=60)
        self.space(self.a, 'prepare')
        self.assertEqual(self.device(self.a, '0x78'), (region, ''))
        # One made by hand is left alone, and is in the way of nothing but itself.
        self.space(self.a, 'carve', region, 0, 2 * MiB)
        self.a.output(f'daxctl create-device -r {region[len("region"):]} -s {4 * MiB}')
        self.space(self.a, 'prepare')
        self.assertEqual(self.piece_count(self.a, region), 2)
        by_hand = self.piece(self.a, region, 2, 4)
        self.assertIn(f'{by_hand["dax"]} has some of bytes', self.refused(self.a, 'carve', region, 4 * MiB, 4 * MiB))
        self.space(self.a, 'carve', region, 6 * MiB, 4 * MiB)
        for offset, length in ((0, 2), (6, 4)):
            self.space(self.a, 'uncarve', region, offset * MiB, length * MiB)
        self.assertEqual(self.piece(self.a, region, 2, 4), by_hand)
        if by_hand['driver'] != 'none':
            self.space(self.a, 'unbind', region, 2 * MiB, 4 * MiB)
        self.space(self.a, 'uncarve', region, 2 * MiB, 4 * MiB)
        self.assertEqual(self.piece_count(self.a, region), 0)


if __name__ == '__main__':
    main()
