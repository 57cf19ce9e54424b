"""What Prometheus reads from both daemons: promtool takes it, it is what the pool says of itself, and each rule and each panel
of the board asks for what is there. Real processes, no CXL."""

import json
import re
import ssl
import subprocess
import urllib.error

from testbed.metrics import BOARD, RULES, MeteredPool, alerts, check_metrics, fetch_promtool
from testbed.pool import CliError, MiB
from testbed.process import wait_until
from testbed.testing import BUILD, REPOSITORY, PoolTest, main

WITHIN_S = 20
RUNGS = ('bind', 'online', 'offline', 'eject', 'prove', 'scrub')
# What stands in an expression and is no metric.
WORDS = {'and', 'or', 'unless', 'by', 'without', 'on', 'ignoring', 'group_left', 'group_right', 'bool', 'offset'}


def names_in(expression):
    """The metrics that an expression asks for."""
    bare = re.sub(r'\{[^}]*\}|\[\w+\]|"[^"]*"', '', expression)
    bare = re.sub(r'\b(by|without|on|ignoring)\s*\([^)]*\)', '', bare)
    return {word for word in re.findall(r'(?<![\w:.])[a-zA-Z_:][\w:]*(?!\s*\()(?![\w:])', bare) if word not in WORDS}


def rule_expressions():
    """(name, expression) of each rule: what stands between `expr:` and the next key."""
    return re.findall(r'- (?:record|alert): (\S+)\n\s+expr: (?:>-\n)?(.*?)\n(?=\s+(?:for|labels|annotations|- )|\s*$|\n)',
                      RULES.read_text(), re.S)


def board_expressions():
    board = json.loads(BOARD.read_text())
    return [(panel['title'], target['expr']) for panel in board['panels'] for target in panel.get('targets', [])]


