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

COMPONENTS = ('fm', 'agent', 'cli', 'dev', 'examples', 'doc')
# Programs for tests and benches, and the example whose source is installed.
ONLY_HERE = ('bench-*', 'cxlpool-*-trials', 'cxlpool-sim', 'cxlpool-rungs', 'hello-pool', 'pool-ask', 'pool-bytes',
             'pool-pin', 'pool-touch', 'scripted-manager')
LIBPOOL_GUIDE = REPOSITORY / 'docs/libpool.md'


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


def section(guide, title):
    """The fenced blocks below a heading, as (language, text)."""
    text = re.search(rf'^## {title}$(.*?)(?=^## )', guide.read_text(), re.M | re.S).group(1)
    return re.findall(r'^```(\w*)\n(.*?)^```$', text, re.M | re.S)


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
                    self.assertIn(f'\nExecStart=/usr/sbin/{unit.stem} ', unit.read_text())
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

    def test_units_name_what_is_installed(self):
        for unit in sorted((self.prefix / 'lib/systemd/system').iterdir()):
            text = unit.read_text()
            programs = re.findall(r'^Exec\w+=(\S+)', text, re.M)
            self.assertTrue(programs)
            for program in programs:
                if not program.startswith('/bin/'):
                    self.assertTrue(Path(program).is_relative_to(self.prefix), program)
                self.assertTrue(os.access(program, os.X_OK), program)
            for page, number in re.findall(r'^Documentation=man:([\w-]+)\((\d)\)$', text, re.M):
                self.assertTrue((self.prefix / f'share/man/man{number}/{page}.{number}').exists(), page)
            for user in re.findall(r'^User=(\S+)', text, re.M):
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


class LibpoolTest(PoolTest):
    """Programs built with nothing but what is installed, after it was moved, which then use an emulated pool."""

    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory, hosts={'host-a': [[1, 2]]})

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.home = cls.directory / 'home'
        (cls.home / 'build').mkdir(parents=True)
        (cls.home / 'build/dev').symlink_to(BUILD)
        install(cls.directory / 'first', component='dev')
        cls.prefix = cls.directory / 'moved/to/another/place'
        cls.prefix.parent.mkdir(parents=True)
        (cls.directory / 'first').rename(cls.prefix)

    def setUp(self):
        super().setUp()
        self.work = Path(tempfile.mkdtemp(dir=self.home))
        (self.work / 'build').symlink_to(self.home / 'build')
        shutil.copy(self.prefix / 'share/doc/cxlpool/examples/hello_pool.cc', self.work / 'my_program.cc')
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(('PKG_CONFIG', 'CMAKE'))}
        self.environment['HOME'] = str(self.home)

    def assert_greets(self, program):
        socket = self.pool.hosts['host-a'].socket
        said = run([program], env={**self.environment, 'CXLPOOL_SOCKET': str(socket)})
        self.assertRegex(said, r'^268435456 bytes at 0x')
        wait_until(lambda: not self.pool.regions(), 20, 'the Region is gone')

    def pkg_config(self, *words):
        return run(['pkg-config', *words, 'cxlpool'],
                   env={**self.environment, 'PKG_CONFIG_PATH': str(self.prefix / 'lib/pkgconfig')})

    def test_pkg_config_follows_where_it_is(self):
        for option in ((), ('--define-prefix',), ('--dont-define-prefix',)):
            flags = self.pkg_config(*option, '--cflags', '--libs').split()
            named = [Path(flag[2:]).resolve() for flag in flags if flag[:2] in ('-I', '-L')]
            self.assertEqual([n for n in named if n.is_relative_to(self.directory)],
                             [self.prefix / 'include', self.prefix / 'lib'], option)
            program = self.work / 'by-pkg-config'
            run(['c++', '-Wall', '-Wextra', '-Werror', self.work / 'my_program.cc', '-o', program, *flags])
            self.assert_greets(program)
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
        self.assert_greets(self.work / 'out/my_program')

    def test_find_package_keeps_to_its_version(self):
        for version, found in (('0.1', True), ('0.2', False), ('1.0', False)):
            shutil.rmtree(self.work / 'out', ignore_errors=True)
            done = self.cmake(f'cmake_minimum_required(VERSION 3.25)\nproject(p CXX)\nfind_package(cxlpool {version} REQUIRED)\n',
                              f'-DCMAKE_PREFIX_PATH={self.prefix}')
            self.assertEqual(done.returncode == 0, found, done.stderr)

    def test_the_guides_lines_run_as_they_are_printed(self):
        lines = ''.join(text for language, text in section(LIBPOOL_GUIDE, 'Build') if language == '')
        self.assertIn('pkg-config', lines)
        run(['sh', '-euc', lines], cwd=self.work, env=self.environment)
        self.assert_greets(self.work / 'my_program')


if __name__ == '__main__':
    main()
