"""The operator's day, with real processes and no CXL: the command against several pools, its lists watched through a restart of
the manager, its formats read by other programs, and what it says of who has the pool."""

import json
import os
import re
import signal
import subprocess

from testbed.emulated import EmulatedPool
from testbed.pool import MiB
from testbed.process import wait_until
from testbed.testing import BUILD, PoolTest, main

WITHIN_S = 20
# The distribution's, which has python3-yaml.
READ_YAML = ['/usr/bin/python3', '-c', 'import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)']


def documents(text):
    """What YAML says."""
    return json.loads(subprocess.run(READ_YAML, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout)


class OperatorTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2], [3, 4]], 'host-b': [[1, 2], [3, 4]]},
                            devices={'cmm-0': '1GiB', 'cmm-1': '1GiB'}, granule='64MiB')

    def tearDown(self):
        super().tearDown()
        self.pool.release_all()

    def watch(self, *arguments):
        """A command that goes on; the function that gives what it printed, and the one that interrupts it."""
        path = self.directory / f'watch-{len(list(self.directory.glob("watch-*")))}'
        with open(path, 'w') as out:
            process = subprocess.Popen(self.pool.cli_command(*arguments), stdout=out, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def interrupt():
            process.send_signal(signal.SIGINT)
            return process.wait(timeout=WITHIN_S)
        return path.read_text, interrupt

    def test_lists_are_watched(self):
        regions, end_regions = self.watch('region', 'list', '--watch', '-o', 'json', '--filter', 'tenant = default')
        devices, end_devices = self.watch('device', 'list', '--watch', '-o', 'yaml')
        follow, end_follow = self.watch('region', 'watch')
        events, end_events = self.watch('event', 'watch', '--of', 'region/kv')
        names = lambda: [[r['name'] for r in json.loads(line)['regions']] for line in regions().rpartition('\n')[0].splitlines()]
        wait_until(lambda: names() == [[]], WITHIN_S, 'the empty list')
        self.pool.allocate('kv', '64MiB', 'host-a')
        wait_until(lambda: names()[-1] == ['regions/kv'], WITHIN_S, 'the list with kv')
        wait_until(lambda: f'allocated_bytes: "{64 * MiB}"' in devices(), WITHIN_S, 'the device that has kv')
        self.pool.restart_manager()
        self.pool.wait_hosts_online()
        self.pool.release('kv')
        wait_until(lambda: names()[-1] == [], WITHIN_S, 'the list without kv')
        wait_until(lambda: 'REMOVED' in follow(), WITHIN_S, 'the event')
        wait_until(lambda: 'SCRUBBING' in events(), WITHIN_S, 'the end of kv')
        self.assertEqual([events().count(what) for what in ('TIME', 'AllocateRegion', 'ReleaseRegion')], [1, 1, 1])
        self.assertEqual([end_regions(), end_devices(), end_follow(), end_events()], [0, 0, 0, 0])
        held = [sum(int(d['allocated_bytes']) for d in document['devices'])
                for document in documents(devices().rpartition('---\n')[0])]  # The last one may not be whole.
        self.assertEqual(held[0], 0)

    def test_yaml_says_what_json_says(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        for command in (['region', 'show', 'kv'], ['device', 'list'], ['capacity'], ['doctor'], ['report'], ['region', 'list'],
                        ['pki', 'show', f'{self.pool.pki}/ca.pem']):
            # One after the other: how long ago something was is not the same in both.
            texts = [re.sub(r'last \w+ ago', 'last a while ago', self.pool.run_cli(*command, '-o', form)) for form in ('json', 'yaml')]
            self.assertEqual([json.loads(texts[0])], documents(texts[1]), command)

    def test_top_and_report(self):
        self.pool.allocate('kv', '64MiB', 'host-a')
        self.pool.allocate('shared', '128MiB', 'host-a', '--sharing', 'multi-writer')
        self.pool.cli('region', 'attach', 'shared', '--host', 'host-b', '--wait')
        top = self.pool.cli('top')
        self.assertEqual({h['name']: int(h['attached_bytes']) for h in top['hosts']}, {'host-a': 192 * MiB, 'host-b': 128 * MiB})
        self.assertEqual(sum(int(d['held_bytes']) for d in top['devices']), 192 * MiB)
        self.assertEqual([t['name'] for t in top['tenants']], ['default'])

        never = lambda: [r['name'] for r in self.pool.cli('report')['never_opened']]
        wait_until(lambda: never() == ['kv', 'shared'], WITHIN_S, 'neither was opened')
        holder = self.pool.hosts['host-a'].hold('kv')
        try:
            oldest = lambda: {r['name']: r['open'] for r in self.pool.cli('report')['oldest']}
            wait_until(lambda: oldest()['kv'] == '1', WITHIN_S, 'kv is open')
        finally:
            holder.kill()
            holder.communicate()
        self.assertEqual(never(), ['shared'])
        self.pool.cli('device', 'drain', 'cmm-1')
        self.addCleanup(self.pool.cli, 'device', 'add', 'cmm-1')
        stranded = {s['where']: s['why'] for s in self.pool.cli('report')['stranded']}
        self.assertEqual(stranded, {'device cmm-1': 'DRAINING'})

    def test_contexts(self):
        config = self.directory / 'cli.toml'
        config.write_text(f'[contexts.here]\nmanager = "127.0.0.1:{self.pool.port}"\nca = "{self.pool.pki}/ca.pem"\n'
                          f'cert = "{self.pool.pki}/operator-admin.pem"\nkey = "{self.pool.pki}/operator-admin.key"\n'
                          '[contexts.nowhere]\nmanager = "unix:/nonexistent/fm.sock"\n')

        def run(*words, **env):
            done = subprocess.run([BUILD / 'bin/cxlpool', *words], capture_output=True, text=True, timeout=60,
                                  env={'PATH': os.environ['PATH'], 'CXLPOOL_CONFIG': str(config), **env})
            return done.returncode, done.stdout + done.stderr
        self.assertEqual(run('host', 'list')[0], 2)  # None is chosen.
        self.assertEqual(run('--context', 'here', 'host', 'list', '-o', 'name'), (0, 'host-a\nhost-b\n'))
        self.assertEqual(run('--context', 'here', 'host', 'list', CXLPOOL_MANAGER='unix:/nonexistent')[0], 0)
        self.assertEqual(run('context', 'use', 'nowhere')[0], 0)
        self.assertEqual(run('host', 'list', '--fail-fast')[0], 6)
        self.assertEqual(run('context', 'use', 'here')[0], 0)
        self.assertEqual(run('host', 'list', '-o', 'name')[0], 0)
        code, said = run('--context', 'nowhre', 'host', 'list')
        self.assertEqual(code, 2)
        self.assertIn('did you mean "nowhere"?', said)
        self.assertEqual(run('__complete', '--context', 'h')[1], 'here\n')
        self.assertEqual(run('__complete', '--context', 'here', 'host', 'show', '')[1], 'host-a\nhost-b\n')


if __name__ == '__main__':
    main()
