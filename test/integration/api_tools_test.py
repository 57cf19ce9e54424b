"""The API as tools of others find it: one that knows nothing of this pool asks by reflection alone, and holds the messages against
those that were released."""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from testbed.emulated import EmulatedPool, fill_small_disk, on_a_small_disk
from testbed.pool import CliError
from testbed.process import wait_until
from testbed.testing import BUILD, REPOSITORY, PoolTest, main, skip_program

PROTOS = REPOSITORY / 'proto'
RELEASED = REPOSITORY / 'test/data/api.binpb'  # test/data/README.md says of which release, and how it is made anew.
BREAKING = {'version': 'v2', 'breaking': {'use': ['PACKAGE']}}


def find_buf():
    """Its path. Without it those that need it are skipped, and fail in CI."""
    done = subprocess.run([REPOSITORY / 'test/api/fetch', '--check'], capture_output=True, text=True)
    if done.returncode != 0:
        skip_program(f'buf is not here: {done.stderr.strip()}')
    return done.stdout.strip()


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)


class CompatibilityTest(unittest.TestCase):
    """Of the API, of the records in stores, and of what agents, managers and libpool say to each other."""

    def breaking(self, protos):
        done = run(find_buf(), 'breaking', protos, '--against', RELEASED, '--config', json.dumps(BREAKING))
        return done.stdout + done.stderr

    def test_nothing_that_was_released_has_changed(self):
        self.assertEqual('', self.breaking(PROTOS))

    def test_this_test_can_fail(self):
        for name, was, now in (('cxlpool/v1/resources.proto', 'string reason = 2;', 'string reason = 99;'),
                               ('cxlpool/store/v1/record.proto', 'uint64 next_id = 2;', 'string next_id = 2;'),
                               ('cxlpool/v1/pool_service.proto', 'rpc GetCapacity(', 'rpc GetCapacities(')):
            with self.subTest(name), tempfile.TemporaryDirectory() as copy:
                shutil.copytree(PROTOS, copy, dirs_exist_ok=True)
                text = (PROTOS / name).read_text()
                self.assertIn(was, text)
                (Path(copy) / name).write_text(text.replace(was, now))
                self.assertIn(name, self.breaking(copy))

    def test_ci_does_not_go_without_buf(self):
        with tempfile.TemporaryDirectory() as empty, mock.patch.dict(os.environ, CI='true', CXLPOOL_CACHE=empty):
            with self.assertRaisesRegex(AssertionError, 'buf is not here'):
                find_buf()


class CurlTest(PoolTest):
    """On a pool that buf calls as an operator."""
    @classmethod
    def make_pool(cls, directory):
        cls.buf = find_buf()
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]]})

    def curl(self, *words):
        pki = self.pool.pki
        return run(self.buf, 'curl', '--protocol', 'grpc', '--cacert', f'{pki}/ca.pem', '--cert', f'{pki}/operator-admin.pem',
                   '--key', f'{pki}/operator-admin.key', '--servername', 'fm.cxlpool', *words)

    def url(self, method=''):
        return f'https://127.0.0.1:{self.pool.port}{method}'

    def health(self):
        answer = self.curl('-d', '{}', self.url('/grpc.health.v1.Health/Check'))
        return json.loads(answer.stdout or '{}').get('status', answer.stderr)


class ReflectionTest(CurlTest):
    def test_every_call_is_found(self):
        promised = set()
        for name in ('pool', 'inventory', 'host', 'access'):
            text = (PROTOS / f'cxlpool/v1/{name}_service.proto').read_text()
            service = re.search(r'^service (\w+)', text, re.M)[1]
            promised |= {f'cxlpool.v1.{service}/{rpc}' for rpc in re.findall(r'^  rpc (\w+)\(', text, re.M)}
        self.assertGreater(len(promised), 40)
        listed = self.curl('--list-methods', self.url())
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(promised, {line for line in listed.stdout.split() if line.startswith('cxlpool.')})

    def test_health_is_asked_for(self):
        self.assertEqual(self.health(), 'SERVING')

    def test_a_refusal_has_its_reason_and_its_remedy(self):
        answer = self.curl('-d', '{"name": "regions/none"}', self.url('/cxlpool.v1.PoolService/GetRegion'))
        self.assertNotEqual(answer.returncode, 0)
        error = json.loads(answer.stderr)
        self.assertEqual(error['code'], 'not_found')
        self.assertRegex(error['message'], r'^UNKNOWN_REGION: .*none.* \(see `cxlpool region list`\)$')
        self.assertEqual([detail['type'] for detail in error['details']], ['google.rpc.ErrorInfo'])
        value = error['details'][0]['value']
        info = subprocess.run(['protoc', '-I', PROTOS, '--decode=google.rpc.ErrorInfo', 'google/rpc/error_details.proto'],
                              input=base64.b64decode(value + '=' * (-len(value) % 4)), capture_output=True, check=True).stdout.decode()
        self.assertIn('reason: "UNKNOWN_REGION"', info)
        self.assertRegex(info, r'key: "remedy"\s+value: "see `cxlpool region list`"')


@unittest.skipUnless(os.geteuid() == 0, 'a file system can be mounted by root only')
class FullStoreTest(CurlTest):
    @classmethod
    def make_pool(cls, directory):
        return on_a_small_disk(super().make_pool(directory))

    def test_health_is_back_once_there_is_space(self):
        filler = fill_small_disk(self.pool)
        with self.assertRaisesRegex(CliError, 'STORE_FULL'):
            for i in range(1000):
                self.pool.cli('tenant', 'set', f't{i}', '--fail-fast')
        self.assertEqual(self.health(), 'NOT_SERVING')
        filler.unlink()  # And nobody changes anything.
        wait_until(lambda: self.health() == 'SERVING', 30, 'the store takes changes again')


if __name__ == '__main__':
    main()
