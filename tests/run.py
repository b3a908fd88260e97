"""The one test command: makes its own virtual environment, then runs the linters and the tests.

Needs a bare Python 3.11 or newer, git, and (the first time) a package index.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said in one line, where a syntax error would come otherwise
    sys.exit("run.py needs Python 3.11 or newer, this is " + sys.version.split()[0])

import argparse
import os
import shutil
import subprocess
import time
from pathlib import Path

from support import bootstrap, isolation

EXIT_CANNOT_PREPARE = 3
SOURCES = ["protocol/ckpt_protocol", "daemon/ckptd", "client/fabricatio_checkpoint"]
OPTIONAL = [
    *(f"tests/client/test_{name}.py" for name in ("fabricatio_roles", "mixin_pydantic", "mixin", "async", "hooks")),
    "tests/e2e/test_many_roles.py",
]
LONG_OPERATIONS = ("gc", "housekeeping", "odd_worktrees", "restore_model", "search", "session_undo", "trail", "verify")
ONCE = ["tests/crash", *(f"tests/shadow/test_{name}.py" for name in LONG_OPERATIONS)]
"""What is left of a disk, and what takes long on it, does not depend on the version of Python."""
NEWEST_FOR_OPTIONAL = ("python3.14", "python3.13", "python3.12")


def main() -> int:
    """Run what was asked for; 0 where everything passed, 3 where the environment could not be made."""
    options, for_pytest = _parser().parse_known_args()
    if options.optional and sys.version_info < (3, 12):
        return _run_with_a_newer_python()
    try:
        bootstrap.need_git()
        if options.optional:
            place = bootstrap.prepare(".venv-optional", dev=True, editable=True, extras="cli,fabricatio")
        else:
            place = bootstrap.prepare(".venv-test", dev=True, editable=True)
    except bootstrap.CannotPrepareError as error:
        print(f"run.py: {error}")
        return EXIT_CANNOT_PREPARE
    temporary = isolation.short_directory()
    try:
        return _run_all(options, for_pytest, place, temporary)
    except KeyboardInterrupt:
        return 130
    finally:
        isolation.remove(temporary)


def _run_with_a_newer_python() -> int:
    for name in NEWEST_FOR_OPTIONAL:
        found = shutil.which(name)
        # A launcher of that name may be there without the Python.
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return subprocess.run([found, __file__, *sys.argv[1:]], check=False).returncode
    print("run.py: fabricatio-core needs Python 3.12 or newer, and none of them is here")
    return EXIT_CANNOT_PREPARE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="All other arguments go to pytest.", allow_abbrev=False
    )
    parser.add_argument("--core", action="store_true", help="only the tests marked core, and no linters")
    parser.add_argument(
        "--optional", action="store_true", help="only the tests with fabricatio-core, in an environment that has it"
    )
    parser.add_argument("--no-lint", action="store_true", help="only the tests")
    parser.add_argument("--long", action="store_true", help="many more generated examples (sets CKPT_TEST_LONG=1)")
    return parser


def _run_all(options: argparse.Namespace, for_pytest: list[str], place: Path, temporary: str) -> int:
    environ = bootstrap.with_path(place, isolation.private_environment(temporary, os.environ))
    environ["HYPOTHESIS_STORAGE_DIRECTORY"] = os.path.join(temporary, "hypothesis")
    if options.long:
        environ["CKPT_TEST_LONG"] = "1"
    elif options.core:
        environ["CKPT_TEST_BRIEF"] = "1"
    failed = [] if options.core or options.no_lint or options.optional else _lint(place, environ)
    _say_what_is_left_out(options)
    command = [bootstrap.binary(place, "python"), "-m", "pytest", *_pytest_options(options), *for_pytest]
    status = _step("pytest", command, environ)
    if status:
        failed.append("pytest")
    result = status or (1 if failed else 0)
    print(f"run.py: {'failed: ' + ', '.join(failed) if failed else 'all passed'}, exit code {result}")
    return result


def _lint(place: Path, environ: dict[str, str]) -> list[str]:
    ruff = bootstrap.binary(place, "ruff")
    steps = {
        "ruff check": [ruff, "check", "."],
        "ruff format": [ruff, "format", "--check", "."],
        "mypy": [bootstrap.binary(place, "mypy"), *SOURCES],
    }
    return [name for name, command in steps.items() if _step(name, command, environ)]


def _step(name: str, command: list[str], environ: dict[str, str]) -> int:
    print(f"== {name}", flush=True)
    begun = time.monotonic()
    status = subprocess.run(command, cwd=bootstrap.ROOT, env=environ, check=False).returncode
    if name != "pytest":
        print(f"-- {name}: {'failed' if status else 'passed'} in {time.monotonic() - begun:.1f} s", flush=True)
    return status


def _pytest_options(options: argparse.Namespace) -> list[str]:
    chosen = ["-m", "core", *(f"--ignore={one}" for one in ONCE)] if options.core else []
    if options.optional:
        chosen += OPTIONAL
    workers = ["-n", "2"] if (os.cpu_count() or 1) >= 2 else []
    return [*chosen, *workers]


def _say_what_is_left_out(options: argparse.Namespace) -> None:
    if options.core:
        print("left out: linters, tests not marked core, some that take long, most generated examples (--core)")
    elif options.no_lint:
        print("left out: linters (--no-lint)")
    if options.optional:
        print("left out: linters, and tests that are the same without fabricatio-core (--optional)")
    else:
        print("left out: tests with fabricatio-core, which needs Python 3.12 (--optional)")
    if not options.long:
        print("left out: the long search for counterexamples (--long)")
    if shutil.which("systemctl") is None:
        print("left out where marked: tests with systemd, which is not here")


if __name__ == "__main__":
    sys.exit(main())
