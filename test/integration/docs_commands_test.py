"""Each command that README, docs and man pages print is one that works: it runs as printed, on a pool that is prepared for
it, or, where that cannot be had here, it is at least read by the real command line, with the reason."""

import itertools
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

from testbed.emulated import EmulatedPool
from testbed.pool import free_port
from testbed.testing import BUILD, REPOSITORY, PoolTest, main

BIN = BUILD / 'bin'
TEXTS = ['README.md', 'CHANGELOG.md', *sorted(str(p.relative_to(REPOSITORY)) for p in REPOSITORY.glob('docs/*.md'))]
PAGES = sorted(str(p.relative_to(REPOSITORY)) for p in REPOSITORY.glob('packaging/man/*.[158]*'))
OURS = r'(?:cxlpool|cxlpool-fm|cxlpool-agent|pool-[a-z]+)'
AS_MANAGER = 'runuser -u cxlpool -- '  # Before what root runs as the manager's user.

# What the texts write where a reader puts his own.
PLACEHOLDERS = {'HOST': 'host-a', 'NAME': 'kv', 'DEVICE': 'cmm-0', 'TENANT': 'ml', 'WHY': 'why', 'TEXT': 'why', 'ROLE': 'operator',
                'TERM': '1h', 'SIZE': '1GiB', 'FILE': 'some-file', 'DB': 'some-file', 'DIR': 'some-dir', 'REGION': 'kv'}

# Slurm's own hooks, which nobody types: of `slurm` the synopsis of docs/cli.md has what people call.
BY_SLURM = {('slurm', hook) for hook in ('pools', 'validate', 'setup', 'real-size', 'paths', 'pre-run', 'teardown')}

# Not even read by the command line here: what is in these blocks is run by a test of its own, or is no command of ours.
ELSEWHERE = {'docs/install.md': 'test/systemd/install_page_test.py'}


def read(name):
    return (REPOSITORY / name).read_text()


def plain(page):
    """A man page without its markup."""
    text = re.sub(r'^\.(?:B|I|BR|BI|RB|IR|RI) "?(.*?)"?$', r'\1', page, flags=re.M)
    return re.sub(r'\\f[BIRP]', '', text).replace('\\-', '-')


def blocks(name):
    """Fenced blocks of a text, .nf blocks of a page."""
    if name in PAGES:
        return re.findall(r'^\.nf\n(.*?)^\.fi$', plain(read(name)), flags=re.M | re.S)
    # `sh one`: run on a machine of its own, by test/systemd.
    return [text for kind, text in re.findall(r'^```([^\n]*)\n(.*?)^```$', read(name), flags=re.M | re.S) if kind != 'sh one']


def inline(name):
    if name in PAGES:
        return []
    prose = re.sub(r'^```.*?^```$', '', read(name), flags=re.M | re.S)
    found = [c.removeprefix(AS_MANAGER) for c in re.findall(r'`([^`]+)`', prose)]
    return [c for c in found if re.match(OURS + r'\s', c)]


def is_synopsis(line):
    """Shows what may be given, and is not to be typed: it has brackets, choices or dots."""
    bare = re.sub(r"'[^']*'", '', line)
    return bool(re.search(r'\[[A-Za-z-]|\w\|\w|\w \| \w|\.\.\.', bare))


def commands(name):
    """The lines of a text that are commands of ours, each as it is printed."""
    if name in ELSEWHERE:
        return
    for block in blocks(name):
        for line in block.splitlines():
            if line.startswith(' ' * 8):
                continue  # It is within what a command prints.
            line = re.sub(r'\s+#.*$', '', line.strip().removeprefix('$ ').removeprefix(AS_MANAGER))
            if re.match(r'(?:CXLPOOL_\w+=\S+ )?(?:build/dev/bin/)?' + OURS + r'\s', line):
                yield line, True
    for command in inline(name):
        yield re.sub(r'\s+', ' ', command), False


def words_of(command):
    return [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]


