"""Every remedy that is a command can be carried out: those in the code's messages and in docs/errors.md are read by the real
command line, with a value for each part that the code fills in. A command stands in `backticks`, whole."""

import re
import shlex
import subprocess
import unittest

from testbed.testing import BUILD, REPOSITORY, main

SOURCES = ('fabric-manager', 'host-agent', 'libpool/src', 'proto/support', 'tools/cli', 'tools/pki')
CLI = BUILD / 'bin/cxlpool'

# What stands for a value, in texts for people and where the code puts one in.
VALUES = {'HOST': 'host-a', 'NAME': 'kv', 'DEVICE': 'cmm-0', 'TENANT': 'ml', 'WHY': 'why', 'TEXT': 'why', 'SIZE': '1GiB',
          'ROLE': 'operator', 'FILE': 'some-file', 'DB': 'some-file', 'DIR': 'some-dir', 'REGION': 'kv', 'REASON': 'why',
          'CERTIFICATE': 'cxlpool://operator/kv', 'TERM': '1h'}
FILLED_IN = 'x'
# A finding has its commands in a field of their own, each whole. What is filled in may stand at the end.
WHOLE_COMMANDS = ('fabric-manager/service/explain.cc', 'fabric-manager/service/explain_region.cc', 'fabric-manager/service/explain_words.cc',
                  'fabric-manager/rpc/explain_rpc.cc', 'fabric-manager/rpc/server_health.cc')
# So has a fabric driver those that add a device (FabricCapabilities::add_device), and nothing else.
DRIVERS = tuple(f'fabric-manager/adapters/{file}.cc' for file in ('fabric_emulated/emulated_fabric', 'fabric_qemu/qemu_fabric',
                                                                'fabric_shared/shared_backend'))


def is_one_expression(text):
    """Whether no bracket is closed in it that was opened before: then another call begins there."""
    depth = 0
    for letter in text:
        depth += (letter == '(') - (letter == ')')
        if depth < 0:
            return False
    return depth == 0


def chains(source):
    """String literals that make one text: next to each other, or with one expression between commas."""
    tokens = list(re.finditer(r'"((?:\\.|[^"\\\n])*)"', source))
    text, chain = None, []
    for before, token in zip([None, *tokens], tokens):
        between = source[before.end():token.start()] if before else None
        if between is not None and not between.strip():
            text += token[1]
        elif between is not None and re.fullmatch(r'\s*,(?:[^;"{}]|\n)*,\s*', between) and len(between) < 200 \
                and is_one_expression(between):
            text += FILLED_IN + token[1]
        else:
            if text is not None:
                chain.append(text)
            text = token[1]
    return chain + ([text] if text is not None else [])


def code_texts():
    for top in SOURCES:
        for path in sorted((REPOSITORY / top).rglob('*.cc')):
            if re.search(r'_test\.cc|_commands?\.cc|_options\.cc|command_line\.cc', path.name):
                continue
            source = re.sub(r'^\s*//.*$', '', path.read_text(), flags=re.M)
            for text in chains(source):
                if re.search(r'\bcxlpool [a-z]', text):
                    yield str(path.relative_to(REPOSITORY)), text.replace('\\"', '"')


def page_texts():
    for line in (REPOSITORY / 'docs/errors.md').read_text().splitlines():
        if line.startswith('| ') and re.search(r'`cxlpool ', line):
            yield 'docs/errors.md', line


class RemedyTest(unittest.TestCase):
    seen = set()

    def carry_out(self, where, command):
        words = [VALUES.get(word, word) for word in shlex.split(command)]
        if words[1] == FILLED_IN:  # One of the lists.
            words[1] = 'host'
        self.assertNotIn('', words, where)
        if words[1] in ('pki', 'fsck') or words[1:3] == ['topology', 'apply']:  # They make files here, or want one.
            words.append('--help')
        if words[1:3] in (['pki', 'issue'], ['pki', 'renew']) and words[3] == FILLED_IN:
            words[3] = 'operator'
        if words[1] == 'host' and FILLED_IN in words:
            words = ['host-a' if word == FILLED_IN else word for word in words]
        done = subprocess.run([CLI, *words[1:], '--manager', 'unix:/nonexistent/fm.sock', '--fail-fast'], capture_output=True,
                              text=True, timeout=30, stdin=subprocess.DEVNULL, env={'PATH': '/usr/bin', 'HOME': '/nonexistent'})
        # 6: it was read, and there is no manager; CONFIRM_REQUIRED: it was read, and there is nobody to ask.
        self.assertTrue(done.returncode in (0, 6) or 'CONFIRM_REQUIRED' in done.stderr,
                        f'{where}: `{command}` cannot be carried out:\n{done.stderr}')
        self.seen.add(command)

    def test_each_command_is_read_by_the_command_line(self):
        for where, text in [*code_texts(), *page_texts()]:
            for command in re.findall(r'`(?:runuser -u \S+ -- )?(cxlpool [^`]+)`', text):
                if command in self.seen:
                    continue
                with self.subTest(where=where, command=command):
                    self.carry_out(where, command)
        self.assertGreater(len(self.seen), 25)

    def test_each_command_of_a_finding_is_read_by_the_command_line(self):
        whole = [(where, text + FILLED_IN * text.endswith((' ', '/'))) for where, text in code_texts()
                 if where in WHOLE_COMMANDS + DRIVERS and text.startswith('cxlpool ')]
        self.assertGreater(len(whole), 15)
        self.assertEqual(set(DRIVERS), {where for where, _ in whole if where in DRIVERS})
        for where, command in whole:
            with self.subTest(where=where, command=command):
                self.carry_out(where, command)

    def test_a_command_stands_in_backticks(self):
        for where, text in code_texts():
            if where in WHOLE_COMMANDS or (where in DRIVERS and text.startswith('cxlpool ')):
                continue
            bare = re.sub(r'`[^`]*`', '', text)
            with self.subTest(where=where, text=text):
                self.assertNotRegex(bare, r'\bcxlpool (?:region|host|device|tenant|pki|certificate|access|token|capacity|topology|backup|fsck)\b')


if __name__ == '__main__':
    main()
