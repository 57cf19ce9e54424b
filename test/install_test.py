"""`cmake --install` installs everything, under any prefix, and what is installed is enough to build and run a program."""

import fnmatch
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from testbed.emulated import EmulatedPool
from testbed.process import wait_until
from testbed.testing import BUILD, REPOSITORY, PoolTest, main

COMPONENTS = ('fm', 'agent', 'cli', 'lib', 'dev', 'python', 'examples', 'doc', 'slurm')
# Programs for tests and benches, the example whose source is installed, and the half of a driver that is not complete.
ONLY_HERE = ('bench-*', 'cxlpool-*-trials', 'cxlpool-dra', 'cxlpool-sim', 'cxlpool-rungs', 'fake-kubelet', 'forge-trail', 'hello-pool', 'pool-ask', 'pool-bytes',
             'pool-objects', 'pool-path', 'pool-pin', 'pool-poison', 'pool-touch', 'scripted-manager', 'scripted-standby')
README = REPOSITORY / 'README.md'
LIBPOOL_GUIDE = REPOSITORY / 'docs/libpool.md'
PYTHON_GUIDE = REPOSITORY / 'docs/libpool-python.md'
LIBPOOL_NEEDS = ('libc.so.6', 'libm.so.6', 'libstdc++.so.6', 'libgcc_s.so.1', 'ld-linux*')
WARNINGS = ('-Wall', '-Wextra', '-Wpedantic', '-Werror')

# What the guide's pieces of C++ use and do not declare.
NAMES_OF_THE_GUIDE = '''
#include <cxlpool/copier.h>
#include <cxlpool/pool.h>
#include <sys/mman.h>
#include <cstring>
#include <iostream>
#include <vector>
using namespace cxlpool::literals;
extern cxlpool::Result<cxlpool::Pool> pool;
extern cxlpool::Result<cxlpool::Region> region;
extern cxlpool::Result<cxlpool::Mapping> mapping;
extern std::vector<float> weights;
extern std::vector<std::span<std::byte>> layers;
extern size_t size, offset, length, layer_bytes, live, slack;
extern void* to;
void Compute(std::span<std::byte> layer);
int cudaHostRegister(void*, size_t, unsigned);
int cudaHostUnregister(void*);
int cudaGetLastError();
inline constexpr unsigned cudaHostRegisterDefault = 0, cudaHostRegisterReadOnly = 8;
'''


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    if done.returncode:
        raise AssertionError(f'{command} ends with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}')
    return done.stdout


def install(prefix, *, component=None, destdir=None):
    words = ['cmake', '--install', BUILD, '--prefix', prefix, *(['--component', component] if component else [])]
    run(words, env={**os.environ, 'DESTDIR': str(destdir or '')})


def files_below(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob('*') if not path.is_dir())


def listed():
    """Component -> patterns of its files, as packaging/installed.txt has them."""
    files = {component: [] for component in COMPONENTS}
    for line in (REPOSITORY / 'packaging/installed.txt').read_text().splitlines():
        if not line.startswith('#'):
            component, pattern = line.split()
            files[component].append(pattern)
    return files


def difference(found, patterns):
    """What is installed and not listed, and what is listed and not installed."""
    unknown = [path for path in found if not any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)]
    missing = [pattern for pattern in patterns if not fnmatch.filter(found, pattern)]
    return unknown, missing


def blocks(text):
    """The fenced blocks of a text, as (language, text)."""
    return re.findall(r'^```(\w*)\n(.*?)^```$', text, re.M | re.S)


def section(guide, title):
    """Those below a heading."""
    return blocks(re.search(rf'^## {title}$(.*?)(?=^## )', guide.read_text(), re.M | re.S).group(1))


class InstalledFilesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = Path(tempfile.mkdtemp(prefix='cxlpool-install-'))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.prefix = cls.directory / 'opt/cxlpool'
        install(cls.prefix)

    def test_all_of_it_is_what_the_list_says(self):
        patterns = sum(listed().values(), [])
        self.assertEqual(difference(files_below(self.prefix), patterns), ([], []))

    def test_each_component_is_what_the_list_says(self):
        """Into DESTDIR, as a package is made: nothing outside of it, and no file in two components."""
        for component in COMPONENTS:
            with self.subTest(component):
                stage = self.directory / component
                install('/usr', component=component, destdir=stage)
                self.assertEqual(difference(files_below(stage), [f'usr/{p}' for p in listed()[component]]), ([], []))
                for unit in stage.rglob('*.service'):
                    self.assertRegex(unit.read_text(), rf'\nExecStart=/usr/(sbin/{unit.stem}|bin/cxlpool) ')
                shutil.rmtree(stage)

    def test_every_program_is_installed_or_only_for_tests(self):
        installed = {path.name for folder in ('bin', 'sbin') for path in (self.prefix / folder).iterdir()}
        built = {path.name for path in (BUILD / 'bin').iterdir() if path.is_file()}
        self.assertLessEqual(installed, built)
        self.assertEqual([name for name in sorted(built - installed)
                          if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ONLY_HERE)], [])

    def test_every_program_runs_and_has_a_page(self):
        for program in sorted([*(self.prefix / 'bin').iterdir(), *(self.prefix / 'sbin').iterdir()]):
            if program.name.startswith('cxlpool'):
                self.assertIn('0.1', run([program, '--version']))
            pages = list((self.prefix / 'share/man').glob(f'man?/{program.name}.?'))
            self.assertEqual(len(pages), 1, f'{program.name} has no man page')

    def page(self, path):
        """As it is read, on one line; nothing is wrong with it."""
        if not shutil.which('man'):
            self.skipTest('there is no man')
        done = subprocess.run(['man', '--warnings', '--local-file', path], capture_output=True, text=True, timeout=60,
                              env={**os.environ, 'MANWIDTH': '400', 'LC_ALL': 'C.UTF-8', 'MANPAGER': 'cat'})
        self.assertEqual((done.returncode, done.stderr), (0, ''), path)
        return done.stdout

    def test_pages_are_sound_and_say_what_help_says(self):
        pages = sorted((self.prefix / 'share/man').glob('man?/*'))
        self.assertGreaterEqual(len(pages), 9)
        for path in pages:
            text = self.page(path)
            self.assertNotIn('@', text, f'{path}: a line of the template is left')
            programs = [p for folder in ('bin', 'sbin') for p in [self.prefix / folder / path.stem] if p.exists()]
            for program in programs:
                for option in re.findall(r'^ +(?:-\w,)?(--[\w-]+)', run([program, '--help']), re.M):
                    if option != '--help':
                        self.assertIn(option, text, path)

    def test_every_configuration_has_a_page_with_its_keys(self):
        for example in sorted((self.prefix / 'share/doc/cxlpool/examples').glob('*.toml')):
            page = self.prefix / f'share/man/man5/{example.name}.5'
            self.assertTrue(page.exists(), f'{example.name} has no man page')
            text = self.page(page).split('\nEXAMPLE\n')[0]
            keys = {word for tag in re.findall(r'^ {7}((?:\[*[\w.]+\]*(?:, )?)+)', text, re.M) for word in re.findall(r'\w+', tag)}
            for line in example.read_text().splitlines():
                if match := re.match(r'#?(?:\[+(\w+)[\w.]*\]+|(\w+) = )', line):
                    word = match.group(1) or match.group(2)
                    self.assertIn(word, keys, f'{page}: {line}')

    def test_units_name_what_is_installed(self):
        for unit in sorted((self.prefix / 'lib/systemd/system').iterdir()):
            text = unit.read_text()
            programs = re.findall(r'^Exec\w+=(\S+)', text, re.M)
            self.assertEqual(bool(programs), unit.suffix == '.service')
            for program in programs:
                if not program.startswith('/bin/'):
                    self.assertTrue(Path(program).is_relative_to(self.prefix), program)
                self.assertTrue(os.access(program, os.X_OK), program)
            for page, number in re.findall(r'^Documentation=man:([\w-]+)\((\d)\)$', text, re.M):
                self.assertTrue((self.prefix / f'share/man/man{number}/{page}.{number}').exists(), page)
            for user in re.findall(r'^User=(\S+)', text, re.M):
                if user != 'slurm':  # Whom Slurm's own package makes.
                    self.assertRegex((self.prefix / 'lib/sysusers.d/cxlpool.conf').read_text(), rf'(?m)^u {user} ')
            if shutil.which('systemd-analyze'):
                done = subprocess.run(['systemd-analyze', 'verify', '--man=no', unit], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr.strip()), (0, ''))

    def test_examples_name_the_files_that_pki_makes(self):
        pki = self.directory / 'pki'
        cxlpool = self.prefix / 'bin/cxlpool'
        run([cxlpool, 'pki', 'init', '--dir', pki])
        for what in (('manager', 'fm'), ('host', 'host-a'), ('operator', 'alice')):
            run([cxlpool, 'pki', 'issue', *what, '--dir', pki])
        for example in ('fm', 'agent', 'cli'):
            text = (self.prefix / f'share/doc/cxlpool/examples/{example}.toml').read_text()
            names = re.findall(r'^(?:ca|cert|key) = "(.*)"', text, re.M)
            self.assertEqual(len(names), 3, example)
            for name in names:
                self.assertEqual(Path(name).parent.name, 'pki')
                self.assertTrue((pki / Path(name).name).exists(), f'{example}.toml names {name}')


