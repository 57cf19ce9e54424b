"""Who may know whom: reads every #include and holds it against ARCHITECTURE.md's rules."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from testbed.testing import REPOSITORY, main

FOLDERS = ('proto', 'fabric-manager', 'host-agent', 'libpool', 'tools')
PURE_SUPPORT = {'proto/support/byte_size.h', 'proto/support/cxl_host.h', 'proto/support/refusal.h', 'proto/support/names.h', 'proto/support/interned.h',
                'proto/support/sha256.h', 'proto/support/text.h', 'proto/support/token.h', 'proto/support/uuid.h', 'proto/support/check.h',
                'proto/support/mutant.h'}
GRPC = re.compile(r'^(grpc|grpcpp)/|\.grpc\.pb\.h$')
# What stays in its room: header -> the only folders that may include it.
ROOMS = {
    # Benches measure against SQLite itself.
    r'^sqlite3\.h$': ('fabric-manager/adapters/store_sqlite', 'tools/benches'),
    r'^nlohmann/': ('fabric-manager/adapters/fabric_qemu', 'host-agent/adapters/linux'),
    r'^(cxl|daxctl)/|^libdaxctl': ('host-agent/adapters/linux',),
    r'^toml\+\+/': ('proto/support',),
    r'^yaml\.h$': ('tools/cli/render',),
    r'^openssl/': ('tools/pki', 'proto/support'),
    r'^boost/': ('proto/metrics',),
    r'^lz4\.h$': ('fabric-manager/adapters/store_etcd',),
}


def includes():
    for folder in FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob('*')):
            if path.suffix in ('.h', '.cc'):
                name = str(path.relative_to(REPOSITORY))
                for line in path.read_text().splitlines():
                    if match := re.match(r'\s*#include\s+[<"]([^>"]+)[>"]', line):
                        yield name, match.group(1)


def is_test(name):
    return bool(re.search(r'(_test|_rig|fake_\w+|test_\w+|_fixture)\.(cc|h)$', name))


class LayersTest(unittest.TestCase):
    def assert_none(self, bad):
        self.assertEqual([], sorted(set(bad)))

    def test_models_are_pure(self):
        bad = []
        for name, included in includes():
            owner = re.match(r'(fabric-manager|host-agent)/model/', name)
            if not owner or is_test(name):
                continue
            if '/' not in included and not included.endswith('.h'):
                continue  # The standard library.
            if not (included.startswith(('absl/', owner.group(0))) or included in PURE_SUPPORT):
                bad.append((name, included))
        self.assert_none(bad)

    def test_layers_point_inwards(self):
        allowed = {'ports': {'ports', 'model'}, 'service': {'service', 'ports', 'model'},
                   'adapters': {'adapters', 'ports', 'model'}}
        bad = []
        for name, included in includes():
            if is_test(name):
                continue
            owner = re.match(r'(fabric-manager|host-agent)/(ports|service|adapters)/', name)
            other = re.match(r'(fabric-manager|host-agent)/(model|ports|service|adapters|rpc|local)/', included)
            if owner and other and other.group(2) not in allowed[owner.group(2)]:
                bad.append((name, included))
        self.assert_none(bad)

    def test_adapters_do_not_know_each_other(self):
        bad = []
        for name, included in includes():
            mine = re.match(r'(\S+?/adapters/[^/]+)/', name)
            other = re.match(r'(\S+?/adapters/[^/]+)/', included)
            if mine and other and mine.group(1) != other.group(1):
                bad.append((name, included))
        self.assert_none(bad)

    def test_one_file_knows_the_fabric_drivers(self):
        """All others have what a driver says of itself (fabric-manager/ports/fabric_settings.h)."""
        self.assert_none((name, included) for name, included in includes()
                         if included.startswith('fabric-manager/adapters/fabric_') and not is_test(name)
                         and not name.startswith('fabric-manager/adapters/')
                         and name != 'fabric-manager/fabric_drivers.cc')

    def test_no_fabric_driver_is_known_by_its_name(self):
        """Beyond the list, and the choice that `cxlpool-fm init` offers."""
        listed = (REPOSITORY / 'fabric-manager/fabric_drivers.cc').read_text()
        names = re.findall(r'\{"(\w+)", Read\w+\}', listed)
        self.assertIn('emulated', names)
        word = re.compile('"(' + '|'.join(names) + ')"')
        bad = []
        for folder in ('fabric-manager', 'proto', 'tools'):
            for path in (REPOSITORY / folder).rglob('*'):
                name = str(path.relative_to(REPOSITORY))
                if path.suffix in ('.h', '.cc') and not is_test(name) and not name.startswith('fabric-manager/adapters/fabric_') \
                        and name not in ('fabric-manager/fabric_drivers.cc', 'fabric-manager/main.cc'):
                    bad += [(name, line) for line in path.read_text().splitlines() if word.search(line)]
        self.assert_none(bad)

    def test_who_picks_adapters(self):
        """What lies at the top of a part; benches measure an adapter by itself."""
        picks = re.compile(r'(fabric-manager|host-agent)/([^/]+|adapters/.*|fsck/fsck\.cc)$|tools/benches/')
        self.assert_none((name, included) for name, included in includes()
                         if re.match(r'(fabric-manager|host-agent)/adapters/', included) and not is_test(name)
                         and not picks.match(name))

    def test_the_three_parts_do_not_know_each_other(self):
        parts = ('fabric-manager/', 'host-agent/', 'libpool/')
        bad = [(name, included) for name, included in includes()
               for part in parts if name.startswith(part)
               for other in parts if other != part and included.startswith(other)]
        self.assert_none(bad)

    def test_only_tests_and_benches_know_the_tests(self):
        """What stands in for the other side lies in test/rigs, trials beside what they try in test/."""
        self.assert_none((name, included) for name, included in includes()
                         if included.startswith('test/') and not is_test(name) and not name.startswith('tools/benches/'))

    def test_grpc_stays_in_rpc(self):
        allowed = re.compile(r'^(fabric-manager/rpc/|fabric-manager/adapters/store_etcd/etcd_client\.cc$|host-agent/rpc/|proto/support/|tools/)')
        self.assert_none((name, included) for name, included in includes()
                         if GRPC.search(included) and not allowed.match(name))
        self.assert_none((name, included) for name, included in includes()
                         if name.startswith('libpool/') and GRPC.search(included))

    def test_libpool_links_nothing_into_other_programs(self):
        """Its headers need the C and C++ libraries alone, and so does its code (ADR 32)."""
        support = {'absl/base/thread_annotations.h', 'proto/support/mutex.h', 'proto/support/mutant.h', 'proto/support/unique_fd.h', 'proto/support/usage_page.h'}
        self.assert_none((name, included) for name, included in includes()
                         if name.startswith(('libpool/src/', 'libpool/include/')) and not is_test(name)
                         and not name.endswith('_for_test.h') and included not in support
                         and re.match(r'(absl|google|proto|cxlpool/v1|test|libpool/examples)/', included))
        self.assert_none((name, included) for name, included in includes()
                         if name.startswith('libpool/include/') and '/' in included and not included.startswith('cxlpool/'))

    def test_libraries_stay_in_their_rooms(self):
        bad = []
        for name, included in includes():
            for pattern, rooms in ROOMS.items():
                if re.search(pattern, included) and not name.startswith(rooms) and not is_test(name):
                    bad.append((name, included))
        self.assert_none(bad)

    def test_targets_keep_the_same_rules(self):
        """The link lines of each layer: what CMake lets a target see."""
        for folder, forbidden in (('fabric-manager/model', ('grpc', 'proto ', 'ports', 'service')),
                                  ('fabric-manager/service', ('grpc', '_rpc', 'adapters')),
                                  ('libpool', ('grpc', 'fm_', 'agent_'))):
            text = (REPOSITORY / folder / 'CMakeLists.txt').read_text()
            libraries = re.findall(r'cxlpool_library\((.*?)\)', text, re.S)
            for library in libraries:
                for word in forbidden:
                    self.assertNotIn(word, library, f'{folder}: {word}')

    def test_what_tests_read_is_new_to_them_when_it_changes(self):
        """tools/test --quick leaves out programs that were not built since they passed."""
        read = re.search(r'^ *read=\((.*)\)$', (REPOSITORY / 'tools/test').read_text(), re.M)[1].split()
        self.assert_none(path for path in read if not (REPOSITORY / path).exists())
        told = set()
        for folder in (*FOLDERS, 'test'):
            for file in (REPOSITORY / folder).glob('**/CMakeLists.txt'):
                for base, path in re.findall(r'="\$\{(\w+)_SOURCE_DIR\}/([^"]+)"', file.read_text()):
                    told.add(str((REPOSITORY if base == 'PROJECT' else file.parent).relative_to(REPOSITORY) / path))
            for file in (REPOSITORY / folder).glob('**/*_test.cc'):
                told |= set(re.findall(r'CXLPOOL_SOURCE_DIR "/([^"]+)"', file.read_text()))
        self.assertGreater(len(told), 4)
        self.assert_none(path for path in told if not any(path == known or path.startswith(f'{known}/') for known in read))
        started = re.findall(r' (\w+_test):', (REPOSITORY / 'tools/test').read_text())
        for folder in (*FOLDERS, 'test'):
            for file in (REPOSITORY / folder).glob('**/CMakeLists.txt'):
                self.assert_none(name for name in re.findall(r'add_dependencies\((\w+_test) ', file.read_text()) if name not in started)

    def test_a_selection_that_no_test_fits_is_no_success(self):
        """`tools/test -R` with a slip of the pen, with --quick, too; that there nothing is new is a success."""
        with tempfile.TemporaryDirectory() as directory:
            tools, build = Path(directory) / 'tools', Path(directory) / 'build/dev'
            tools.mkdir()
            build.mkdir(parents=True)
            shutil.copy(REPOSITORY / 'tools/test', tools)
            (tools / 'testbed').symlink_to(REPOSITORY / 'tools/testbed')
            for step in ('setup', 'build'):
                (tools / step).write_text('#!/bin/sh\n')
                (tools / step).chmod(0o755)
            (build / 'CTestTestfile.cmake').write_text('add_test(some_test "true")\nset_tests_properties(some_test PROPERTIES LABELS unit)\n')

            def run(*words):
                done = subprocess.run([tools / 'test', *words], capture_output=True, text=True, timeout=60)
                return done.returncode, done.stdout + done.stderr

            for name, status in (('some', 0), ('smoe', 8)):
                code, said = run('-R', name)
                self.assertEqual(code, status, said)
                self.assertRegex(said, r'\nin \d+ s, with setup and build\n')
            self.assertEqual(run('--quick')[0], 0)
            program = build / 'some_test'
            program.touch(mode=0o755)
            os.utime(program, (1, 1))  # It passed since it was built.
            for name, status in (('some', 0), ('smoe', 8)):
                code, said = run('--quick', '-R', name)
                self.assertEqual(code, status, said)


if __name__ == '__main__':
    main()
