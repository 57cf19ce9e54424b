#!/usr/bin/env python3
"""Makes a man page of a template: make_page.py TEMPLATE PROGRAMS

What users read in two places is written in one. In a template a line

  @COMMANDS@                        is what `cxlpool help --man` prints,
  @ABOUT PROGRAM@                   what --help of PROGRAM says before its options,
  @OPTIONS PROGRAM [WORD...]@       its options, and what stands behind them; with WORD those of a command of it,
  @GUIDE FILE [SECTION]@            what is below a `## SECTION` of a guide, or before the first one,
  @FILE FILE@                       the file as it is.

PROGRAMS is the directory where the programs are. Files are named from the top of the sources."""

import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
ESCAPES = {'\\': r'\e', '-': r'\-', '~': r'\(ti', '^': r'\(ha', '`': r'\(ga', "'": r'\(aq', '…': '...', '→': r'\(->'}


def roff(text):
    """Text as it is: ASCII where roff would print what typesetters write, and no line that begins a request."""
    text = ''.join(ESCAPES.get(c, c) for c in text)
    return r'\&' + text if text.startswith('.') else text


# --- Of --help, as CLI11 prints it.

def help_of(programs, words):
    done = subprocess.run([Path(programs) / words[0], *words[1:], '--help'], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def signature(text):
    """"TEXT:{table,json}=table Needs: --x" -> the value's word, and what is to be said of it behind the description."""
    limits = re.search(r' in \[(.+?) - (.+?)\]', text)
    text = re.sub(r' (in )?\[.*?\]', '', text)  # The limits, or the units of a size.
    notes = []
    for how, said in (('Excludes', 'Not with'), ('Needs', 'Needs')):
        if match := re.search(rf' {how}: (.*)$', text):
            notes.insert(0, f'{said} {", ".join(match.group(1).split())}.')
            text = text[:match.start()]
    default = re.search(r'=(\S+)', text)
    choices = re.search(r'{(.+?)}', text)
    word = re.match(r' ?([A-Z]*)', text).group(1)
    if choices:
        word = '|'.join(choice.split('->')[0] for choice in choices.group(1).split(','))
    elif limits:
        notes.insert(0, f'{limits.group(1)} to {float(limits.group(2)):.0f}.')
    if default and default.group(1) != '0':
        notes.append(f'Default {default.group(1)}.')
    if text.endswith('REQUIRED'):
        notes.append('Required.')
    if text.endswith('...'):
        notes.append('May be given again.')
    return word, ' '.join(notes)


def options(lines):
    out, behind = [], []
    lines = iter(lines)
    for line in lines:
        match = re.match(r' +(-\S+)(?: (?! )(.*?))?(?:  +(\S.*))?$', line)
        if match:
            names, value, about = match.groups()
            about = about or next(lines).strip()
            if '--help' in names:
                continue
            word, notes = signature(f' {value}' if value else '')
            names = ', '.join(rf'\fB{roff(name)}\fR' for name in names.split(','))
            about = about.rstrip('.') + '.' + (f' {notes}' if notes else '')
            out += ['.TP', names + (rf' \fI{roff(word)}\fR' if word else ''), roff(about)]
            behind = []
        elif re.match(r' *\[Exactly 1', line):
            out += ['.PP', 'One of these is required:']
        elif re.match(r'\S', line) and not re.match(r'(Usage:|Options:|Subcommands:|\[)', line):
            behind += ['.PP', roff(line)]
        elif line == 'Subcommands:':
            break
    return out + behind


def about(lines):
    """The sentence before the usage, without the program's name."""
    text = next(line for line in lines if line)
    text = text.split(': ', 1)[-1]
    return [roff(text[0].upper() + text[1:].rstrip('.') + '.')]


# --- Of guides, in Markdown.

INLINE = re.compile(r'`(?P<code>[^`]+)`|\*\*(?P<bold>.+?)\*\*|\*(?P<italic>[^*]+)\*|\[(?P<link>(?:[^\]`]|`[^`]*`)+)\]\((?P<to>[^)]+)\)')


def inline(text):
    out, at = [], 0
    for match in INLINE.finditer(text):
        out.append(roff(text[at:match.start()]))
        at = match.end()
        if match['code']:
            out.append(rf'\fB{roff(match["code"])}\fR')
        elif match['bold']:
            out.append(rf'\fB{roff(re.sub(r"[`*]", "", match["bold"]))}\fR')
        elif match['italic']:
            out.append(rf'\fI{roff(match["italic"])}\fR')
        else:
            out.append(inline(match['link']))
    text = ''.join([*out, roff(text[at:])])
    return r'\&' + text if text.startswith('.') else text


def row(line):
    """The cells of a table's line."""
    return [cell.strip().replace(r'\|', '|') for cell in re.split(r'(?<!\\)\|', line.strip().strip('|'))]


def key(cells):
    """A key with its default and its meaning."""
    name, default, meaning = cells
    if default and not default.startswith('required'):
        default = f'default: {default}'
    tag = inline(name) + (f' ({inline(default)})' if default else '')
    return ['.TP', tag, inline(meaning or r'A table')]


def guide(name, section):
    text = (TOP / name).read_text()
    if section:
        text = re.search(rf'^## {re.escape(section)}$(.*?)(?=^## |\Z)', text, re.M | re.S).group(1)
    else:
        text = re.match(r'# .*?$(.*?)(?=^## )', text, re.M | re.S).group(1)
    out = []
    for block in re.findall(r'```\w*\n.*?```|(?:(?!```)[^\n]+\n)+', text, re.S):
        lines = block.strip().splitlines()
        if lines[0].startswith('```'):
            out += ['.PP', '.in +4n', '.nf', *map(roff, lines[1:-1]), '.fi', '.in']
        elif lines[0].startswith('#'):
            out += [f'.SS {inline(lines[0].lstrip("# "))}']
        elif lines[0].startswith('|'):
            for line in lines[2:]:
                out += key(row(line))
        elif lines[0].startswith('- '):
            for item in re.split(r'\n(?=- )', block.strip()):
                out += [r'.IP \(bu 2', inline(' '.join(item[2:].split()))]
        else:
            out += ['.PP', inline(' '.join(block.split()))]
    return out


def page(template, programs):
    for line in Path(template).read_text().splitlines():
        match = re.fullmatch(r'@(\w+) ?(.*)@', line)
        if not match:
            yield line
            continue
        words = match.group(2).split()
        if match.group(1) == 'COMMANDS':
            yield from subprocess.run([Path(programs) / 'cxlpool', 'help', '--man'], capture_output=True, text=True, check=True,
                                      timeout=60).stdout.splitlines()
        elif match.group(1) == 'ABOUT':
            yield from about(help_of(programs, words))
        elif match.group(1) == 'OPTIONS':
            yield from options(help_of(programs, words))
        elif match.group(1) == 'GUIDE':
            yield from guide(words[0], ' '.join(words[1:]))
        elif match.group(1) == 'FILE':
            yield from ['.nf', *map(roff, (TOP / words[0]).read_text().splitlines()), '.fi']
        else:
            raise SystemExit(f'{template}: {line} means nothing')


if __name__ == '__main__':
    print('\n'.join(page(*sys.argv[1:3])))