class SharedLibraryTest(unittest.TestCase):
    """What libcxlpool.so.1 and libcxlpool-heap.so.1 ask of a process, and what they show to one (ADR 32)."""

    @classmethod
    def setUpClass(cls):
        cls.prefix = Path(tempfile.mkdtemp(prefix='cxlpool-install-'))
        cls.addClassCleanup(shutil.rmtree, cls.prefix)
        for component in ('lib', 'dev'):
            install(cls.prefix, component=component)

    def each_library(self):
        """Name, what it may need besides what C and C++ need, its headers, and the symbols that are listed of it."""
        for name, needs, headers, symbols in (
                ('libcxlpool.so.1', (), ('cxlpool.h', 'directory.h'), 'libpool/src/cxlpool.symbols'),
                ('libcxlpool-heap.so.1', ('libcxlpool.so.1',), ('heap.h',), 'libpool/heap/heap.symbols')):
            with self.subTest(name):
                yield name, needs, headers, (REPOSITORY / symbols).read_text().splitlines()

    def test_it_needs_the_libraries_of_c_and_cpp_alone(self):
        for name, needs, _, _ in self.each_library():
            dynamic = run(['readelf', '--wide', '--dynamic', self.prefix / 'lib' / name])
            needed = re.findall(r'\(NEEDED\).*\[(.+)\]', dynamic)
            self.assertTrue(needed)
            self.assertLessEqual(set(needs), set(needed))
            self.assertEqual([n for n in needed if not any(fnmatch.fnmatchcase(n, p) for p in (*LIBPOOL_NEEDS, *needs))], [])
            self.assertEqual(re.findall(r'\(SONAME\).*\[(.+)\]', dynamic), [name])

    def test_it_stays_when_a_program_unloads_it(self):
        """The handler of SIGBUS, and what runs at the end of a thread, point into it."""
        for name, *_ in self.each_library():
            self.assertRegex(run(['readelf', '--wide', '--dynamic', self.prefix / 'lib' / name]), r'\(FLAGS_1\).*\bNODELETE\b')

    def test_it_shows_what_is_listed(self):
        """And so neither malloc nor anything else of the jemalloc that the heap has inside."""
        for name, _, _, listed in self.each_library():
            symbols = [line.split() for line in run(['nm', '--dynamic', '--defined-only', self.prefix / 'lib' / name]).splitlines()]
            # A: the versions themselves, where nm lists them.
            self.assertEqual(sorted(symbol for _, kind, symbol in symbols if kind != 'A'), listed)

    def test_the_header_declares_what_is_listed(self):
        for _, _, headers, listed in self.each_library():
            text = '\n'.join((self.prefix / 'include/cxlpool' / header).read_text() for header in headers)
            declared = re.findall(r'^CXLPOOL_API [^;(]*?(\w+)\(', text, re.M)
            self.assertEqual(sorted(declared), [name.partition('@@')[0] for name in listed])

    def test_headers_compile_by_themselves(self):
        for header, compiler in (('cxlpool.h', ('cc', '-std=c89', '-x', 'c')), ('cxlpool.h', ('c++', '-std=c++98', '-x', 'c++')),
                                 ('directory.h', ('cc', '-std=c89', '-x', 'c')), ('heap.h', ('cc', '-std=c89', '-x', 'c')), ('heap.h', ('c++', '-std=c++98', '-x', 'c++')),
                                 ('pool_heap.h', ('c++', '-std=c++20', '-x', 'c++')),
                                 ('pool_heap.h', ('c++', '-std=c++20', '-fno-exceptions', '-fno-rtti', '-x', 'c++')),
                                 ('pool.h', ('c++', '-std=c++20', '-x', 'c++')),
                                 ('pool.h', ('c++', '-std=c++20', '-fno-exceptions', '-fno-rtti', '-x', 'c++')),
                                 ('copier.h', ('c++', '-std=c++20', '-fno-exceptions', '-fno-rtti', '-x', 'c++'))):
            with self.subTest(header, compiler=compiler):
                run([*compiler, '-fsyntax-only', *WARNINGS, '-I', self.prefix / 'include', '-include', f'cxlpool/{header}',
                     '/dev/null'])