class DocsPool(PoolTest):
    """Runs what a text prints, in the order in which it prints it."""
    ran, parsed, synopses = [], [], []

    @classmethod
    def make_pool(cls, directory):
        return EmulatedPool(BUILD, directory)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.work = cls.directory / 'work'
        cls.work.mkdir()
        cls.pool.cli('tenant', 'set', 'ml')
        (cls.directory / 'cli.toml').write_text(
            f'manager = "127.0.0.1:{cls.pool.port}"\nca = "{cls.pool.pki}/ca.pem"\n'
            f'cert = "{cls.pool.pki}/operator-admin.pem"\nkey = "{cls.pool.pki}/operator-admin.key"\n')

    def tearDown(self):
        for device in ('cmm-0', 'cmm-1'):
            self.pool.cli('device', 'add', device)
        self.pool.release_all()

    def shell(self, line, status=0, host=None):
        """Runs one printed line as it is, with our programs on the path."""
        line = re.sub(r'CXLPOOL_SOCKET=/tmp/\.\.\./(host-[ab])/agent\.sock build/dev/bin/',
                      lambda m: f'CXLPOOL_SOCKET={self.pool.hosts[m[1]].socket} ', line)
        env = {'PATH': f'{BIN}:/usr/bin:/bin', 'HOME': str(self.work), 'CXLPOOL_CONFIG': str(self.directory / 'cli.toml')}
        if host:
            env['CXLPOOL_SOCKET'] = str(self.pool.hosts[host].socket)
        done = subprocess.run(['bash', '-c', line], cwd=self.work, env=env, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, f'{line}\n{done.stdout}{done.stderr}')
        self.ran.append(line)
        return done.stdout + done.stderr


class ReadmeTest(DocsPool):
    def test_the_tour(self):
        tour = [c for c, block in commands('README.md') if block]
        for line in tour[:tour.index(next(c for c in tour if 'tenant set' in c))]:
            self.shell(line, status=4 if line.endswith('region release kv') else 0)

    def test_what_an_operator_can_do(self):
        block = next(b for b in blocks('README.md') if 'tenant set' in b)
        for line in block.splitlines():
            if line.startswith('cxlpool-agent check'):
                continue  # Of the real machine.
            said = self.shell(line)
            if 'device drain' in line:
                self.assertIn('DRAINING', said)


class FirstPagesTest(DocsPool):
    """The pages that each kind of user begins with, from an empty pool; for-programs.md's programs are install_test's."""

    def run_page(self, name, **options):
        lines = [line for line, block in commands(name) if block and line != 'cxlpool-agent check']  # Of the real machine.
        self.assertGreater(len(lines), 5)
        for line in lines:
            self.shell(line, **options)
        self.assertEqual(self.pool.regions(), {})

    def test_for_operators(self):
        self.run_page('docs/for-operators.md')

    def test_for_hosts(self):
        self.run_page('docs/for-hosts.md', host='host-a')


class CliPageTest(DocsPool):
    def setUp(self):
        super().setUp()
        self.pool.allocate('kv', '512MiB', 'host-a', '--tenant', 'ml')

    def test_its_examples(self):
        session = next(b for b in blocks('docs/cli.md') if 'pki init --dir pki' in b and 'cat >' in b)
        for line, block in commands('docs/cli.md'):
            placeholder = PLACEHOLDERS.keys() & set(line.split())
            if not block or is_synopsis(line) or placeholder or line in session or line.startswith('cxlpool: '):
                continue
            self.shell(line)

    def test_its_completion(self):
        def completed(*words):
            line = ' '.join(shlex.quote(word) for word in ('cxlpool', *words))
            return self.shell(f'source <(cxlpool completion bash); COMP_WORDS=({line}); COMP_CWORD={len(words)}; _cxlpool; '
                              'printf "%s\n" "${COMPREPLY[@]}"').split()
        self.assertEqual(completed('region', 'al'), ['allocate'])
        self.assertEqual(completed('region', 'show', ''), ['kv'])
        self.assertEqual(completed('explain', 'host/'), ['host/host-a', 'host/host-b'])
        self.assertEqual(completed('region', 'allocate', '--tenant', 'm'), ['ml'])
        self.assertEqual(completed('region', 'show', 'nothing'), [])
        (self.work / 'topology.toml').write_text('')
        self.assertEqual(completed('topology', 'apply', 'topo'), ['topology.toml'])

    def test_its_batch(self):
        block = next(b for b in blocks('docs/cli.md') if b.startswith('{"region_id"'))
        (self.work / 'requests.jsonl').write_text(block)
        self.shell('cxlpool region allocate --batch requests.jsonl')
        self.assertIn('kv-1', self.pool.regions())

    def test_its_cli_toml_is_read(self):
        block = next(b for b in blocks('docs/cli.md') if b.startswith('manager = '))
        (self.work / 'cli.toml').write_text(block)
        # It is read, and the files that it names are looked for beside it.
        self.assertIn(f'{self.work}/ca.pem', self.shell('CXLPOOL_CONFIG=$PWD/cli.toml cxlpool capacity', status=3))


