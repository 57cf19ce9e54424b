"""The command line over Rack: see ../README.md."""
import argparse
import json
import os
import sys
import time

from cxlrack.errors import RackError
from cxlrack.host import BOOT_TIMEOUT_S, RUN_TIMEOUT_S
from cxlrack.rack import MANAGER_GUEST_PORT, Rack

# An exit status of our own, like ssh's: what the command in the host says stays its own.
FAILED = 255


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    command: list[str] = []
    if '--' in words:
        words, command = words[:words.index('--')], words[words.index('--') + 1:]
    options = _parser().parse_args(words)
    options.command = command
    if command and options.action is not _exec:
        print('rack: only exec takes a command after --', file=sys.stderr)
        return 2
    try:
        return options.action(options) or 0
    except RackError as e:
        print(f'rack: {e}', file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='rack', description='An emulated rack: QEMU hosts on one CXL memory pool.')
    verbs = parser.add_subparsers(required=True, metavar='VERB')
    runtime = os.environ.get('XDG_RUNTIME_DIR', '/tmp')
    default_dir = os.environ.get('CXLPOOL_RACK') or f'{runtime}/cxlpool-rack-{os.getuid()}'

    def verb(name: str, action, text: str, host: bool = False) -> argparse.ArgumentParser:
        p = verbs.add_parser(name, help=text, description=text)
        p.add_argument('--dir', default=default_dir, help='the rack (default: $CXLPOOL_RACK, else %(default)s)')
        if host:
            p.add_argument('host')
        p.set_defaults(action=action)
        return p

    up = verb('up', _up, 'boot every host of a topology and wait until all are ready')
    up.add_argument('--topology', default='two-hosts', help='a file, or a name in topologies/ (default: %(default)s)')
    up.add_argument('--image', required=True, help='a machine image, made by mkimage')
    up.add_argument('--overlay', action='append', default=[], metavar='HOST=DIR', help='files that only this host gets')
    up.add_argument('--forward', action='append', default=[], metavar='NAME=PORT',
                    help='manager=PORT, or GUESTPORT=PORT: what hosts reach at 10.0.2.100 is this port of our loopback')
    up.add_argument('--timeout', type=float, default=BOOT_TIMEOUT_S,
                    help='seconds for all to be ready (default: %(default)s)')

    run = verb('exec', _exec, 'exec HOST -- COMMAND...: run a command; exits with its status, 255 if it never ran',
               host=True)
    run.add_argument('--user', default='root', help='root (default) or app')
    run.add_argument('--timeout', type=float, default=RUN_TIMEOUT_S,
                     help='seconds; then it is killed, status 124 (default: %(default)s)')
    run.add_argument('--stdin', action='store_true', help='read our standard input to its end, for the command')

    status = verb('status', _status, 'what runs')
    status.add_argument('-o', dest='output', choices=('table', 'json'), default='table')
    for name, text in (('pause', 'stop the processors of a host'), ('resume', 'let a paused host go on'),
                       ('kill', 'take the power of a host away')):
        verb(name, _life, text, host=True).set_defaults(verb=name)
    for name, text in (('reset', 'pull the reset line of a host'), ('boot', 'power on a host that is dead')):
        p = verb(name, _life, text, host=True)
        p.set_defaults(verb=name)
        p.add_argument('--timeout', type=float, default=BOOT_TIMEOUT_S,
                       help='seconds until it is ready (default: %(default)s)')
    verb('console', _console, 'a shell on the serial console of a host (end it by Ctrl-])', host=True)
    verb('down', _down, 'end every host; the logs stay')
    return parser


def _up(options: argparse.Namespace) -> None:
    start = time.monotonic()
    overlays = dict(_pair(item, '--overlay', 'HOST=DIR') for item in options.overlay)
    forwards = {}
    for item in options.forward:
        name, port = _pair(item, '--forward', 'NAME=PORT')
        guest_port = str(MANAGER_GUEST_PORT) if name == 'manager' else name
        if not (guest_port.isdigit() and port.isdigit()):
            raise RackError(f'--forward {item}: write manager=PORT or GUESTPORT=PORT')
        forwards[int(guest_port)] = int(port)
    rack = Rack.up(options.topology, options.dir, options.image, overlays, forwards=forwards, timeout=options.timeout)
    print(f'{", ".join(rack.hosts)} ready after {time.monotonic() - start:.1f} s in {rack.directory}')


def _exec(options: argparse.Namespace) -> int:
    if not options.command:
        raise RackError('exec wants a command: rack exec HOST -- COMMAND...')
    text = options.command[0] if len(options.command) == 1 else options.command
    data = sys.stdin.buffer.read() if options.stdin else b''
    host = Rack.attach(options.dir).host(options.host)
    result = host.run(text, user=options.user, timeout=options.timeout, input=data, exactly=True)
    sys.stdout.buffer.write(result.stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(result.stderr)
    return result.status


def _status(options: argparse.Namespace) -> None:
    rack = Rack.attach(options.dir)
    hosts = [{'name': h.name, 'status': h.status(), 'pid': h.process.pid if h.process else None,
              'bridges': h.spec.bridges, 'ports': h.spec.ports, 'qmp': str(h.paths.qmp)} for h in rack.hosts.values()]
    devices = [{'name': d.name, 'bytes': d.size, 'path': str(rack.device_path(d.name))} for d in rack.topology.devices]
    if options.output == 'json':
        print(json.dumps({'directory': str(rack.directory), 'hosts': hosts, 'devices': devices}, indent=2))
        return
    for host in hosts:
        print(f'{host["name"]:12} {host["status"]:10} pid {host["pid"]}  {host["bridges"]} x {host["ports"]} ports  '
              f'qmp {host["qmp"]}')
    for device in devices:
        print(f'{device["name"]:12} {device["bytes"] >> 20} MiB  {device["path"]}')


def _life(options: argparse.Namespace) -> None:
    host = Rack.attach(options.dir).host(options.host)
    wait = {'timeout': options.timeout} if options.verb in ('reset', 'boot') else {}
    getattr(host, options.verb)(**wait)


def _console(options: argparse.Namespace) -> None:
    host = Rack.attach(options.dir).host(options.host)
    os.execvp('socat', ['socat', 'STDIO,raw,echo=0,escape=0x1d', f'UNIX-CONNECT:{host.paths.console}'])


def _down(options: argparse.Namespace) -> None:
    Rack.attach(options.dir).down()


def _pair(item: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = item.partition('=')
    if not (name and equals and value):
        raise RackError(f'{option} {item}: write {form}')
    return name, value
