"""What applications have of devices that every host sees whole, on real kernels and as uid 1000: a path that opens, a program that
is bound to pool memory, a Region that grows under its user, and lost bytes."""

from testbed.guest_programs import ALL_WAYS, AS_USER, READ_ONLY_WAYS, SETPRIV_PROGRAM
from testbed.pool import WAIT
from testbed.pool_bytes import check_pattern
from testbed.process import wait_until
from testbed.shared_rack import SharedRackTest
from testbed.testing import main

HOST = 'host-a'
VALUES, VALUE_BYTES = 200, 64 << 10


class RackSharedUseTest(SharedRackTest):
    programs = ('cxlpool', 'pool-path', 'pool-poison', 'pool-watch', SETPRIV_PROGRAM)
    applications = ('redis',)

    def test_1_a_path_is_opened_and_mapped(self):
        pid, path, said = self.run_path(HOST, '--size', '256MiB', '--name', 'own')
        self.assertEqual(said, ALL_WAYS)
        self.a.run(f'kill -9 {pid}')
        self.wait_gone('own')
        self.a.wait_for(f'! test -e {path}', timeout=60)
        self.take('read', HOST, '--open-to', 'uid=1000')
        pid, _, said = self.run_path(HOST, '--region', 'read', '--read-only')
        self.assertEqual(said, READ_ONLY_WAYS)
        self.a.run(f'kill -9 {pid}')
        self.pool.release('read')
        self.assert_as_before()

    def test_2_redis_runs_on_it(self):
        pid, _ = self.hold(HOST, *AS_USER, 'cxlpool', 'run', '--size', '256MiB', '--name', 'redis', '--strict', '--', 'redis-server',
                           '--save', '""', '--port', 6379, '--dir', '/tmp', says='Ready to accept connections')
        self.addCleanup(self.a.run, f'kill -9 {pid}')
        node = self.segment('redis', HOST)['numa_node']
        maps = self.a.output(f'cat /proc/{pid}/numa_maps').splitlines()
        self.assertEqual({line.split()[1] for line in maps}, {f'bind:{node}'})
        self.assertEqual(self.a.output(['redis-cli', 'SET', 'key', 'value']), 'OK')
        fill = f'for i = 1, {VALUES} do redis.call("SET", i, string.rep("v", {VALUE_BYTES})) end return "filled"'
        self.assertEqual(self.a.output(['redis-cli', 'EVAL', fill, '0'], timeout=120), 'filled')
        pages = sum(int(word.split('=')[1]) for line in self.a.output(f'cat /proc/{pid}/numa_maps').splitlines()
                    for word in line.split() if word.startswith(f'N{node}='))
        print(f'redis has {pages} pages on node {node}')
        self.assertGreater(pages, VALUES * VALUE_BYTES // 4096)
        self.a.run(['redis-cli', 'SHUTDOWN', 'NOSAVE'])
        self.wait_gone('redis')
        self.assert_as_before()

    def test_3_a_region_grows_under_its_user(self):
        self.take('grown', HOST)
        user, _ = self.hold(HOST, 'pool-write', '--region', 'grown', '--seed', 5, '--hold', 600, says='wrote')
        place = self.place('grown')
        self.pool.cli('region', 'resize', 'grown', '512MiB', '--wait', '--wait-timeout', WAIT)
        self.a.output(f'kill -0 {user}')
        check_pattern(self, [place], 5)
        self.a.output(f'kill {user}')
        self.write(HOST, 'grown', 6)  # All of it.
        self.verify(HOST, 'grown', 6)
        self.pool.release('grown')
        self.assert_as_before()

    def test_4_lost_bytes_are_told_to_their_user(self):
        """A page that the kernel takes out (MADV_HWPOISON) under what libpool does."""
        for name, device in (('kv', 'cmm-0'), ('other', 'cmm-1')):
            self.take(name, HOST, '--open-to', 'uid=1000', device=device)
        _, log = self.hold(HOST, 'pool-watch', '--count', 5, '--for', 600, says='watching')
        lost = self.poison(HOST, 'kv', 'other')
        self.a.wait_for(f'[ $(grep -c "^fault " {log}) = {len(lost)} ]', timeout=5, exactly=True)
        self.assertCountEqual([line.split()[1:4] for line in self.a.output(f'grep "^fault " {log}').splitlines()],
                              [['regions/kv', str(at), '4096'] for at in lost])
        wait_until(lambda: 'POISON' in self.pool.regions()['kv']['extents'][0].get('bad_reason', ''), 30, 'its extent is bad')
        for name in ('kv', 'other'):
            self.pool.release(name)
        [bad] = wait_until(lambda: [name for name in self.pool.regions() if name.startswith('bad-')], 60, 'its bytes are kept back')
        self.pool.release(bad, '--force', '--reason', 'the poison was injected', '--yes')
        self.wait_gone(bad)


if __name__ == '__main__':
    main()
