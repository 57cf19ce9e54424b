#!/usr/bin/env python3
"""docs/errors.md lists every reason that the code can give, and no other; docs/operations.md every problem that
`cxlpool explain` can name.

A reason is an UPPER_SNAKE string literal in the C++ sources, or one that a .proto's comment
promises. Literals that look like one and are none are listed below. Where a code stands right before
a reason, the list has that code for it.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ["fabric-manager", "host-agent", "libpool/src", "libpool/heap", "libpool/include", "proto/support",
           "tools/cli", "tools/pki"]
EXPLAINS = [ROOT / "fabric-manager/service" / name for name in ("explain.cc", "explain_region.cc")]
ALSO_EXPLAIN = [ROOT / "fabric-manager/rpc" / name for name in ("explain_rpc.cc", "server_health.cc")]
REASON = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"

# Canonical codes, enumerators in text, environment variables, and words of other protocols.
CODES = set("""
ALREADY_EXISTS DATA_LOSS DEADLINE_EXCEEDED FAILED_PRECONDITION INVALID_ARGUMENT NOT_FOUND
OUT_OF_RANGE PERMISSION_DENIED RESOURCE_EXHAUSTED
""".split())
NOT_REASONS = CODES | set("""
AGENT_AWAY FABRIC_AWAY
CAP_DAC_READ_SEARCH CAP_SYS_ADMIN CAP_SYS_PTRACE CERTIFICATE_VERIFY_FAILED DEVICE_DELETED GRPC_VERBOSITY MALLOC_CONF MEM_UNPLUG_ERROR
DEVICE_UNPLUG_GUEST_ERROR JOURNAL_STREAM MULTI_WRITER NOTIFY_SOCKET READ_ONLY READ_WRITE RELEASE_BLOCKED
SINGLE_WRITER STATE_DIRECTORY SYSLOG_IDENTIFIER SYSTEM_RAM WATCHDOG_PID WATCHDOG_USEC XDG_CONFIG_HOME
BOOT_FAIL NODE_FAIL OUT_OF_MEMORY
""".split())


def documented():
    """Reason -> the codes that it may have; one that several sections list has those of all."""
    found = {}
    rows = re.findall(rf"^\| ({REASON}|HOLDERS) \| ([^|]*) \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    for reason, codes in rows:
        if reason not in CODES:
            found.setdefault(reason, set()).update(re.findall(r"[A-Z_]+", codes))
    return found


def sources():
    """(path, text) of each that may give a reason."""
    for top in SOURCES:
        for path in sorted((ROOT / top).rglob("*")):
            if path in EXPLAINS:  # Problems are no reasons.
                continue
            if path.suffix not in (".cc", ".h") or re.search(r"_test|fake_|_rig\.", path.name):
                continue
            yield path.relative_to(ROOT), re.sub(r'problem = "[A-Z_]+"', '', path.read_text())


def given():
    """Reason -> the first file that gives it."""
    found = {}
    for path, text in sources():
        for reason in re.findall(rf'"({REASON}|HOLDERS)"', text):
            if reason not in NOT_REASONS and not reason.startswith("CXLPOOL_"):
                found.setdefault(reason, path)
    return found


def given_codes():
    """(reason, code) -> the first file that gives both together."""
    found = {}
    for path, text in sources():
        together = re.findall(rf'StatusCode::k(\w+),\s*"({REASON}|HOLDERS)"', text)
        together += [("FailedPrecondition", reason) for reason in re.findall(rf'\bFailedPrecondition\(\s*"({REASON})"', text)]
        for code, reason in together:
            found.setdefault((reason, re.sub(r"(?<=[a-z])([A-Z])", r"_\1", code).upper()), path)
    return found


def promised():
    """Reasons that the services' comments name: `CODE: REASON (what to do)`."""
    found = {}
    enumerators = set()
    text = {path: path.read_text() for path in sorted((ROOT / "proto/cxlpool/v1").glob("*.proto"))}
    for body in text.values():
        enumerators |= set(re.findall(rf"^\s+({REASON}) = \d+;", body, re.MULTILINE))
    others = {"AF_UNIX", "O_RDONLY", "SOCK_SEQPACKET", "SO_PEERCRED", "SCM_RIGHTS",
              "UPPER_SNAKE", "ZONE_MOVABLE"}
    for path, body in text.items():
        for comment in re.findall(r"//(.*)$", body, re.MULTILINE):
            for reason in re.findall(rf"\b{REASON}\b", comment):
                if reason not in enumerators | CODES | others:
                    found.setdefault(reason, path.relative_to(ROOT))
    return found


def problems():
    """What explain*.cc and their call name, and what the table of docs/operations.md has."""
    named = {word for path in EXPLAINS for word in re.findall(r'"([A-Z][A-Z_]+)"', path.read_text())}
    for path in ALSO_EXPLAIN:
        named |= set(re.findall(r'problem = "([A-Z_]+)"', path.read_text()))
    text = (ROOT / "docs/operations.md").read_text().split("\n| problem | of | |\n", 1)[1].split("\n\n", 1)[0]
    return named, {word for row in text.splitlines() for word in re.findall(r"[A-Z][A-Z_]+", row.split("|")[1])}


def main():
    known, in_code, protos = documented(), given(), promised()
    wrong = []
    for reason, path in sorted({**in_code, **protos}.items()):
        if reason not in known:
            wrong.append(f"{reason} ({path}) is not in docs/errors.md: say what the caller does")
    for reason in sorted(set(known) - set(in_code) - set(protos)):
        wrong.append(f"{reason} is in docs/errors.md, but nothing gives it")
    codes = given_codes()
    assert len(codes) > 200, "codes and reasons are written in another way now"
    for (reason, code), path in sorted(codes.items()):
        if reason in known and code not in known[reason]:
            wrong.append(f"{reason} has code {code} in {path}, and not in docs/errors.md")
    named, in_table = problems()
    wrong += [f"{problem} is named by explain, but not in docs/operations.md, or the other way round" for problem in sorted(named ^ in_table)]
    print("\n".join(wrong) or f"{len(known)} reasons, all documented")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
