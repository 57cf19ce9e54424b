"""Reads the metrics of a pool's daemons, and has promtool judge them: the text itself, and which alerts they set off."""

import functools
import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from .emulated import EmulatedPool
from .pool import free_port
from .testing import REPOSITORY, skip_program

RULES = REPOSITORY / 'packaging/prometheus/cxlpool.rules.yml'
BOARD = REPOSITORY / 'packaging/prometheus/cxlpool-board.json'
SAMPLE = re.compile(r'(\w+)(\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})? (\S+)')


def fetch_promtool():
    """Its path. Without it those that need it are skipped."""
    done = subprocess.run([REPOSITORY / 'test/prometheus/fetch', '--check'], capture_output=True, text=True)
    if done.returncode != 0:
        skip_program(f'promtool is not here: {done.stderr.strip()}')
    return done.stdout.strip()


@dataclass
class Scrape:
    """What one daemon said at one moment. Down: it said nothing."""
    text: str = ''
    down: bool = False
    time: float = field(default_factory=time.time)

    @property
    def types(self):
        return dict(re.findall(r'^# TYPE (\w+) (\w+)$', self.text, re.M))

    @functools.cached_property
    def series(self):
        """'name{label="value"}' to its value."""
        return {name + (labels or ''): float(value) for name, labels, value in
                (SAMPLE.fullmatch(line).groups() for line in self.text.splitlines() if line and line[0] != '#')}

    def names(self):
        return set(self.types) | {re.match(r'\w+', series)[0] for series in self.series}

    def sum(self, name, **labels):
        """Of all series of that name and these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(value for series, value in self.series.items()
                   if re.match(r'\w+', series)[0] == name and all(label in series for label in wanted))


class MeteredPool(EmulatedPool):
    """Its manager and its agents have metrics. `tls`: names of those whose are read by TLS ('manager', or a host)."""

    def __init__(self, *arguments, tls=(), **shape):
        super().__init__(*arguments, **shape)
        self.tls = tls
        self.metrics_ports = {name: free_port() for name in ('manager', *self.host_names())}
        self.manager_toml = self.metrics_toml('manager')

    def metrics_toml(self, name):
        return f'[metrics]\nlisten = "{"0.0.0.0" if name in self.tls else "127.0.0.1"}:{self.metrics_ports[name]}"\n'

    def agent_toml(self, name, bridges):
        return super().agent_toml(name, bridges) + self.metrics_toml(name)

    def scrape(self, name='manager', tls=None):
        return scrape(self.metrics_ports[name], 'https' if name in self.tls else 'http', tls)


def scrape(port, scheme='http', tls=None):
    """What the daemon says whose metrics are there."""
    try:
        with urllib.request.urlopen(f'{scheme}://127.0.0.1:{port}/metrics', timeout=20, context=tls) as answer:
            return Scrape(answer.read().decode())
    except urllib.error.HTTPError:
        raise
    except OSError:
        if tls:
            raise
        return Scrape(down=True)


def check_metrics(promtool, scrape):
    """What promtool has against the text; empty: nothing."""
    done = subprocess.run([promtool, 'check', 'metrics'], input=scrape.text, capture_output=True, text=True)
    return (done.stdout + done.stderr).strip() or (f'exit {done.returncode}' if done.returncode else '')


def alerts():
    return re.findall(r'- alert: (\w+)', RULES.read_text())


def fired_by(promtool, directory, series, at, every='1m'):
    """The alerts that Prometheus would fire at one of these times, had it scraped `series`: pairs of name and promtool's values."""
    trial = {'rule_files': [str(RULES)], 'evaluation_interval': every, 'tests': [{
        'interval': every,
        'input_series': [{'series': name, 'values': values} for name, values in series],
        'alert_rule_test': [{'eval_time': time, 'alertname': alert, 'exp_alerts': []} for alert in alerts() for time in at]}]}
    path = Path(directory) / 'trial.yml'
    path.write_text(json.dumps(trial))  # Which is YAML, too.
    done = subprocess.run([promtool, 'test', 'rules', path], capture_output=True, text=True)
    said = done.stdout + done.stderr
    fired = set(re.findall(r'alertname:\s*(\w+),', said))
    assert fired or 'SUCCESS' in said, said  # It has read the trial.
    return fired


def firing(promtool, directory, before, after, at=('22m', '55m'), every='1m', goes_on=False):
    """The alerts that Prometheus would fire at one of these times, if the daemons had said `before` for twenty scrapes and from then
    on `after`. Both: job to Scrape, or JOB#N where several daemons have one job. What is an age grows, and what is a moment is as
    far from now as it was: promtool's time begins at 0. With `goes_on` counters grow with each scrape by what they grew between the
    two."""
    minutes = [int(time[:-1]) * {'m': 1, 'h': 60}[time[-1]] for time in (*at, every)]
    steps = max(minutes) // minutes[-1]
    asked_for = set(re.findall(r'\w+', RULES.read_text()))
    series = []
    for daemon, now in after.items():
        then = before[daemon]
        job, _, number = daemon.partition('#')
        where = f'instance="{job}:{number or 1}", job="{job}"'
        series.append((f'up{{{where}}}', f'1x19 {int(not now.down)}x{steps}'))
        for name in sorted({*then.series, *now.series}):
            bare, labels = re.match(r'(\w+)(?:\{(.*)\})?', name).groups()
            if bare not in asked_for:
                continue
            moment = bare.endswith(('_timestamp_seconds', '_start_time_seconds'))
            old, new = (f'{value - (scrape.time if moment else 0):f}' if (value := scrape.series.get(name)) is not None else None
                        for scrape in (then, now))
            grows = '+60' if bare.endswith('_oldest_wait_seconds') else '+0'
            counted = now.types.get(re.sub('_(bucket|sum|count)$', '', bare)) in ('histogram', 'counter')
            if goes_on and counted and old and new:
                grows = f'+{float(new) - float(old):f}'
            series.append((f'{bare}{{{labels + ", " if labels else ""}{where}}}',
                           (f'{old}+0x19' if old else '_x19') + ' ' + (f'{new}{grows}x{steps}' if new else 'stale')))
    return fired_by(promtool, directory, series, at, every)