class LibpoolPageTest(DocsPool):
    def test_its_programs(self):
        lines = [c for c, block in commands('docs/libpool.md') if block and c.startswith('pool-')]
        self.pool.allocate('ram', '512MiB', 'host-a')  # Without a NUMA node: the emulated host has none to give.
        statuses = {'pool-verify --region kv --expect-zero': 1, 'pool-verify --region ram --node': 3, 'pool-watch': 1}
        for line in lines:
            if line.startswith('pool-watch'):
                line = line.replace('60', '1')  # It ends with 1 where nothing was lost.
            self.shell(line, status=statuses.get(line.split(' --for')[0], 0), host='host-a')


class OperationsPageTest(DocsPool):
    def test_its_commands(self):
        self.pool.allocate('kv', '512MiB', 'host-a')
        for line, block in commands('docs/operations.md'):
            if block and line.startswith('cxlpool ') and not is_synopsis(line):
                self.shell(line)
        self.shell('cxlpool fsck pool-2026-11-21.db')
        self.shell('cxlpool fsck pool-2026-11-21.db --repair')


class TasksPageTest(DocsPool):
    def test_its_commands(self):
        """Those with a word in capitals in them are of a pool that is not here, and certificates are of a machine that is not:
        ParseTest sees that they are read."""
        lines = [line for line, block in commands('docs/tasks.md') if block and line.startswith('cxlpool ')
                 and not line.startswith('cxlpool pki ') and not PLACEHOLDERS.keys() & set(line.split())]
        self.assertGreater(len(lines), 10)
        for line in lines:
            self.shell(line)


class ManPageTest(DocsPool):
    def test_its_examples(self):
        examples = plain(read('packaging/man/cxlpool.1.in')).split('.SH EXAMPLES')[1]
        for line in re.search(r'\.nf\n(.*?)\.fi', examples, flags=re.S)[1].splitlines():
            if 'backup' in line:
                line = line.replace('/var/backups/', '')
            self.shell(line)


class FirstSessionTest(unittest.TestCase):
    """docs/cli.md, "A first session", from an empty directory."""

    def test_it_runs_as_printed(self):
        session = next(b for b in blocks('docs/cli.md') if 'pki init --dir pki' in b and 'cat >' in b)
        with tempfile.TemporaryDirectory(prefix='cxlpool-session-') as directory:
            script = session.replace('127.0.0.1:7600', f'127.0.0.1:{free_port()}')
            done = subprocess.run(['bash', '-e', '-c', script + 'wait\n'], cwd=directory, capture_output=True, text=True,
                                  timeout=120, env={'PATH': f'{BIN}:/usr/bin:/bin', 'HOME': directory})
            logs = ''.join(p.read_text() for p in Path(directory).glob('*.log'))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr + logs)
            self.assertRegex(done.stdout, r'kv is gone: 512 MiB')
        DocsPool.ran += [c for c in session.splitlines() if re.match(OURS + r'\s', c)]


