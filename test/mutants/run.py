#!/usr/bin/env python3
"""Can the tests fail? Switches on one seeded defect after the other, and sees that some test does.

    test/mutants/run.py [NAME...]     all of mutants.toml and the lists beside it, or those named (tools/test --mutants)

    --with TEST   tries each with this command line alone, say 'cxlpool-sim --seeds 300'
    --build DIR   where the build with the defects is, and is brought up to date: build/mutants
    --no-build    takes it as it is
    --sample N    at most N that one of its programs catches: another program each day
    --jobs N      so many tests at a time (2)

First every test runs without a defect, and must pass. One that this machine lacks something for, a QEMU, is said and left
out; where that leaves nothing of a sample, it is the next program's turn. Exits 0 if each defect was caught, at least one
was tried and the switches in the code are those of the list; 1 otherwise.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True

import seeded  # noqa: E402

sys.path.insert(0, str(seeded.REPOSITORY / 'qemu-cxl'))

from cxlrack.rack import cache_directory  # noqa: E402

# A defect may make a test slow; one that is stuck is distinguished by far.
LEAST_LIMIT_S = 60
LIMIT_FACTOR = 10

# What ThreadSanitizer ends a process with that it has something to say of, be it a crash that it caught.
TSAN_STATUS = 66

# What a program ends with that lacks something here, as ctest takes it.
ABSENT_STATUS = 77


@dataclasses.dataclass(frozen=True)
class Outcome:
    kind: str  # 'passed', 'skipped', 'absent', 'failed', 'hung', 'void'
    what: str  # The test that failed, as it calls itself.
    seconds: float
    output: str = ''


def find_binaries(build, names):
    """Where the build has each of the targets."""
    found = {}
    for directory, folders, files in os.walk(build):
        folders[:] = [f for f in folders if f not in ('CMakeFiles', '_deps')]
        for name in names.intersection(files):
            path = Path(directory, name)
            if os.access(path, os.X_OK):
                found[name] = path
    return found


def what_failed(output):
    """The first test that an output complains of."""
    failed = re.search(r'^\[  FAILED  \] ([\w/.]+)', output, re.M)
    if failed:
        return failed.group(1)
    begun = re.findall(r'^\[ RUN      \] ([\w/.]+)', output, re.M)
    if begun:
        return begun[-1]
    seed = re.search(r'^.*\bseed \d+.*$', output, re.M)
    return seed.group(0).strip()[:60] if seed else ''


def run_test(binaries, command, mutant, limit_s):
    """Runs one command line of the list, with the defect `mutant` switched on, if any."""
    words = shlex.split(command)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix='cxlpool-mutant-') as scratch:
        environment = {**os.environ, 'TMPDIR': scratch, 'TEST_TMPDIR': scratch}
        environment.setdefault('CXLPOOL_RACK_QEMU', str(cache_directory() / 'qemu-system-x86_64'))
        environment.pop('CXLPOOL_MUTANT', None)
        if mutant:
            environment['CXLPOOL_MUTANT'] = mutant
        child = subprocess.Popen(['prlimit', '--core=0', binaries[words[0]], *words[1:]], cwd=scratch, env=environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output = child.communicate(timeout=limit_s)[0].decode(errors='replace')
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output = child.communicate()[0].decode(errors='replace')
            return Outcome('hung', what_failed(output), time.monotonic() - began, output)
    seconds = time.monotonic() - began
    none_ran = re.search(r'^\[==========\] Running 0 tests', output, re.M)
    # 3: nothing failed, though too little was tried to say that all is well (test/trials/trial.h).
    if child.returncode in (0, 3) and not none_ran:
        all_skipped = re.search(r'^\[  PASSED  \] 0 tests', output, re.M)
        return Outcome('skipped' if all_skipped else 'passed', '', seconds, output)
    if child.returncode == ABSENT_STATUS:
        return Outcome('absent', '', seconds, output)
    # 1: a test or a seed failed. Below 0: it crashed. Others: it could not try.
    kind = 'failed' if child.returncode in (1, TSAN_STATUS) or child.returncode < 0 else 'void'
    return Outcome(kind, what_failed(output), seconds, output)


def check_without(binaries, commands, jobs, may_skip):
    """Every test without a defect. Command -> seconds, without those that lack something here or skip where they may; None
    if one does not pass."""
    took = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        outcomes = pool.map(lambda command: run_test(binaries, command, None, 600), commands)
        for command, outcome in zip(commands, outcomes):
            if outcome.kind == 'absent':
                print(f'{command}: cannot be tried here: {outcome.output.strip()[-200:]}')
                continue
            if outcome.kind == 'skipped' and may_skip:
                print(f'{command}: is skipped in this build')
                continue
            if outcome.kind != 'passed':
                print(outcome.output[-4000:])
                print(f'{command}: {outcome.kind} without any defect')
                return None
            took[command] = outcome.seconds
    return took


def hunt(binaries, mutant, took):
    """What caught the mutant: the first of its tests that fails as it should, and all of `also`; or what did not. The whole time.
    Whether it was caught."""
    seconds, caught_by, otherwise = 0.0, [], []
    for command in mutant.commands:
        if caught_by and command not in mutant.also:
            continue
        if not caught_by and command not in mutant.tests:
            break
        outcome = run_test(binaries, command, mutant.name, max(LEAST_LIMIT_S, LIMIT_FACTOR * took[command]))
        seconds += outcome.seconds
        if outcome.kind in ('skipped', 'absent', 'void'):
            return f'COULD NOT TRY {command}: {outcome.output[-200:].strip()}', seconds, False
        if outcome.kind != 'passed':
            how = ' (hung)' if outcome.kind == 'hung' else ''
            by = f'{shlex.split(command)[0]} {outcome.what}{how}'
            (caught_by if mutant.output in outcome.output or command in mutant.also else otherwise).append(by)
        elif command in mutant.also:
            return f'NOT CAUGHT BY {command}', seconds, False
    if caught_by:
        return ', '.join(caught_by), seconds, True
    if otherwise:
        return f'NOT CAUGHT by what should; failed without {mutant.output!r}: {", ".join(otherwise)}', seconds, False
    return 'NOT CAUGHT', seconds, False


def sample(mutants, most, day, built=None):
    """At most so many that one program catches, by its quickest test alone; each day another program, and in time all of
    its defects. `built`: the programs that there are."""
    by_program = {}
    for mutant in mutants:
        program = shlex.split(mutant.tests[0])[0]
        if built is None or program in built:
            by_program.setdefault(program, []).append(dataclasses.replace(mutant, tests=mutant.tests[:1], also=()))
    if not by_program:
        return []
    programs = sorted(by_program)
    found = by_program[programs[day % len(programs)]]
    first = day // len(programs) * most % len(found)
    return (found[first:] + found[:first])[:most]


def choices(arguments, mutants):
    """What may be tried, the first of it that can be: all of `mutants`, or samples of one program after the other."""
    if not arguments.sample:
        return [mutants]
    programs = {shlex.split(mutant.tests[0])[0] for mutant in mutants}
    built = find_binaries(arguments.build, programs) if arguments.no_build else None
    # The two sanitizers take turns, and each is to come to all programs.
    day = int(time.time()) // 86400 // 2
    return [sample(mutants, arguments.sample, day + later, built) for later in range(len(programs))]


def prepare(arguments, mutants):
    """Builds what the mutants' tests are, and runs them without a defect. The binaries, how long each command line took, and
    the mutants with those of their tests that can be run here, without those that have none; None if something is wrong."""
    commands = sorted({command for mutant in mutants for command in mutant.commands})
    targets = {shlex.split(command)[0] for command in commands}
    if not arguments.no_build:
        subprocess.run([seeded.REPOSITORY / 'tools/build', 'mutants', *sorted(targets)], check=True,
                       stdout=subprocess.DEVNULL)
    binaries = find_binaries(arguments.build, targets)
    if missing := targets - set(binaries):
        print(f'{arguments.build} lacks {", ".join(sorted(missing))}')
        return None
    # A sanitizer's build lacks some of what is tested: code that it does not know the faults of.
    took = check_without(binaries, commands, arguments.jobs, may_skip=bool(arguments.sample))
    if took is None:
        return None
    mutants = [dataclasses.replace(m, tests=tuple(t for t in m.tests if t in took), also=tuple(t for t in m.also if t in took))
               for m in mutants]
    return binaries, took, [m for m in mutants if m.tests]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', metavar='NAME')
    parser.add_argument('--with', dest='test', metavar='TEST')
    parser.add_argument('--build', type=Path, default=seeded.REPOSITORY / 'build/mutants')
    parser.add_argument('--no-build', action='store_true')
    parser.add_argument('--sample', type=int, metavar='N')
    parser.add_argument('--jobs', type=int, default=2)
    arguments = parser.parse_args()

    wrong = seeded.differences()
    mutants = [m for m in seeded.listed() if not arguments.names or m.name in arguments.names]
    wrong += [f'{name}: is not in test/mutants' for name in arguments.names if name not in {m.name for m in mutants}]
    if wrong:
        print('\n'.join(wrong))
        return 1

    for chosen in choices(arguments, mutants):
        if arguments.test:
            chosen = [dataclasses.replace(mutant, tests=(arguments.test,), also=(), output='') for mutant in chosen]
        ready = prepare(arguments, chosen)
        if ready is None:
            return 1
        binaries, took, mutants = ready
        if mutants:
            break
    else:
        print('no test that catches a defect can be run here: none was tried')
        return 1
    print(f'{len(took)} tests pass without a defect\n')

    width = max(len(mutant.name) for mutant in mutants)
    print(f'{"mutant":{width}}  {"seconds":>7}  caught by', flush=True)
    survivors = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for mutant, (by, seconds, caught) in zip(mutants, pool.map(lambda m: hunt(binaries, m, took), mutants)):
            print(f'{mutant.name:{width}}  {seconds:7.1f}  {by}', flush=True)
            if not caught:
                survivors.append(mutant)
    print(f'\n{len(mutants) - len(survivors)} of {len(mutants)} defects were caught')
    for mutant in survivors:
        print(f'not caught: {mutant.name}: {mutant.wrong}')
    return 1 if survivors else 0


if __name__ == '__main__':
    sys.exit(main())
