"""The list of seeded defects (mutants.toml and what lies beside it), and the switches in the code that it must match."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LISTS = sorted(Path(__file__).parent.glob('*.toml'), key=lambda path: (path.name != 'mutants.toml', path.name))
CODE = ('proto', 'fabric-manager', 'host-agent', 'libpool', 'tools/cli', 'tools/dra')
SWITCH = re.compile(r'CXLPOOL_MUTANT\("([^"]*)"\)')
NAME = re.compile(r'[a-z0-9]+(-[a-z0-9]+)*')
TEST = re.compile(r'^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)', re.M)
# A test that a command line names whole; a pattern that fits none is found when it is run.
NAMED = re.compile(r'(?:=|:)(\w+\.\w+)(?=$|:)')
KEYS = {'name', 'wrong', 'rows', 'tests'}
MAY_HAVE = {'also', 'output'}


@dataclass(frozen=True)
class Mutant:
    name: str  # As in CXLPOOL_MUTANT(name).
    wrong: str  # What goes wrong, in a sentence.
    rows: tuple  # Promises that it breaks.
    tests: tuple  # Command lines, the first word a target of the build; one of them must fail.
    also: tuple = ()  # More of them; each must fail.
    output: str = ''  # What the one of `tests` that fails has to say.

    @property
    def commands(self):
        return (*self.tests, *self.also)


def listed():
    """Every Mutant of the lists, in their order."""
    entries = [(path, entry) for path in LISTS for entry in tomllib.loads(path.read_text())['mutant']]
    for path, entry in entries:
        if set(entry) - MAY_HAVE != KEYS or not all(entry.values()) or not NAME.fullmatch(entry['name']):
            raise ValueError(f'{path.name}: {entry.get("name")}: wants {", ".join(sorted(KEYS))}, none of them empty')
    return [Mutant(e['name'], e['wrong'], tuple(e['rows']), tuple(e['tests']), tuple(e.get('also', ())), e.get('output', ''))
            for _, e in entries]


def switches():
    """Name of every switch in the code -> where it is."""
    found = {}
    for folder in CODE:
        for path in sorted((REPOSITORY / folder).rglob('*')):
            if path.suffix not in ('.h', '.cc') or path.name == 'mutant.h':
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for name in SWITCH.findall(line):
                    found.setdefault(name, []).append(f'{path.relative_to(REPOSITORY)}:{number}')
    return found


def programs():
    """The programs of the build, by the CMakeLists.txt of the folders."""
    found = set()
    for folder in (*CODE, 'test', 'tools'):
        for path in (REPOSITORY / folder).rglob('CMakeLists.txt'):
            found.update(re.findall(r'^\s*cxlpool_(?:test|binary|fast_binary)\(([\w-]+)', path.read_text(), re.M))
    return found


def tests():
    """The tests of GoogleTest, as Suite.Name."""
    found = set()
    for folder in (*CODE, 'test', 'tools'):
        for path in (REPOSITORY / folder).rglob('*.cc'):
            found.update(f'{suite}.{name}' for suite, name in TEST.findall(path.read_text()))
    return found


def differences():
    """What is wrong between list and code, a line each."""
    built = programs()
    unknown = {(mutant.name, test.split()[0]) for mutant in listed() for test in mutant.commands}
    names = [mutant.name for mutant in listed()]
    code = switches()
    wrong = [f'{name}: no CMakeLists.txt makes {test}' for name, test in sorted(unknown) if test not in built]
    there = tests()
    wrong += [f'{mutant.name}: {test} is no test any more' for mutant in listed() for command in mutant.commands
              for test in NAMED.findall(command) if test not in there]
    wrong += [f'{name}: is listed twice' for name in sorted(set(names)) if names.count(name) > 1]
    wrong += [f'{name}: is listed, and no code has it' for name in sorted(set(names) - set(code))]
    wrong += [f'{name}: {", ".join(places)} has it, and it is not listed'
              for name, places in sorted(code.items()) if name not in names]
    places = [place for all_places in code.values() for place in all_places]
    wrong += [f'{place}: two switches on one line' for place in sorted(set(places)) if places.count(place) > 1]
    return wrong
