"""Adds up what the tests left in a directory: GoogleTest's XML and testing.main's JSON.

python3 -m testbed.counts DIRECTORY EXTRA_FAILURES: prints "N passed, N failed, N skipped".
"""

import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def count(directory):
    passed = failed = skipped = 0
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
                skipped += 1
            else:
                passed += 1
    for file in Path(directory).glob('*.json'):
        counts = json.loads(file.read_text())
        passed, failed, skipped = passed + counts['passed'], failed + counts['failed'], skipped + counts['skipped']
    return passed, failed, skipped


if __name__ == '__main__':
    good, bad, left = count(sys.argv[1])
    bad = max(bad, int(sys.argv[2]))
    print(f'{good} passed, {bad} failed, {left} skipped')
