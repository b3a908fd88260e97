"""The doctor's round: all checks, the cures, and the report as lines or as one JSON document."""

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ckpt_protocol import address as addresses
from ckpt_protocol.version import BUILD
from ckpt_protocol.wirepath import encode, to_text
from ckptd import config
from ckptd.chore import Said
from ckptd.doctor import daemon, directories, limits, stores, watchers
from ckptd.doctor.finding import CannotFixError, Case, Finding

__all__ = ["run"]

EXIT_OK: Final = 0
EXIT_REMAINS: Final = 3

_CHECKS: Final = (daemon.check, watchers.check, directories.check, limits.check, stores.check)


class Told(NamedTuple):
    """A finding and what became of it: ``state`` is found, fixed or remains; ``why`` it remains."""

    finding: Finding
    state: str
    why: str | None = None


def run(argv: Sequence[str], environ: Mapping[str, str]) -> Said:
    """Look, put right with ``--fix``, tell; the code is 0 where all is well or was put right, else 3."""
    options = _parse(argv, environ)
    checkpoint_dir = os.fsencode(os.path.realpath(options.checkpoint_dir))
    case = _case(options.socket, checkpoint_dir, addresses.state_dir(environ))
    told = [_cured(finding) if options.fix else Told(finding, "found") for finding in _findings(case)]
    remains = any(one.state != "fixed" for one in told)
    text = json.dumps(_document(case, told, ok=not remains)) if options.json else "\n".join(_lines(case, told))
    return Said(EXIT_REMAINS if remains else EXIT_OK, text)


def _parse(argv: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    socket = addresses.socket_path(environ, config.load(environ).socket)
    stores_dir = os.path.join(addresses.home_dir(environ), ".fabricatio-checkpoint")
    parser = argparse.ArgumentParser(prog="ckptd doctor", description="Look for what is wrong; starts no daemon.")
    parser.add_argument("--fix", action="store_true", help="put right what can be, where no owner lives")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--socket", metavar="PATH", default=socket, help="the daemon's address")
    parser.add_argument("--checkpoint-dir", metavar="DIR", default=stores_dir, help="the directory of the stores")
    return parser.parse_args(argv)


def _case(socket: str, checkpoint_dir: bytes, state_dir: str) -> Case:
    answer: dict[str, object] | None = None
    silence: str | None = None
    try:
        answer = daemon.ask(socket, "daemon.status")
    except OSError as error:
        silence = error.strerror or str(error)
    except daemon.SilentDaemonError as error:
        silence = str(error)
    return Case(socket, checkpoint_dir, state_dir, answer, silence)


def _findings(case: Case) -> Iterator[Finding]:
    for check in _CHECKS:
        yield from check(case)


def _cured(finding: Finding) -> Told:
    if finding.fix is None:
        return Told(finding, "remains")
    try:
        finding.fix()
    except CannotFixError as error:
        return Told(finding, "remains", str(error))
    except OSError as error:
        return Told(finding, "remains", error.strerror or str(error))
    return Told(finding, "fixed")


def _lines(case: Case, told: list[Told]) -> Iterator[str]:
    if case.silence is not None:
        yield "the daemon cannot be asked"
    elif case.answer is None:
        yield "the daemon does not run (nothing is wrong with that)"
    else:
        yield f"the daemon runs, pid {case.answer.get('pid')}, build {case.answer.get('version')}"
    for one in told:
        yield _visible(_line(one))
    if not told:
        yield "all is well"


def _line(one: Told) -> str:
    problem, action = one.finding.problem, one.finding.action
    path = one.finding.path
    where = f" ({to_text(path)})" if path is not None and to_text(path) not in problem else ""
    if one.state == "fixed":
        return f"{one.finding.check}: {problem}{where}; done: {action}"
    if one.why is not None:
        return f"{one.finding.check}: {problem}{where}; not done ({one.why}): {action}"
    word = "would be done with --fix" if one.finding.fix is not None else "to do"
    return f"{one.finding.check}: {problem}{where}; {word}: {action}"


def _visible(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _document(case: Case, told: list[Told], *, ok: bool) -> dict[str, object]:
    return {
        "ok": ok,
        "build": BUILD,
        "socket": encode(os.fsencode(case.socket)),
        "checkpoint_dir": encode(case.checkpoint_dir),
        "daemon": case.answer,
        "findings": [
            {
                "check": one.finding.check,
                "path": None if one.finding.path is None else encode(one.finding.path),
                "problem": _visible(one.finding.problem),
                "action": one.finding.action,
                "state": one.state,
                "why": one.why,
            }
            for one in told
        ],
    }