class MetricsTest(PoolTest):
    @classmethod
    def make_pool(cls, directory):
        cls.promtool = fetch_promtool()
        return MeteredPool(BUILD, directory, hosts={'host-a': [[1, 2, 3, 4]], 'host-b': [[1, 2]]}, granule='64MiB')

    def tearDown(self):
        self.pool.release_all()

    def test_they_are_as_prometheus_wants_them(self):
        self.pool.allocate('kv', '256MiB', 'host-a')
        with self.assertRaises(CliError):
            self.pool.cli('region', 'show', 'nobody')
        for name in ('manager', 'host-a', 'host-b'):
            self.assertEqual(check_metrics(self.promtool, self.pool.scrape(name)), '', name)

    def test_they_are_what_the_pool_says(self):
        before = self.pool.scrape()
        self.pool.allocate('kv', '256MiB', 'host-a')
        during = self.pool.scrape()
        capacity = self.pool.cli('capacity')
        self.assertEqual(during.sum('cxlpool_pool_capacity_bytes'), int(capacity['total_bytes']))
        self.assertEqual(during.sum('cxlpool_pool_bytes'), int(capacity['total_bytes']))
        self.assertEqual(during.sum('cxlpool_device_bytes'), int(capacity['total_bytes']))
        self.assertEqual(during.sum('cxlpool_pool_bytes', state='free'), int(capacity['free_bytes']))
        for name, labels in (('cxlpool_pool_bytes', {'state': 'allocated'}), ('cxlpool_tenant_used_bytes', {'tenant': 'default'}),
                             ('cxlpool_host_attached_bytes', {'host': 'host-a'})):
            self.assertEqual(during.sum(name, **labels), 256 * MiB, name)
        for name, labels in (('cxlpool_regions', {'state': 'ALLOCATED'}), ('cxlpool_attachments', {'state': 'ONLINE'})):
            self.assertEqual(during.sum(name, **labels), 1, name)
        self.assertEqual(during.sum('cxlpool_hosts', state='online'), 2)
        self.assertEqual(during.sum('cxlpool_writer_queue_length'), 0)
        agent = self.pool.scrape('host-a')
        self.assertEqual(agent.sum('cxlpool_agent_online_bytes', mode='devdax'), 256 * MiB)
        self.assertEqual(agent.sum('cxlpool_agent_segments', state='ONLINE'), 1)
        self.assertEqual(agent.sum('cxlpool_agent_session_up'), 1)

        holder = self.pool.hosts['host-a'].hold('kv')
        held = self.pool.scrape('host-a')
        self.assertEqual((held.sum('cxlpool_agent_open_regions'), held.sum('cxlpool_agent_holders')), (1, 1))
        self.assertEqual(held.sum('cxlpool_agent_applications', state='using'), 1)
        holder.kill()
        holder.communicate()
        self.pool.release('kv')
        after = self.pool.scrape()
        for rung in RUNGS:
            self.assertEqual(after.sum('cxlpool_rung_duration_seconds_count', rung=rung),
                             before.sum('cxlpool_rung_duration_seconds_count', rung=rung) + 1, rung)
        for call in ('bind', 'begin_unbind', 'await_unbound', 'scrub'):
            self.assertGreater(after.sum('cxlpool_fabric_call_duration_seconds_count', call=call),
                               before.sum('cxlpool_fabric_call_duration_seconds_count', call=call), call)
        self.assertEqual(after.sum('cxlpool_scrub_bytes_total') - before.sum('cxlpool_scrub_bytes_total'), 256 * MiB)
        self.assertEqual(after.sum('cxlpool_scrub_backlog_bytes'), 0)
        self.assertLessEqual({'cxlpool_fabric_discover_differences_total', 'cxlpool_watch_dropped_total'}, after.names())
        self.assertGreater(after.sum('cxlpool_store_revision'), before.sum('cxlpool_store_revision'))
        self.assertGreater(after.sum('cxlpool_store_commit_duration_seconds_count'), 5)
        self.assertGreater(after.sum('cxlpool_store_size_bytes'), 4096)
        self.assertEqual(after.sum('cxlpool_store_commit_failures_total'), 0)
        steps = self.pool.scrape('host-a')
        for step in ('PowerOn', 'CreateHostRegion', 'BindDax', 'UnbindDax', 'DestroyHostRegion', 'PowerOff'):
            self.assertGreater(steps.sum('cxlpool_agent_step_duration_seconds_count', step=step), 0, step)

    def test_calls_are_counted_by_method_and_outcome(self):
        before = self.pool.scrape()
        self.pool.cli('region', 'list')
        with self.assertRaises(CliError):
            self.pool.cli('region', 'show', 'nobody')
        with self.assertRaises(CliError):  # Refused before it is read: a host may not.
            host = self.pool.cli_command('tenant', 'list', '--fail-fast')
            host = [word.replace('operator-admin', 'host-host-a') for word in host]
            done = subprocess.run(host, capture_output=True, text=True)
            raise CliError(host, done.returncode, done.stderr)
        after = self.pool.scrape()

        def more(name, **labels):
            return after.sum(name, **labels) - before.sum(name, **labels)
        self.assertGreaterEqual(more('cxlpool_rpc_requests_total', method='ListRegions', code='OK'), 1)
        self.assertGreaterEqual(more('cxlpool_rpc_duration_seconds_count', method='ListRegions'), 1)
        self.assertEqual(more('cxlpool_rpc_requests_total', method='GetRegion', code='NOT_FOUND'), 1)
        self.assertEqual(more('cxlpool_refusals_total', reason='UNKNOWN_REGION'), 1)
        self.assertEqual(more('cxlpool_rpc_requests_total', method='ListTenants', code='PERMISSION_DENIED'), 1)
        self.assertEqual(more('cxlpool_rpc_duration_seconds_count', method='ListTenants'), 0)

    def test_a_watch_and_a_backup(self):
        watch = self.pool.spawn_cli('region', 'watch')
        self.addCleanup(watch.communicate)
        self.addCleanup(watch.kill)
        self.assertIn('cxlpool_watch_lag_revisions', self.pool.scrape().names())
        wait_until(lambda: self.pool.scrape().sum('cxlpool_watch_streams') == 1, WITHIN_S, 'the watch is counted')
        self.assertEqual(self.pool.scrape().sum('cxlpool_backup_last_success_timestamp_seconds'), 0)
        self.pool.run_cli('backup', self.directory / 'backup.db')
        scrape = self.pool.scrape()
        self.assertEqual(scrape.sum('cxlpool_rpc_requests_total', method='Backup', code='OK'), 1)
        self.assertLess(abs(scrape.sum('cxlpool_backup_last_success_timestamp_seconds') - scrape.time), 60)

    def test_rules_and_board_ask_for_what_is_there(self):
        rules, board = rule_expressions(), board_expressions()
        self.assertEqual(len(rules), len(re.findall(r'^ +expr:', RULES.read_text(), re.M)))
        self.assertGreater(len(board), 30)
        there = self.pool.scrape().names() | self.pool.scrape('host-a').names() | {'up'}
        there |= {name for name, _ in rules if ':' in name}
        missing = {(where, name) for where, expression in rules + board for name in names_in(expression) - there}
        self.assertEqual(missing, set())
        as_rules = self.directory / 'board.yml'
        as_rules.write_text(json.dumps({'groups': [{'name': 'board', 'rules': [
            {'record': f'panel:{number}', 'expr': expression} for number, (_, expression) in enumerate(board)]}]}))
        for file in (RULES, as_rules):
            done = subprocess.run([self.promtool, 'check', 'rules', file], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_has_its_section(self):
        guide = (REPOSITORY / 'docs/alerts.md').read_text()
        sections = re.findall(r'^## (Cxlpool\w+)$', guide, re.M)
        self.assertEqual(sections, alerts())
        books = re.findall(r'runbook: docs/alerts.md#(\w+)', RULES.read_text())
        self.assertEqual(books, [name.lower() for name in sections])


class MetricsByTlsTest(PoolTest):
    """Of a manager and an agent whose address is not this machine's alone."""
    @classmethod
    def make_pool(cls, directory):
        return MeteredPool(BUILD, directory, hosts={'host-a': [[1, 2]]}, tls=('manager', 'host-a'))

    def identity(self, stem):
        """As an operator with that certificate; None: none. The agents' certificates are for clients, so names are not looked at."""
        tls = ssl.create_default_context(cafile=self.pool.pki / 'ca.pem')
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        if stem:
            tls.load_cert_chain(self.pool.pki / f'{stem}.pem', self.pool.pki / f'{stem}.key')
        return tls

    def test_operators_read_and_nobody_else(self):
        for name in ('manager', 'host-a'):
            self.assertIn('cxlpool_build_info', self.pool.scrape(name, self.identity('operator-admin')).names())
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.pool.scrape(name, self.identity('host-host-a'))
            self.assertEqual(refused.exception.code, 403)
            with self.assertRaises(OSError):
                self.pool.scrape(name, self.identity(None))

    def test_where_roles_are_bound_one_is_needed(self):
        self.pool.run_cli('pki', 'issue', 'operator', 'board', '--dir', self.pool.pki)
        self.pool.scrape('manager', self.identity('operator-board'))
        self.pool.cli('access', 'grant', 'admin', '--role', 'admin', '--reason', 'test')
        with self.assertRaises(urllib.error.HTTPError):
            self.pool.scrape('manager', self.identity('operator-board'))
        # The figures are of all tenants.
        self.pool.cli('access', 'grant', 'board', '--role', 'tenant', '--tenant', 'default', '--reason', 'test')
        with self.assertRaises(urllib.error.HTTPError):
            self.pool.scrape('manager', self.identity('operator-board'))
        self.pool.cli('access', 'grant', 'board', '--role', 'viewer', '--reason', 'test')
        self.pool.scrape('manager', self.identity('operator-board'))
        for name in ('board', 'admin'):
            self.pool.cli('access', 'revoke', name)

    def test_who_is_revoked_reads_no_more(self):
        self.pool.run_cli('pki', 'issue', 'operator', 'prometheus', '--dir', self.pool.pki)
        self.pool.scrape('manager', self.identity('operator-prometheus'))
        self.pool.cli('certificate', 'revoke', self.pool.pki / 'operator-prometheus.pem', '--reason', 'test')
        with self.assertRaises(urllib.error.HTTPError):
            self.pool.scrape('manager', self.identity('operator-prometheus'))

    def test_an_address_that_needs_tls_is_refused_without(self):
        config = self.directory / 'no-tls.toml'
        config.write_text(re.sub(r'\[tls\].*?(?=\[\w)', '', (self.directory / 'fm.toml').read_text(), flags=re.S)
                          .replace('[[listen]]', '[[listen]]\ninsecure = true'))
        done = subprocess.run([BUILD / 'bin/cxlpool-fm', '--check-config', '--config', config], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r'no-tls.toml:\d+: metrics.listen: is wrong: "0.0.0.0:\d+" is no loopback address')


if __name__ == '__main__':
    main()
