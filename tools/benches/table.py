"""Puts the figures of several benches together.

python3 tools/benches/table.py OUT FILE...: prints a table of all rows; writes them to OUT unless that is "".
"""

import json
import sys
from pathlib import Path

HEAD = ('row', 'figure', 'unit', 'ours', 'peer', 'ratio', '95 %', 'control', 'target', 'verdict')


def interval(pair):
    return f'{pair[0]:.3f}-{pair[1]:.3f}'


def figure(value):
    return f'{value:.0f}' if value >= 1000 else f'{value:.3g}'


def cells(row):
    sign = '<=' if row.get('aim') == 'at most' else '>='
    return (str(row['row']), row['name'], row['unit'], figure(row['ours']), figure(row['peer']),
            f'{row["ratio"]:.3f}', interval(row['ci']), interval(row['aa']), f'{sign} {row["target"]:g}',
            row['verdict'])


def main():
    rows = [row for file in sys.argv[2:] for row in json.loads(Path(file).read_text())['rows']]
    table = [HEAD, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for line in table:
        print('  '.join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    if sys.argv[1]:
        Path(sys.argv[1]).write_text(json.dumps({'rows': rows}) + '\n')


if __name__ == '__main__':
    main()