class ParseTest(unittest.TestCase):
    """Every printed command is read by the real command line: its words exist, its options are complete. Nothing is done: the
    manager's address leads nowhere, and what needs no manager is given a name that is not there."""

    def parse(self, words, where):
        program = words[0]
        if program != 'cxlpool':
            # These have no dry run: that their options exist is seen from their help.
            out = subprocess.run([BIN / program, *[w for w in words[1:] if w in ('check', 'init')], '--help'], capture_output=True,
                                 text=True, timeout=30).stdout
            for word in words[1:]:
                if word.startswith('-'):
                    self.assertIn(word.split('=')[0], out, where)
            return
        if words[1:2] and words[1] in ('pki', 'fsck', 'backup', 'run', 'slurm'):
            words = words[:3 if words[1] in ('pki', 'slurm') else 2] + ['--help']
        done = subprocess.run([BIN / program, *words[1:], '--manager', 'unix:/nonexistent/fm.sock', '--fail-fast'],
                              capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL,
                              env={'PATH': '/usr/bin:/bin', 'HOME': '/nonexistent'})
        # Read, and then: nobody to ask, no such file, no such context, no manager.
        allowed = re.search('CONFIRM_REQUIRED|NO_FILE|UNKNOWN_CONTEXT', done.stderr) or done.returncode in (0, 6)
        self.assertTrue(allowed, f'{where}: {shlex.join(words)}\n{done.stderr}')

    def test_every_command_is_read(self):
        for name in [*TEXTS, *PAGES]:
            for line, block in commands(name):
                if line.startswith('cxlpool: ') or '$(' in line or '>' in line:
                    continue
                if is_synopsis(line):
                    DocsPool.synopses.append(line)
                    continue
                if line in DocsPool.ran:
                    continue
                with self.subTest(name=name, command=line):
                    if name == 'CHANGELOG.md' or (not block and incomplete(line)):
                        self.known_words(line, name)
                    else:
                        self.parse(words_of(re.sub(r'^CXLPOOL_\w+=\S+ (build/dev/bin/)?', '', line)), f'{name}: {line}')
                    DocsPool.parsed.append(line)

    def known_words(self, line, where):
        """A command that prose only names (`cxlpool host enrol`): it exists, and so do the options that are named with it."""
        words = shlex.split(line)
        program = words[0]
        path = list(itertools.takewhile(lambda w: re.fullmatch(r'[a-z]+', w), words[1:]))[:2]
        if program != 'cxlpool':
            return self.parse(words, f'{where}: {line}')
        out = ''
        while path and not out:
            done = subprocess.run([BIN / program, *path, '--help'], capture_output=True, text=True, timeout=30)
            out = done.stdout if done.returncode == 0 else ''
            if not out:
                self.assertGreater(len(path), 1, f'{where}: {line}: there is no such command\n{done.stderr}')
                path = path[:-1]
        top = subprocess.run([BIN / program, '--help'], capture_output=True, text=True, timeout=30).stdout
        for word in words[1:]:
            if word.startswith('-'):
                self.assertIn(word.split('=')[0], out + top, f'{where}: {line}')

    def help_of(self, *path):
        done = subprocess.run([BIN / 'cxlpool', *path, '--help'], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def section(self, path, title):
        """What is named in that section of a command's help: subcommands without their aliases, or options."""
        lines = re.search(rf'^{title}:\n(.*?)(?:\n\n|\Z)', self.help_of(*path), flags=re.M | re.S)
        return re.findall(r'^  (?:-\w,)?([a-z-]+)', lines[1], flags=re.M) if lines else []

    def all_commands(self, path=()):
        """Each command that has no subcommand."""
        below = self.section(path, 'Subcommands')
        return [leaf for name in below for leaf in self.all_commands((*path, name))] if below else [path]

    @staticmethod
    def synopses():
        """Command -> what docs/cli.md says that it takes. The man page's are made of the command line itself."""
        synopsis = next(b for b in blocks('docs/cli.md') if '[GLOBAL] region allocate [NAME]' in b)
        found = {}
        for line in re.sub(r'\n\s+', ' ', synopsis).splitlines():
            for part in re.split(r' \| (?=[a-z])', re.sub(r'^cxlpool( \[GLOBAL\])? ', '', line)):
                part = re.sub(r'^(\w+) \[(\w+)\]$', r'\1 \2', part)  # `topology [show]`
                path = tuple(itertools.takewhile(lambda word: re.fullmatch(r'[a-z]+', word), part.split()))
                found[path] = f'{found.get(path, "")} {part}'.replace('--wait ...', '--wait --wait-timeout')
        return found

    def test_every_option_of_the_synopses_exists(self):
        for path, synopsis in self.synopses().items():
            with self.subTest(command=path):
                out = self.help_of(*path)
                for option in re.findall(r'--[a-z][a-z-]*', synopsis):
                    self.assertIn(option, out)

    def test_every_command_and_option_is_in_the_synopses(self):
        synopses = self.synopses()
        every = self.all_commands()
        self.assertGreater(len(every), 60)
        self.assertLessEqual(BY_SLURM, set(every))
        for path in every:
            if path in BY_SLURM:
                continue
            with self.subTest(command=path):
                self.assertIn(path, synopses)
                has = set(re.findall(r'--[a-z][a-z-]*', synopses[path]))
                self.assertEqual(set(self.section(path, 'Options')) - {'--help'} - has, set())


def incomplete(line):
    """Prose that names a command and not all that it takes: `cxlpool tenant set`."""
    return not any(word in PLACEHOLDERS or '=' in word or word.startswith('-') for word in line.split()[2:]) and \
        len(line.split()) <= 3


class Counts(unittest.TestCase):
    @classmethod
    def tearDownClass(cls):
        print(f'docs-commands: {len(set(DocsPool.ran))} run, {len(set(DocsPool.parsed))} parsed, '
              f'{len(set(DocsPool.synopses))} synopses', flush=True)

    def test_that_there_are_many(self):
        self.assertGreater(len(set(DocsPool.ran)), 40)
        self.assertGreater(len(set(DocsPool.parsed)), 30)


def load_tests(loader, _tests, _pattern):
    """The counts come last."""
    order = (ReadmeTest, FirstPagesTest, CliPageTest, LibpoolPageTest, OperationsPageTest, TasksPageTest, ManPageTest, FirstSessionTest, ParseTest, Counts)
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in order)


if __name__ == '__main__':
    main()
