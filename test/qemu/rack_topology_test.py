"""On real QEMUs what a pool is made of changes while it runs: a pool file and a host come, are used, are drained and go."""

import subprocess

from testbed.pool import MiB
from testbed.rack import RackPool
from testbed.testing import BUILD, PoolTest, main, require_qemu

RACK = {'device': [{'name': name, 'size': '512 MiB'} for name in ('cmm-0', 'cmm-1')],
        'host': [{'name': name, 'bridges': 2, 'ports': 1} for name in ('host-a', 'host-b')]}


class HalfARack(RackPool):
    """Its configuration has the first host and the first device alone, though all of them run."""

    def fabric_toml(self):
        return (f'[[device]]\nid = "cmm-0"\ncapacity = "512MiB"\npath = "{self.rack.device_path("cmm-0")}"\n'
                f'[[host]]\nid = "host-a"\nqmp = "{self.rack.host("host-a").paths.qmp}"\n')


class RackTopologyTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        require_qemu()
        return HalfARack(BUILD, directory, RACK)

    def add_device(self, size):
        return self.pool.cli('device', 'add', 'cmm-1', '--capacity', size, '--path', self.pool.rack.device_path('cmm-1'))

    def check_bytes(self, host, region):
        for program in ('pool-write', 'pool-verify'):
            self.pool.hosts[host].run(f'{program} --region {region} --seed 17', timeout=120, check=True)

    def test_a_host_and_a_device_come_and_go(self):
        pool = self.pool
        pid = pool.manager.process.pid
        self.assertEqual(self.add_device('512MiB')['state'], 'READY')
        pool.cli('host', 'add', 'host-b', '--qmp', pool.rack.host('host-b').paths.qmp)
        pool.allocate('kv', '256MiB', 'host-b', '--device', 'cmm-1')
        self.check_bytes('host-b', 'kv')
        # The pool file grows under the Region.
        subprocess.run(['truncate', '--size', str(1024 * MiB), pool.rack.device_path('cmm-1')], check=True)
        self.assertEqual(int(self.add_device('1GiB')['capacity_bytes']), 1024 * MiB)
        pool.allocate('far', '256MiB', 'host-a', '--device', 'cmm-1')
        self.check_bytes('host-a', 'far')
        pool.hosts['host-b'].run('pool-verify --region kv --seed 17', timeout=120, check=True)
        # Both go, and what was there before stays.
        pool.cli('device', 'drain', 'cmm-1')
        for region in ('kv', 'far'):
            pool.release(region)
        pool.cli('device', 'remove', 'cmm-1', '--yes')
        pool.run_cli('host', 'remove', 'host-b', '--yes')
        self.assertEqual([h['name'] for h in pool.cli('topology')['tables']['hosts']], ['hosts/host-a'])
        pool.allocate('old', '256MiB', 'host-a')
        self.check_bytes('host-a', 'old')
        pool.release('old')
        self.assertEqual(pool.manager.process.pid, pid)
        # It comes back, with the same QEMU.
        pool.cli('host', 'add', 'host-b', '--qmp', pool.rack.host('host-b').paths.qmp)
        pool.cli('host', 'enrol', 'host-b')
        pool.wait_hosts_online()
        pool.allocate('again', '256MiB', 'host-b')
        self.check_bytes('host-b', 'again')
        pool.release('again')


if __name__ == '__main__':
    main()
