"""Adds up what the tests left in a directory: GoogleTest's XML and testing.main's JSON.

python3 -m testbed.counts DIRECTORY EXTRA_FAILURES: prints what was skipped and why, then "N passed, N failed, N skipped".
"""

import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def count(directory):
    """How many passed and failed, and the skipped ones, each as its name and the reason."""
    passed = failed = 0
    skipped = []
    for file in Path(directory).glob('*.xml'):
        try:
            cases = list(xml.parse(file).getroot().iter('testcase'))
        except xml.ParseError:
            failed += 1
            continue
        for case in cases:
            if case.get('status') == 'notrun':
                continue
            if case.find('failure') is not None:
                failed += 1
            elif case.get('result') == 'skipped' or case.find('skipped') is not None:
                skipped.append((f'{case.get("classname")}.{case.get("name")}', why(case)))
            else:
                passed += 1
    for file in Path(directory).glob('*.json'):
        counts = json.loads(file.read_text())
        passed, failed = passed + counts['passed'], failed + counts['failed']
        skipped += [(name, reason) for name, reason in counts['skipped']]
    return passed, failed, sorted(skipped)


def why(case):
    """GoogleTest writes the file and the line before it."""
    skip = case.find('skipped')
    lines = (skip.get('message') or skip.text or '').strip().splitlines() if skip is not None else []
    return lines[-1] if lines else 'no reason given'


if __name__ == '__main__':
    good, bad, left = count(sys.argv[1])
    bad = max(bad, int(sys.argv[2]))
    for name, reason in left:
        print(f'skipped: {name}: {reason}')
    print(f'{good} passed, {bad} failed, {len(left)} skipped')
