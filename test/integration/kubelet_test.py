"""cxlpool-dra as a kubelet and a container runtime meet it, on an emulated pool: claims that are prepared and unprepared, Regions
that come later or never, and plugin and agent killed meanwhile."""

import json
import os
import stat
import subprocess
import uuid

from testbed.emulated import EmulatedPool
from testbed.process import Daemon, wait_until
from testbed.testing import BUILD, PoolTest, main

WITHIN_S = 20
DEVICE = {'poolName': 'cxlpool', 'deviceName': 'memory'}
# What a runtime makes of a file that is mounted: a root of its own with nothing of ours but that.
CONTAINER = '''set -e
mount -t tmpfs none "$1"
for folder in usr bin lib lib64; do [ ! -e /$folder ] || { mkdir "$1/$folder"; mount --bind /$folder "$1/$folder"; }; done
mkdir -p "$1$(dirname "$3")"
touch "$1$3"
mount --bind "$2" "$1$3"
exec chroot "$1" env -i PATH=/usr/bin:/bin "$4" "$5" sh -c "$6"
'''


class KubeletTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2], [3, 4]]})

    def setUp(self):
        super().setUp()
        self.host = self.pool.hosts['host-a']
        self.cdi = self.directory / 'cdi'
        self.registry = self.directory / 'registry'
        self.registry.mkdir(exist_ok=True)
        self.plugin = self.start_plugin()

    def tearDown(self):
        self.plugin.stop()
        self.assertEqual(list(self.registry.iterdir()), [], 'a plugin that is stopped is not registered')
        for file in self.cdi.iterdir():
            file.unlink()
        self.pool.release_all()

    def command(self, **changed):
        options = {'registrar_dir': self.registry, 'plugin_dir': self.directory / 'plugin', 'cdi_dir': self.cdi,
                   'socket': self.host.socket, **changed}
        return [BUILD / 'bin/cxlpool-dra', *(f'--{name.replace("_", "-")}={value}' for name, value in options.items())]

    def start_plugin(self, **changed):
        return Daemon('cxlpool-dra', self.command(**changed), self.directory / 'dra.log').start()

    def restart_plugin(self, **changed):
        self.plugin.kill()
        self.plugin = self.start_plugin(**changed)

    def start_kubelet(self, *words):
        kubelet = subprocess.Popen([BUILD / 'bin/fake-kubelet', self.registry, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(self.end, kubelet)
        return kubelet

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def answer(self, kubelet):
        out, err = kubelet.communicate(timeout=60)
        self.assertEqual(kubelet.returncode, 0, err)
        return json.loads(out)

    def kubelet(self, *words):
        return self.answer(self.start_kubelet(*words))

    def prepare(self, *uids):
        """uid -> its devices, or its error."""
        claims = self.kubelet('prepare', *uids)['claims']
        self.assertEqual(set(claims), set(uids))
        return {uid: claim.get('error') or claim['devices'] for uid, claim in claims.items()}

    def unprepare(self, *uids):
        self.assertEqual(self.kubelet('unprepare', *uids)['claims'], {uid: {} for uid in uids})

    def claim(self, *, allocate=True):
        uid = str(uuid.uuid4())
        if allocate:
            self.pool.allocate(f'k8s-{uid}', '256MiB', 'host-a', '--max-extents', '1')
        return uid

    @staticmethod
    def devices(uid):
        return [{**DEVICE, 'cdiDeviceIds': [f'cxlpool.dev/region=k8s-{uid}']}]

    def cdi_files(self):
        return sorted(file.name for file in self.cdi.iterdir())

    def edits(self, uid):
        """What the runtime finds for the device that the kubelet was told."""
        file = self.cdi / f'cxlpool.dev-region_k8s-{uid}.json'
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o644)
        text = json.loads(file.read_text())
        self.assertEqual(text['kind'], 'cxlpool.dev/region')
        device, = text['devices']
        self.assertEqual(device['name'], f'k8s-{uid}')
        return device['containerEdits']

    def contain(self, uid, script):
        """What a script says that runs in a container with the claim's device."""
        edits = self.edits(uid)
        mount, = edits['mounts']
        if os.geteuid() != 0:
            environment = dict(word.split('=', 1) for word in edits['env']) | {'CXLPOOL_PATH': mount['hostPath']}
            return subprocess.check_output(['sh', '-c', script], env={**os.environ, **environment}, text=True)
        root = self.directory / 'root'
        root.mkdir(exist_ok=True)
        return subprocess.check_output(['unshare', '--mount', '--propagation', 'private', 'sh', '-c', CONTAINER, 'sh', root, mount['hostPath'],
                                        mount['containerPath'], *edits['env'], script], text=True, timeout=30)

    def assert_held(self, uid):
        """The Region is not let go before the claim is unprepared."""
        self.pool.release(f'k8s-{uid}', wait=False)
        wait_until(lambda: self.pool.attachment(f'k8s-{uid}', 'host-a')['state'] == 'RELEASE_BLOCKED', WITHIN_S, 'it is held')
        self.unprepare(uid)
        wait_until(lambda: f'k8s-{uid}' not in self.pool.regions(), WITHIN_S, 'it is let go')

    def test_1_it_is_registered_as_a_kubelet_wants_it(self):
        self.assertEqual(self.kubelet('register'), {
            'type': 'DRAPlugin', 'name': 'cxlpool.dev', 'endpoint': str(self.directory / 'plugin/dra.sock'),
            'supportedVersions': ['v1.DRAPlugin']})
        for socket in (self.registry / 'cxlpool.dev-reg.sock', self.directory / 'plugin/dra.sock'):
            self.assertEqual(stat.S_IMODE(socket.stat().st_mode) & 0o077, 0, 'others may not ask')

    def test_2_a_container_has_the_region(self):
        uid = self.claim()
        self.assertEqual(self.prepare(uid), {uid: self.devices(uid)})
        self.assertEqual(self.contain(uid, 'echo $CXLPOOL_PATH $CXLPOOL_SIZE_BYTES; ls /dev/cxlpool; '
                                           'printf "from a container" | dd of=$CXLPOOL_PATH conv=notrunc status=none').split(),
                         [f'/dev/cxlpool/k8s-{uid}', str(256 << 20), *([f'k8s-{uid}'] if os.geteuid() == 0 else [])])
        self.assertEqual(self.prepare(uid), {uid: self.devices(uid)}, 'again')
        self.assertEqual(self.contain(uid, 'head -c 16 $CXLPOOL_PATH'), 'from a container')
        verified = self.host.run(['pool-verify', '--region', f'k8s-{uid}', '--expect-zero'])
        self.assertEqual(verified.status, 1, 'it is the Region')
        self.unprepare(uid)
        self.assertEqual(self.cdi_files(), [])
        self.unprepare(uid)
        self.unprepare(str(uuid.uuid4()))
        self.pool.release(f'k8s-{uid}')

    def test_3_what_is_prepared_is_held(self):
        uid = self.claim()
        self.prepare(uid)
        self.assert_held(uid)

    def test_4_one_that_comes_later_is_waited_for(self):
        there, later = self.claim(), self.claim(allocate=False)
        kubelet = self.start_kubelet('prepare', later, there)
        wait_until(lambda: len(self.cdi_files()) == 1, WITHIN_S, 'the one that is there is prepared')
        self.assertIsNone(kubelet.poll())
        many = [self.start_kubelet('prepare', str(uuid.uuid4())) for _ in range(40)]
        wait_until(lambda: sum(one.poll() is not None for one in many) >= 24, WITHIN_S, 'of many that would wait, some are told at once')
        other = self.claim()
        self.assertEqual(self.prepare(other), {other: self.devices(other)}, 'calls that wait hold up no other')
        self.pool.allocate(f'k8s-{later}', '256MiB', 'host-a')
        claims = self.answer(kubelet)['claims']
        self.assertEqual({uid: claim['devices'] for uid, claim in claims.items()},
                         {uid: self.devices(uid) for uid in (there, later)})
        self.unprepare(there, later, other)
        self.assertEqual(self.cdi_files(), [])

    def test_5_one_that_cannot_be_is_said(self):
        self.restart_plugin(wait='1s')
        nobody, ram, split = self.claim(allocate=False), *(self.claim(allocate=False) for _ in range(2))
        self.pool.allocate(f'k8s-{ram}', '256MiB', 'host-a', '--mode', 'system-ram')
        self.pool.allocate(f'k8s-{split}', '2304MiB', 'host-a', '--max-extents', '2')
        good = self.claim()
        answers = self.prepare(nobody, ram, split, good, 'NO-UID')
        self.assertEqual(answers.pop(good), self.devices(good))
        for uid, words in ((nobody, f'cxlpool region allocate k8s-{nobody} '), (ram, '--mode devdax'), (split, '--max-extents 1'),
                           ('NO-UID', 'uid')):
            self.assertIn(words, answers[uid])
            self.assertTrue(answers[uid].startswith(f'claim default/{uid}: '), answers[uid])
        self.unprepare(nobody, ram, split, good, 'NO-UID')

    def test_6_a_plugin_that_is_killed(self):
        uid = self.claim()
        self.prepare(uid)
        self.restart_plugin()
        self.assertEqual(self.kubelet('register')['name'], 'cxlpool.dev')
        self.assertEqual(self.contain(uid, 'head -c 1 $CXLPOOL_PATH | wc -c').strip(), '1')
        self.assert_held(uid)
        # And once more, while the Region goes.
        uid = self.claim()
        self.prepare(uid)
        self.plugin.kill()
        self.pool.release(f'k8s-{uid}')
        self.plugin = self.start_plugin()
        self.kubelet('register')
        self.assertEqual(self.cdi_files(), [], 'no file leads to the memory of another')
        self.unprepare(uid)

    def test_7_an_agent_that_is_killed(self):
        uid = self.claim()
        self.prepare(uid)
        self.host.agent.kill()
        waiting = self.claim(allocate=False)
        kubelet = self.start_kubelet('prepare', waiting)
        self.host.agent.start()
        self.pool.wait_hosts_online()
        self.pool.allocate(f'k8s-{waiting}', '256MiB', 'host-a')
        self.assertEqual(self.answer(kubelet)['claims'][waiting]['devices'], self.devices(waiting))
        self.assertEqual(self.prepare(uid), {uid: self.devices(uid)})
        self.assert_held(uid)
        self.unprepare(waiting)

    def test_8_who_stops_waiting_gets_nothing_later(self):
        there, later = self.claim(), self.claim(allocate=False)
        kubelet = self.start_kubelet('prepare', later, there)
        wait_until(self.cdi_files, WITHIN_S, 'it asks')
        kubelet.kill()
        kubelet.communicate()
        self.unprepare(later, there)
        self.pool.allocate(f'k8s-{later}', '256MiB', 'host-a')
        self.prepare(there)
        self.assertEqual(self.cdi_files(), [f'cxlpool.dev-region_k8s-{there}.json'])
        self.unprepare(there)
        # A plugin that is stopped ends while a call waits.
        kubelet = self.start_kubelet('prepare', self.claim(allocate=False), there)
        wait_until(self.cdi_files, WITHIN_S, 'it asks')
        self.plugin.stop()
        kubelet.communicate(timeout=WITHIN_S)
        self.assertEqual(self.plugin.process.returncode, 0)
        self.plugin = self.start_plugin()
        self.unprepare(there)

    def test_9_a_wrong_start_says_what_is_wrong(self):
        def said(**changed):
            done = subprocess.run([str(word) for word in self.command(**changed)], capture_output=True, text=True, timeout=20)
            self.assertEqual(done.returncode, 1, done.stderr)
            return done.stderr
        self.kubelet('register')
        self.assertIn('another cxlpool-dra holds', said())
        self.assertIn('no kubelet has run on this host', said(registrar_dir=self.directory / 'none'))
        self.assertIn('--cdi-dir is no absolute path', said(cdi_dir='cdi'))
        self.assertIn('--wait is no time', said(wait='40'))
        self.assertIn('too long for a socket', said(plugin_dir=self.directory / ('p' * 120)))


if __name__ == '__main__':
    main()
