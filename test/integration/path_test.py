"""A Region as a path on an emulated pool, where the files of its bytes stand in for DAX devices: `cxlpool run --as-file`, who may
open it by name and for how long, and an agent that is killed meanwhile."""

import os
import struct
import subprocess

from testbed.emulated import NOBODY, EmulatedPool
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

WITHIN_S = 10
MiB = 1 << 20
ACL = 'system.posix_acl_access'
ACL_USER = 2
# Says where it is told that the Region is, and lives until its standard input ends.
# Without a child: what the program has is its children's as well, and would outlive it.
TELL = 'echo "$CXLPOOL_PATH $0"; exec cat >/dev/null'


class PathTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2], [3, 4]]})

    def setUp(self):
        super().setUp()
        self.host = self.pool.hosts['host-a']
        self.paths = self.host.directory / 'paths'
        self.uid = NOBODY if os.geteuid() == 0 else os.geteuid()

    def start(self, *words):
        """A program by `cxlpool run --as-file`, as a user who is not the agent's if we may."""
        command = [self.pool.build / 'bin/cxlpool', 'run', '--as-file', *words]
        if self.uid != os.geteuid():
            command = ['setpriv', f'--reuid={self.uid}', f'--regid={self.uid}', '--clear-groups', *command]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, 'CXLPOOL_SOCKET': str(self.host.socket)})
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()

    def path_of(self, process):
        told, word = process.stdout.readline().split()
        self.assertEqual(told, word)
        return told

    @staticmethod
    def users(file):
        """uid -> rights, of the users that the file's access list names."""
        try:
            data = os.getxattr(file, ACL)
        except OSError:
            return {}
        entries = (struct.unpack_from('<HHI', data, at) for at in range(4, len(data), 8))
        return {uid: rights for kind, rights, uid in entries if kind == ACL_USER}

    def wait_free(self, file):
        wait_until(lambda: not self.paths.exists() or not list(self.paths.iterdir()), WITHIN_S, 'no path is left')
        self.assertEqual(self.users(file), {})

    def try_open(self, path, mode):
        """What the program's user is told who opens it."""
        script = f'import sys\ntry:\n open({str(path)!r}, {mode!r})\nexcept OSError as error:\n print(error.strerror)'
        done = self.host.run(['python3', '-c', script], user='app')
        self.assertEqual(done.status, 0, done.err)
        return done.out.strip()

    def test_1_a_program_has_it_as_long_as_it_lives(self):
        process = self.start('--size', '256MiB', '--name', 'own', '--', 'sh', '-c', TELL, '{}')
        path = self.path_of(process)
        self.assertTrue(path.startswith(f'{self.paths}/own/'), path)
        file = os.path.realpath(path)
        self.assertEqual(self.users(file), {self.uid: 6})
        self.assertEqual(os.stat(path).st_size, 256 * MiB)
        self.assertEqual(self.try_open(path, 'rb+'), '')
        self.assertEqual(self.pool.regions()['own']['owner']['pid'], process.pid)
        with open(path, 'rb+') as region:
            region.write(b'by its path')
        verified = self.host.run(['pool-verify', '--region', 'own', '--expect-zero'], user='app')
        self.assertEqual(verified.status, 1, verified.err)  # It is the Region.
        process.stdin.close()
        self.assertEqual(process.wait(WITHIN_S), 0)
        wait_until(lambda: not self.pool.regions(), WITHIN_S, 'the Region is gone')
        self.assertFalse(os.path.lexists(path))
        self.assert_pool_empty()

    def test_2_what_is_killed_keeps_nothing(self):
        self.pool.allocate('kept', '256MiB', 'host-a', '--open-to', f'uid={self.uid}')
        process = self.start('--region', 'kept', '--', 'sh', '-c', TELL, '{}')
        file = os.path.realpath(self.path_of(process))
        self.assertEqual(self.users(file), {self.uid: 6})
        process.kill()
        self.wait_free(file)
        self.assertEqual(self.pool.regions()['kept']['state'], 'ALLOCATED')
        self.pool.release('kept')

    def test_3_read_only(self):
        self.pool.allocate('read', '256MiB', 'host-a', '--open-to', f'uid={self.uid}')
        process = self.start('--region', 'read', '--read-only', '--', 'sh', '-c', TELL, '{}')
        path = self.path_of(process)
        self.assertEqual(self.users(path), {self.uid: 4})
        self.assertEqual(self.try_open(path, 'rb'), '')
        if self.uid != os.geteuid():
            self.assertEqual(self.try_open(path, 'rb+'), 'Permission denied')
        file = os.path.realpath(path)
        process.stdin.close()
        process.wait(WITHIN_S)
        self.wait_free(file)
        if self.uid != os.geteuid():
            self.assertEqual(self.try_open(file, 'rb'), 'Permission denied')
        self.pool.release('read')

    def test_4_an_agent_that_is_killed_leaves_nothing_to_the_next(self):
        process = self.start('--size', '256MiB', '--name', 'own', '--', 'sh', '-c', TELL, '{}')
        path = self.path_of(process)
        file = os.path.realpath(path)
        self.host.agent.kill()
        self.assertEqual(self.users(file), {self.uid: 6})  # Nobody is there to take it back.
        self.host.agent.start()
        self.pool.wait_hosts_online()
        self.wait_free(file)
        self.assertEqual(self.pool.regions()['own']['state'], 'ALLOCATED')  # Its owner lives.
        process.stdin.close()
        process.wait(WITHIN_S)
        wait_until(lambda: not self.pool.regions(), WITHIN_S, 'the Region is gone')

    def test_5_what_is_no_file_is_refused(self):
        def refused(*words):
            done = self.host.run(['cxlpool', 'run', '--as-file', *words, '--', 'true'], user='app')
            self.assertNotEqual(done.status, 0)
            return done.err
        self.pool.allocate('ram', '256MiB', 'host-a', '--mode', 'system-ram', '--open-to', f'uid={self.uid}')
        self.assertIn('NOT_DEVDAX', refused('--region', 'ram'))
        self.assertIn('NOT_ATTACHED', refused('--region', 'none'))
        self.pool.release('ram')
        self.pool.allocate('theirs', '256MiB', 'host-a')
        if self.uid != os.geteuid():
            self.assertIn('REGION_NOT_YOURS', refused('--region', 'theirs'))
        self.pool.release('theirs')
        self.assertEqual(self.pool.regions(), {})


if __name__ == '__main__':
    main()
