"""Makes a virtual environment with this project in it, from a bare Python 3.11 or newer.

Nothing but the standard library may be imported here: this runs before anything is installed.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["ROOT", "CannotPrepareError", "binary", "need_git", "prepare", "with_path"]

ROOT = Path(__file__).resolve().parents[2]
_STAMP = "made-for"


class CannotPrepareError(Exception):
    """The environment cannot be made; the text is one line that says what to do about it."""


def need_git() -> None:
    """Raise CannotPrepareError where there is no git program, which the tests compare with."""
    if shutil.which("git") is None:
        raise CannotPrepareError("git is not installed: the tests need it (the daemon itself does not)")


def prepare(folder: str, *, dev: bool, editable: bool, extras: str = "cli") -> Path:
    """Make or reuse the virtual environment of this Python in ``ROOT/folder``; give its directory.

    ``extras`` are those of the project that are installed with it.

    It is made anew when the Python or ``pyproject.toml`` changes; one that is not editable, always installs the
    project again. Raises CannotPrepareError.
    """
    place = ROOT / folder / f"py{sys.version_info[0]}.{sys.version_info[1]}"
    place.parent.mkdir(exist_ok=True)
    with _locked(place.with_suffix(".lock")):
        wanted = _key(dev, editable, extras)
        stamp = place / _STAMP
        if not (stamp.exists() and stamp.read_text() == wanted):
            shutil.rmtree(place, ignore_errors=True)
            _make(place)
            _install(place, [*_project(editable, extras), *(_dev_group() if dev else [])])
            stamp.write_text(wanted)
        elif not editable:
            _install(place, ["--force-reinstall", "--no-deps", *_project(editable, extras)])
    return place


def binary(place: Path, name: str) -> str:
    """The path of a program of the virtual environment."""
    return str(place / "bin" / name)


def with_path(place: Path, environ: dict[str, str]) -> dict[str, str]:
    """Give an environment in which the virtual environment's programs are found first."""
    return {
        **environ,
        "VIRTUAL_ENV": str(place),
        "PATH": os.pathsep.join([str(place / "bin"), environ.get("PATH", os.defpath)]),
    }


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _key(dev: bool, editable: bool, extras: str) -> str:
    project = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    return f"{sys.version} {sys.base_prefix} dev={dev} editable={editable} [{extras}] {ROOT} {project}\n"


def _project(editable: bool, extras: str) -> list[str]:
    return ["--editable", f"{ROOT}[{extras}]"] if editable else [f"{ROOT}[{extras}]"]


def _dev_group() -> list[str]:
    # Older pips do not know dependency groups, so the names are read here.
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]


def _make(place: Path) -> None:
    print(f"making {place.relative_to(ROOT)} ...", flush=True)
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        command = [sys.executable, "-m", "venv", str(place)]
    elif importlib.util.find_spec("virtualenv"):
        command = [sys.executable, "-m", "virtualenv", "--quiet", str(place)]
    else:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise CannotPrepareError(
            f"{sys.executable} has no venv: install it (Debian, Ubuntu: apt-get install python{version}-venv), "
            "or virtualenv"
        )
    _run(command, "make a virtual environment")
    # The programs that an older one makes import ``re`` first: half as long again for ``ckpt``. Not vital.
    subprocess.run([*_pip(place), "install", "--upgrade", "pip"], stdin=subprocess.DEVNULL, check=False)


def _pip(place: Path) -> list[str]:
    return [binary(place, "python"), "-m", "pip", "--disable-pip-version-check", "-qq"]


def _install(place: Path, what: Sequence[str]) -> None:
    _run([*_pip(place), "install", *what], "install the project and what it needs (is a package index reachable?)")


def _run(command: Sequence[str], doing: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    if subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, check=False).returncode:
        raise CannotPrepareError(f"could not {doing}: see above")
