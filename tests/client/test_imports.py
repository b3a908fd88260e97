"""What importing the client costs: which modules come along."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.core

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ("pygit2", "watchfiles", "jsonrpcserver", "anyio", "asyncio", "ckptd")
COSTLY = (
    "msgspec",
    "dataclasses",
    "pathlib",
    "subprocess",
    "typing",
    "logging",
    "tomllib",
    "threading",
    "socket",
    "hashlib",
    "inspect",
    "contextlib",
    "tempfile",
    "dotenv",
)


def _imported(statement: str) -> set[str]:
    path = os.pathsep.join(str(ROOT / name) for name in ("client", "protocol", "daemon"))
    # Without site: what the environment's .pth files import is not the client's doing.
    program = f"import sys; sys.path[:0] = {path.split(os.pathsep)!r}; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import fabricatio_checkpoint",
        "import fabricatio_checkpoint.interruption",
        "import fabricatio_checkpoint.connection, fabricatio_checkpoint.launch, fabricatio_checkpoint.errors",
        "import fabricatio_checkpoint.wire, fabricatio_checkpoint.config",
        "from fabricatio_checkpoint.config import read_options; read_options({'HOME': '/h'}, None, ('cache_size',))",
    ],
)
def test_the_hot_path_imports_only_what_is_cheap(statement):
    assert not _imported(statement) & {*SERVERS, *COSTLY}


def test_the_whole_library_imports_no_server_and_no_git():
    loaded = _imported(
        "import fabricatio_checkpoint.inited_service, fabricatio_checkpoint.rust, fabricatio_checkpoint.spawn, "
        "fabricatio_checkpoint.capabilities.checkpoint, fabricatio_checkpoint.aio, fabricatio_checkpoint.hooks"
    )
    assert not loaded & {*SERVERS, "msgspec", "logging", "tomllib", "dotenv", "pydantic", "fabricatio_core"}


def test_every_public_name_is_there_and_typos_are_not():
    import fabricatio_checkpoint

    for name in fabricatio_checkpoint.__all__:
        assert getattr(fabricatio_checkpoint, name).__class__
        assert name in dir(fabricatio_checkpoint)
    assert fabricatio_checkpoint.__version__ == "1.0.0"
    with pytest.raises(AttributeError, match="no attribute 'Chekpoint'"):
        _ = fabricatio_checkpoint.Chekpoint
