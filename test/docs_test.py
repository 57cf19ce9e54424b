"""The texts are true: what they name exists, what exists is named, and every part of the API is described."""

import re
import subprocess
import tomllib
import unittest

from testbed.testing import BUILD, REPOSITORY, main

TEXTS = ('README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'docs/*.md', 'docs/adr/*.md')
READS = re.compile(r'(?:(?:\.|->)(?:Strings|String|Bool|Number|Numbers|Size|Duration|DurationIn|Level|AbsolutePath|AddressText|AddressList|Has|Table|Tables)\(|\b(?:NumberIn|ReadReach)\(\w+, )\s*"(\w+)"')


def read(name):
    return (REPOSITORY / name).read_text()


def texts():
    for pattern in TEXTS:
        yield from sorted(REPOSITORY.glob(pattern))


def tracked_folders():
    """Folders that hold files of the project, as git has them; where there is no git, as they are."""
    done = subprocess.run(['git', 'ls-files'], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode == 0:
        names = [line for line in done.stdout.splitlines() if '/' in line]
    else:
        names = [str(p.relative_to(REPOSITORY)) for p in REPOSITORY.rglob('*.*')
                 if p.is_file() and not re.match(r'build/|\.git/', str(p.relative_to(REPOSITORY)))]
    return {name.rsplit('/', 1)[0] for name in names if '/' in name}


def without_fences(text):
    return re.sub(r'^```.*?^```$', '', text, flags=re.M | re.S)


def code_words(text):
    """What stands in `backticks` outside of blocks."""
    return re.findall(r'`([^`\n]+)`', without_fences(text))


def blocks(text):
    return re.findall(r'^```\w*\n(.*?)^```$', text, flags=re.M | re.S)


class PathsTest(unittest.TestCase):
    def test_paths_that_texts_name_exist(self):
        tops = {p.name for p in REPOSITORY.iterdir() if p.is_dir()} - {'build'}
        missing = []
        for text in texts():
            for word in code_words(text.read_text()):
                if not re.fullmatch(r'[\w.@-]+(/[\w.-]+)+/?', word) or word.split('/')[0] not in tops:
                    continue
                if not (REPOSITORY / word).exists():
                    missing.append((text.name, word))
        self.assertEqual([], missing)

    def test_links_lead_somewhere(self):
        missing = []
        for text in texts():
            prose = re.sub(r'`[^`\n]+`', '', without_fences(text.read_text()))
            for target in re.findall(r'\]\(([^)\s]+)\)', prose):
                path = target.split('#')[0]
                if path and '://' not in path and not (text.parent / path).exists():
                    missing.append((text.name, target))
        self.assertEqual([], missing)

    def test_the_table_of_folders_names_every_folder(self):
        named = set(code_words(read('docs/folders.md')))
        # Those within a named folder that is of one subject need no line of their own.
        within = ('libpool/include/', 'tools/cli/testdata', 'test/fuzz/testdata/')
        missing = [f for f in sorted(tracked_folders()) if f not in named and not f.startswith(within)]
        self.assertEqual([], [f for f in missing if not any(n.startswith(f + '/') for n in named)])

    def test_files_that_architecture_names_by_name_alone_exist(self):
        known = {p.name for top in ('proto', 'fabric-manager', 'host-agent', 'libpool', 'tools', 'test', 'qemu-cxl')
                 for p in (REPOSITORY / top).rglob('*.*')}
        gone = [word for word in code_words(read('ARCHITECTURE.md') + read('docs/folders.md'))
                if re.fullmatch(r'\w+\.(h|cc|proto|py)', word) and word not in known and word != 'x_test.cc']
        self.assertEqual([], gone)


class CommandsTest(unittest.TestCase):
    def test_scripts_and_their_options_exist(self):
        wrong = []
        for name in ('README.md', 'CONTRIBUTING.md'):
            text = read(name)
            lines = [line.split('#')[0] for block in blocks(text) for line in block.splitlines()]
            for line in lines + code_words(text):
                match = re.match(r'\s*((?:tools|\.ci|qemu-cxl)/[\w-]+)(?=\s|$)(.*)', line)
                if not match:
                    continue
                script = REPOSITORY / match.group(1)
                if script.is_dir():
                    continue
                if not script.is_file() or not script.stat().st_mode & 0o100:
                    wrong.append((name, match.group(1)))
                    continue
                body = script.read_text()
                wrong += [(name, line.strip()) for option in re.findall(r'(--[\w-]+)', match.group(2)) if option not in body]
        self.assertEqual([], wrong)


class ApiTest(unittest.TestCase):
    def test_everything_in_the_protos_is_described(self):
        missing = []
        for path in sorted((REPOSITORY / 'proto').rglob('*.proto')):
            lines = path.read_text().splitlines()
            for number, line in enumerate(lines):
                declared = re.match(r'\s*(message|enum|service|rpc)\s+(\w+)', line)
                if not declared:
                    continue
                if '//' not in line and not (number and lines[number - 1].strip().startswith('//')):
                    missing.append(f'{path.name}:{number + 1}: {declared.group(0).strip()}')
        self.assertEqual([], missing)

    def test_headers_and_protos_begin_by_saying_what_they_are(self):
        paths = [*(REPOSITORY / 'libpool/include').rglob('*.h'), *(REPOSITORY / 'proto').rglob('*.proto'),
                 *(REPOSITORY / 'fabric-manager/ports').glob('*.h'), *(REPOSITORY / 'host-agent/ports').glob('*.h')]
        self.assertGreater(len(paths), 10)
        self.assertEqual([], [str(p) for p in paths if not p.read_text().startswith(('// ', '/* '))])

    def test_public_headers_are_listed(self):
        guide = read('docs/libpool.md')
        headers = sorted(p.name for p in (REPOSITORY / 'libpool/include/cxlpool').glob('*.h'))
        self.assertEqual([], [h for h in headers if f'`{h}`' not in guide])


class RightsTest(unittest.TestCase):
    def test_who_may_call_what_is_as_the_protos_say(self):
        """The table is what proto/rules.cc prints in each build: copy it from there."""
        rules = BUILD / 'gen/rules.md'
        if not rules.exists():
            self.skipTest(f'{rules} is not built')
        self.assertIn(rules.read_text(), read('docs/access.md'))


class ConfigurationTest(unittest.TestCase):
    FILES = (('cxlpool-fm', 'fabric-manager/config.cc proto/metrics/metrics_settings.cc fabric-manager/topology_file.cc fabric-manager/adapters/fabric_*/*_settings.cc', 'packaging/fm.toml'),
             ('cxlpool-agent', 'host-agent/config.cc proto/metrics/metrics_settings.cc', 'packaging/agent.toml'))

    @staticmethod
    def keys(source):
        """Every key that the code reads, tables too."""
        return {key for pattern in source.split() for file in REPOSITORY.glob(pattern) for key in READS.findall(file.read_text())}

    @staticmethod
    def section(daemon):
        match = re.search(rf'^## {daemon}$(.*?)^## ', read('docs/configuration.md'), re.M | re.S)
        return match.group(1)

    @staticmethod
    def example_words(example):
        """Keys and tables of a file, those in settings that are not in use too."""
        words = set()
        for line in read(example).splitlines():
            if match := re.match(r'#?(?:\[+([\w.]+)\]+|(\w+) = )', line):
                words |= set((match.group(1) or match.group(2)).split('.'))
        return words

    def test_every_key_is_in_the_guide_and_in_the_example(self):
        for daemon, source, example in self.FILES:
            with self.subTest(daemon):
                keys = self.keys(source)
                self.assertGreater(len(keys), 15)
                guide = {part for word in code_words(self.section(daemon)) for part in re.findall(r'\w+', word)}
                self.assertEqual(set(), keys - guide, 'not in docs/configuration.md')
                self.assertEqual(set(), keys - self.example_words(example), f'not in {example}')
                self.assertEqual(set(), self.example_words(example) - keys, f'in {example}, and nothing reads it')

    def test_the_example_for_etcd_is_that_of_its_guide(self):
        """What is to be uncommented names the files that the guide has made."""
        [store] = re.findall(r'^\[store\]\nkind = "etcd"\n(.*?)^```$', read('docs/replicated.md'), re.M | re.S)
        settings = store.splitlines()
        self.assertGreater(len(settings), 3)
        example = [re.sub(r'\s+#.*', '', line) for line in read('packaging/fm.toml').splitlines()]
        self.assertEqual([], [line for line in settings if '#' + line not in example])

    def test_the_operators_command_has_its_keys_there_too(self):
        keys = set(re.findall(r'(?:\b(?:string|file)|->(?:String|Table))\("(\w+)"', read('tools/cli/settings_file.cc')))
        self.assertLessEqual({'manager', 'ca', 'contexts'}, keys)
        guide = {part for word in code_words(self.section('cxlpool')) for part in re.findall(r'\w+', word)}
        self.assertEqual(set(), keys - guide, 'not in docs/configuration.md')
        self.assertEqual(set(), keys - self.example_words('packaging/cli.toml'), 'not in packaging/cli.toml')

    def test_what_a_reload_takes_over_is_marked_in_the_guide(self):
        """As each daemon says in its log when it has read its configuration again."""
        for daemon, source in (('cxlpool-fm', 'fabric-manager/main.cc'), ('cxlpool-agent', 'host-agent/main.cc')):
            with self.subTest(daemon):
                said = re.search(r'" was read again: (.*?) count from now on', read(source), re.S).group(1)
                keys = set(re.findall(r'[a-z_.]+', said)) - {'and'}
                self.assertIn('log_level', keys)
                self.assertEqual(keys, set(re.findall(r'^\| `([\w.]+)` \|.*\*\*Reload\*\* \|$', self.section(daemon), re.M)))

    def test_a_configuration_of_the_manager_is_a_topology_file(self):
        """`cxlpool topology apply /etc/cxlpool/fm.toml`: whatever else the manager reads there is left alone."""
        source = read('fabric-manager/topology_file.cc')
        left_alone = re.search(r'const char\* others : \{(.*?)\}', source, re.S).group(1)
        example = '\n'.join(line[1:] if re.match(r'#\S', line) else line for line in read('packaging/fm.toml').splitlines())
        before_tables = example.split('\n[', 1)[0]
        tops = set(re.findall(r'^(\w+) = ', before_tables, re.M)) | set(re.findall(r'^\[+(\w+)', example, re.M))
        self.assertIn('audit', tops)
        self.assertEqual(tops, set(re.findall(r'"(\w+)"', left_alone)) | set(re.findall(r'toml\.Tables\("(\w+)"\)', source)))

    def test_examples_are_toml(self):
        for example in (*(example for _, _, example in self.FILES), 'packaging/cli.toml'):
            tomllib.loads(read(example))
            for line in read(example).splitlines():
                if re.match(r'#\S', line):
                    tomllib.loads(line[1:])

    def test_daemons_take_their_examples(self):
        for daemon, _, example in self.FILES:
            program = BUILD / 'bin' / daemon
            if not program.exists():
                self.skipTest(f'{program} is not built')
            done = subprocess.run([program, '--config', REPOSITORY / example, '--check-config'], capture_output=True,
                                  text=True, timeout=30)
            # What it names need not be here, certificates and directories; a wrong key would be named with its line.
            self.assertNotRegex(done.stderr, r'\.toml:\d+: (?!(tls\.\w+|store\.path|fabric\.root): )')


class CheckTest(unittest.TestCase):
    def test_the_guide_lists_what_the_check_of_a_host_can_find(self):
        """Programs go by these ids: each that the sources give is in the table, and no other."""
        machine = [p for p in (REPOSITORY / 'host-agent/adapters/linux/machine').glob('*.cc') if not p.name.endswith('_test.cc')]
        text = '\n'.join(p.read_text() for p in machine) + read('host-agent/check.cc') + read('host-agent/adapters/linux/linux_space.cc')
        given = set(re.findall(r'\b(?:Ok|Missing|Warning|FindingOf)\(\s*"([a-z][a-z_-]*)"', text))
        given |= set(re.findall(r'\{"([a-z][a-z_-]*)", (?:Verdict::|"sys/)', text))
        given |= set(re.findall(r'\bkId\[\] = "(\w+)"', text))
        self.assertGreater(len(given), 30)
        table = read('docs/operations.md').split('| id | missing or warned of |\n', 1)[1].split('\n\n', 1)[0]
        listed = {word for row in table.splitlines() for word in re.findall(r'`([a-z_-]+)`', row.split('|')[1])}
        self.assertEqual(given, listed)


if __name__ == '__main__':
    main()
