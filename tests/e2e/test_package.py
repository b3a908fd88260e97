"""What is installed: the wheel's content, and what importing the package costs."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.cli_run import ROOT, environment

pytestmark = pytest.mark.e2e

PACKAGES = {"ckpt_protocol": "protocol", "ckptd": "daemon", "fabricatio_checkpoint": "client"}
UNITS = {"ckptd/units/ckptd.service", "ckptd/units/ckptd.socket"}
HEAVY = ("pygit2", "watchfiles", "jsonrpcserver", "anyio", "asyncio", "rich", "textual", "pydantic", "ckptd")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the package, is not installed here")
    place = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling import build; print(build.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(place)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(place / done.stdout.split()[-1]) as opened:
        yield opened


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: zipfile.ZipFile):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    wanted = set(UNITS)
    for package, room in PACKAGES.items():
        for path in (ROOT / room / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                wanted.add(path.relative_to(ROOT / room).as_posix())
        assert f"{package}/py.typed" in names
    assert names == wanted
    assert all(name in UNITS or Path(name).suffix == ".py" or name.endswith("/py.typed") for name in names)


def test_the_wheel_brings_the_commands_the_units_and_the_license(wheel: zipfile.ZipFile):
    folder = next(name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
    scripts = wheel.read(f"{folder}/entry_points.txt").decode()
    assert "ckpt = fabricatio_checkpoint.cli.__main__:run" in scripts
    assert "ckptd = ckptd.__main__:main" in scripts
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    for unit in UNITS:
        assert wheel.read(unit) == (ROOT / "systemd" / Path(unit).name).read_bytes()


def test_the_version_is_one(wheel: zipfile.ZipFile):
    from ckpt_protocol.version import BUILD

    folder = next(name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
    assert folder == f"fabricatio_checkpoint-{BUILD}.dist-info"


def test_importing_costs_no_git_and_no_event_loop():
    modules = ("", ".inited_service", ".rust", ".capabilities.checkpoint", ".config", ".cli.__main__")
    for module in modules:
        code = f"import fabricatio_checkpoint{module}, sys; print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
        )
        assert not set(HEAVY) & set(done.stdout.split()), module