class LibpoolTest(PoolTest):
    """Programs built with nothing but what is installed, after it was moved, which then use an emulated pool."""

    @classmethod
    def make_pool(cls, directory):
        # Several bridges: one is not to be had while a program's Region, which ended just now, is leaving it.
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2], [3, 4], [5, 6], [7, 8]]})

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.home = cls.directory / 'home'
        (cls.home / 'build').mkdir(parents=True)
        (cls.home / 'build/dev').symlink_to(BUILD)
        for component in ('lib', 'dev'):
            install(cls.directory / 'first', component=component)
        cls.prefix = cls.directory / 'moved/to/another/place'
        cls.prefix.parent.mkdir(parents=True)
        (cls.directory / 'first').rename(cls.prefix)

    def setUp(self):
        super().setUp()
        self.work = Path(tempfile.mkdtemp(dir=self.home))
        (self.work / 'build').symlink_to(self.home / 'build')
        shutil.copy(self.prefix / 'share/doc/cxlpool/examples/hello_pool.cc', self.work / 'my_program.cc')
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(('PKG_CONFIG', 'CMAKE'))}
        self.environment.pop('LD_LIBRARY_PATH', None)
        self.environment.update(HOME=str(self.home), CXLPOOL_SOCKET=str(self.pool.hosts['host-a'].socket))
        self.finds_library = {**self.environment, 'LD_LIBRARY_PATH': str(self.prefix / 'lib')}

    def assert_greeting(self, said):
        self.assertRegex(said, r'(?m)^268435456 bytes at 0x')
        wait_until(lambda: not self.pool.regions(), 20, 'the Region is gone')

    def assert_greets(self, program, environment):
        self.assert_greeting(run([program], env=environment))

    def pkg_config(self, *words, package='cxlpool'):
        return run(['pkg-config', *words, package],
                   env={**self.environment, 'PKG_CONFIG_PATH': str(self.prefix / 'lib/pkgconfig')})

    def test_pkg_config_follows_where_it_is(self):
        for option in ((), ('--define-prefix',), ('--dont-define-prefix',)):
            flags = self.pkg_config(*option, '--cflags', '--libs').split()
            named = [Path(flag[2:]).resolve() for flag in flags if flag[:2] in ('-I', '-L')]
            self.assertEqual([n for n in named if n.is_relative_to(self.directory)],
                             [self.prefix / 'include', self.prefix / 'lib'], option)
            program = self.work / 'by-pkg-config'
            run(['c++', '-std=c++20', *WARNINGS, self.work / 'my_program.cc', '-o', program, *flags])
            self.assert_greets(program, self.finds_library)
        self.assertEqual(self.pkg_config('--modversion').strip(), run([BUILD / 'bin/cxlpool', '--version']).split()[-1])

    def cmake(self, text, *options):
        (self.work / 'CMakeLists.txt').write_text(text)
        return subprocess.run(['cmake', '-S', self.work, '-B', self.work / 'out', *options], capture_output=True,
                              text=True, timeout=120, env=self.environment)

    def test_find_package_follows_where_it_is(self):
        texts = [text for language, text in section(LIBPOOL_GUIDE, 'Build') if language == 'cmake']
        self.assertEqual(len(texts), 1)
        done = self.cmake(texts[0], f'-DCMAKE_PREFIX_PATH={self.prefix}')
        self.assertEqual(done.returncode, 0, done.stderr)
        run(['cmake', '--build', self.work / 'out'], env=self.environment)
        self.assert_greets(self.work / 'out/my_program', self.environment)

    def test_find_package_keeps_to_its_version(self):
        for version, found in (('0.1', True), ('0.2', False), ('1.0', False)):
            shutil.rmtree(self.work / 'out', ignore_errors=True)
            done = self.cmake(f'cmake_minimum_required(VERSION 3.25)\nproject(p CXX)\nfind_package(cxlpool {version} REQUIRED)\n',
                              f'-DCMAKE_PREFIX_PATH={self.prefix}')
            self.assertEqual(done.returncode == 0, found, done.stderr)

    def test_the_guides_lines_run_as_they_are_printed(self):
        lines, with_a_run_path = [text for language, text in section(LIBPOOL_GUIDE, 'Build') if language == '']
        self.assert_greeting(run(['sh', '-euc', lines], cwd=self.work, env=self.environment))
        (self.work / 'my_program').unlink()
        run(['sh', '-euc', f'export PKG_CONFIG_PATH=~/cxlpool/lib/pkgconfig\n{with_a_run_path}'], cwd=self.work,
            env=self.environment)
        self.assert_greets(self.work / 'my_program', self.environment)

    def test_the_readmes_programs_run_by_its_lines(self):
        parts = dict(section(README, 'From a program'))
        for language, file in (('cpp', 'hello.cc'), ('c', 'hello.c'), ('python', 'hello.py')):
            (self.work / file).write_text(parts[language])
        said = run(['sh', '-euc', parts['']], cwd=self.work, env=self.environment)
        self.assertEqual(len(re.findall(r'(?m)^268435456 bytes at 0x', said)), 3, said)
        for compiler, file in (('c++ -std=c++20', 'hello.cc'), ('cc -std=c89', 'hello.c')):
            run([*compiler.split(), *WARNINGS, '-fsyntax-only', *self.pkg_config('--cflags').split(), self.work / file])
        wait_until(lambda: not self.pool.regions(), 20, 'the Regions are gone')

    def test_the_first_programs_run_by_their_lines(self):
        install(self.work / 'python', component='python')
        parts = dict(section(REPOSITORY / 'docs/for-programs.md', 'A program that knows of the pool'))
        for language, file in (('cpp', 'first.cc'), ('python', 'first.py')):
            (self.work / file).write_text(parts[language])
        self.pool.allocate('kv', '256MiB', 'host-a')
        said = run(['sh', '-euc', parts['']], cwd=self.work, env={**self.environment, **self.finds_library,
                   'PKG_CONFIG_PATH': str(self.prefix / 'lib/pkgconfig'), 'PYTHONPATH': str(self.work / 'python/lib/python3/dist-packages')})
        self.pool.release_all()
        self.assertRegex(said, r"^regions/kv has 268435456 bytes\nregions/\S+ 268435456 b'hello'\n$")

    def test_the_guides_python_runs_as_it_is_installed(self):
        """What needs no numpy: the others are in test/integration/python_science_test.py."""
        install(self.work / 'python', component='python')
        programs = [text for language, text in blocks(PYTHON_GUIDE.read_text()) if language == 'python' and 'numpy' not in
                    re.findall(r'^import (\w+)', text, re.M) and "load('model')" not in text]
        environment = {**self.finds_library, 'PYTHONPATH': str(self.work / 'python/lib/python3/dist-packages')}
        said = []
        for program in programs:
            (self.work / 'program.py').write_text(program)
            said.append(run(['/usr/bin/python3', self.work / 'program.py'], cwd=self.work, env=environment))
            wait_until(lambda: not self.pool.regions(), 20, 'the Region is gone')
        self.assertRegex(said[0], r'^regions/\S+ 268435456\n$')
        self.assertEqual(said[1:], ['True 2 None\n', 'True\n'])

    def test_the_guides_pieces_of_cpp_compile(self):
        """With the names that the text has for what they use. What the text leaves out, by dots, is left out here."""
        pieces = [text for language, text in blocks(LIBPOOL_GUIDE.read_text()) if language == 'cpp']
        source = [NAMES_OF_THE_GUIDE]
        for number, piece in enumerate(pieces):
            lines = [line for line in piece.splitlines() if not line.startswith('#include')]
            if lines[0].startswith('int Register('):
                source += lines
            elif not any(whole in piece for whole in ('int main()', 'Result<void> Hello()', '{ ... }')):
                source += [f'cxlpool::Result<void> Piece{number}() {{', *lines, 'return {};', '}']
        self.assertGreater(len(source), 50)
        (self.work / 'pieces.cc').write_text('\n'.join((*source, '')))
        run(['c++', '-std=c++20', *WARNINGS, '-Wno-unused', '-fsyntax-only', *self.pkg_config('--cflags').split(), self.work / 'pieces.cc'])

    def test_the_guides_program_in_cpp_is_the_example(self):
        (program,) = [text for language, text in section(LIBPOOL_GUIDE, r'A whole program in C\+\+') if '#include' in text]
        example = (self.work / 'my_program.cc').read_text()
        for part in program.split('\n\n', 1):
            self.assertIn(part.strip(), example)

    def test_the_guides_heap_runs(self):
        (program,) = [text for language, text in section(LIBPOOL_GUIDE, 'A heap') if language == 'cpp']
        (self.work / 'my_heap.cc').write_text(program)
        run(['c++', '-std=c++20', *WARNINGS, self.work / 'my_heap.cc', '-o', self.work / 'my_heap',
             *self.pkg_config('--cflags', '--libs', package='cxlpool-heap').split()])
        self.assertEqual(run([self.work / 'my_heap'], env=self.finds_library), '1 1\n')
        wait_until(lambda: not self.pool.regions(), 20, 'the Regions are gone')

    def test_the_guides_heap_is_found_by_cmake(self):
        (self.work / 'my_program.cc').write_text(
            '#include <cxlpool/pool_heap.h>\nint main() { return cxlpool_heap_allocate(nullptr, 1, 0) != nullptr; }\n')
        done = self.cmake('cmake_minimum_required(VERSION 3.25)\nproject(p CXX)\nfind_package(cxlpool REQUIRED)\n'
                          'add_executable(p my_program.cc)\ntarget_compile_features(p PRIVATE cxx_std_20)\n'
                          'target_link_libraries(p PRIVATE cxlpool::heap)\n', f'-DCMAKE_PREFIX_PATH={self.prefix}')
        self.assertEqual(done.returncode, 0, done.stderr)
        run(['cmake', '--build', self.work / 'out'], env=self.environment)
        run([self.work / 'out/p'], env=self.environment)

    def test_the_guides_program_in_c_runs(self):
        parts = section(LIBPOOL_GUIDE, 'A whole program in C')
        (program,) = [text for language, text in parts if language == 'c']
        (line,) = [text for language, text in parts if language == '']
        for option in ('-std=c89', *WARNINGS):
            self.assertIn(f' {option} ', line)
        (self.work / 'my_program.c').write_text(program)
        run(['sh', '-euc', line], cwd=self.work,
            env={**self.environment, 'PKG_CONFIG_PATH': str(self.prefix / 'lib/pkgconfig')})
        self.assert_greets(self.work / 'my_program', self.finds_library)


if __name__ == '__main__':
    main()
