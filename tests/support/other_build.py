"""Copies of the source tree, as another version or as an installation that can be taken away."""

import os
import re
import shutil
import site
from pathlib import Path

from support.cli_run import ROOT

__all__ = ["copy_of", "installation", "python_path"]

ROOMS = ("protocol", "daemon", "client")


def copy_of(place: Path, build: str, protocol: int = 1) -> Path:
    """Copy the three rooms to ``place``, with another version."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, place / room, ignore=shutil.ignore_patterns("__pycache__"))
    version = place / "protocol" / "ckpt_protocol" / "version.py"
    text = re.sub(r"^BUILD = .*$", f'BUILD = "{build}"', version.read_text(), flags=re.MULTILINE)
    text = re.sub(r"^PROTOCOL_VERSION = .*$", f"PROTOCOL_VERSION = {protocol}", text, flags=re.MULTILINE)
    version.write_text(text)
    return place


def python_path(tree: Path) -> str:
    """Where Python finds the packages of a copy."""
    return os.pathsep.join(str(tree / room) for room in ROOMS)


def installation(place: Path) -> Path:
    """Make a directory with the daemon's packages and links to all that it needs, as one folder of packages."""
    place.mkdir()
    for room, package in zip(ROOMS, ("ckpt_protocol", "ckptd", "fabricatio_checkpoint"), strict=True):
        shutil.copytree(ROOT / room / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    for packages in site.getsitepackages():
        for entry in Path(packages).iterdir():
            if entry.suffix != ".pth" and not (place / entry.name).exists():
                (place / entry.name).symlink_to(entry)
    return place
