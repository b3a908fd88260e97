"""The capability in real roles of fabricatio-core, and the same options on both sides. Needs fabricatio-core."""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from fabricatio_checkpoint import launch
from fabricatio_checkpoint.capabilities.checkpoint import Checkpoint
from fabricatio_checkpoint.config import checkpoint_config
from fabricatio_checkpoint.hooks import guarded
from fabricatio_checkpoint.inited_service import get_checkpoint_service
from support.fake_daemon import FakeDaemon
from support.live import open_place

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("fabricatio_core") is None, reason="fabricatio-core is not installed"
)

ROOT = Path(__file__).resolve().parents[2]
ID = "a" * 40
SAVED = {"id": ID, "seq": 1, "created": True, "complete": True, "skipped": [], "excluded": [], "files": 1}
FIELD = "FABRICATIO_EXT__CHECKPOINT__"


@pytest.fixture(scope="module")
def core():
    """The package; imported here, as it reads the user's options and looks for the network when it is imported."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import fabricatio_core
        import fabricatio_core.capabilities.usages
    return fabricatio_core


@pytest.fixture
def daemon():
    checkpoint_config.reload()
    opened = {"store": "/s", "created": True, "head": None}
    with FakeDaemon(launch.socket_path(), worktree__open=opened, checkpoint__save=SAVED) as serving:
        yield serving
        get_checkpoint_service().close()


def _orders(core):
    role, use_llm = core.Role, core.capabilities.usages.UseLLM
    return [(Checkpoint, role, use_llm), (role, use_llm, Checkpoint), (use_llm, Checkpoint, role), (Checkpoint, role)]


def test_the_documented_role_in_every_order_of_its_bases(core, daemon, tmp_path):
    for bases in _orders(core):

        class MyAgent(*bases):
            worktree_dir = tmp_path

            @guarded("before editing")
            def edit(self):
                return "edited"

        agent = MyAgent().mount_checkpoint_store()
        assert isinstance(agent, core.Role)
        assert (agent.name, agent.worktree_dir) == ("MyAgent", tmp_path)
        assert agent.save_checkpoint("before editing") == ID
        assert agent.edit() == "edited"
        assert asyncio.run(agent.asave_checkpoint("from a loop")) == ID
        assert MyAgent(worktree_dir=str(tmp_path / "x")).worktree_dir == tmp_path / "x"
        assert agent.unmount_checkpoint_store() is agent
        assert "MyAgent" in agent.briefing


def test_a_directory_as_a_field_and_the_default(core, tmp_path):
    for bases in _orders(core):

        class Annotated(*bases):
            worktree_dir: Path = tmp_path

        class Plain(*bases):
            """No directory."""

        assert Annotated().worktree_dir == tmp_path
        assert Plain().worktree_dir == Path.cwd()


def test_a_role_with_its_own_options_hands_none_of_ours_on(core, daemon, tmp_path):
    class MyAgent(Checkpoint, core.Role, core.capabilities.usages.UseLLM):
        worktree_dir = tmp_path

    agent = MyAgent(llm_model="m").mount_checkpoint_store()
    other = MyAgent(worktree_dir=tmp_path / "other")
    agent.hold_to([other])
    assert (other.llm_model, other.worktree_dir) == ("m", tmp_path / "other")
    assert json.loads(agent.model_dump_json())["worktree_dir"] == str(tmp_path)


def test_a_role_at_work_with_the_real_daemon(core):
    with open_place() as place:

        class MyAgent(Checkpoint, core.Role, core.capabilities.usages.UseLLM):
            worktree_dir = place.ws

        config = place.ws / "config.toml"
        config.write_text("before\n")
        agent = MyAgent().mount_checkpoint_store(place.service().get_store(place.ws))
        cid = agent.save_checkpoint("before editing")
        config.write_text("after\n")
        assert "+after" in agent.get_file_diff(cid, "config.toml")
        assert [change.path for change in asyncio.run(agent.astatus()).changes] == ["config.toml"]
        agent.rollback(cid, "config.toml")
        assert config.read_text() == "before\n"
        agent.undo()
        assert config.read_text() == "after\n"
        asyncio.run(agent.areset_to_checkpoint(cid))
        assert config.read_text() == "before\n"


_BOTH = """
import importlib.util, json, os, pathlib, sys
found = importlib.util.find_spec("fabricatio_core")
binary = next(pathlib.Path(found.origin).parent.glob("rust*.so"))
spec = importlib.util.spec_from_file_location("rust", binary)
rust = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rust)
theirs = rust.CONFIG.load("checkpoint", dict)
from fabricatio_checkpoint.config import checkpoint_config
ours = {name: getattr(checkpoint_config, name) for name in theirs}
for values in (ours, theirs):
    if "checkpoint_dir" in values:
        values["checkpoint_dir"] = os.path.abspath(os.path.expanduser(values["checkpoint_dir"]))
print(json.dumps([ours, theirs]))
"""

FILES = {
    "global": "home/.config/fabricatio/fabricatio.toml",
    "xdg": "xdg/fabricatio/fabricatio.toml",
    "above": "fabricatio.toml",
    "pyproject": "cwd/pyproject.toml",
    "fabricatio": "cwd/fabricatio.toml",
    ".env": "cwd/.env",
    ".env above": ".env",
}


def _toml(place, **options):
    table = "tool.fabricatio.ext.checkpoint" if place == "pyproject" else "ext.checkpoint"
    return f"[{table}]\n" + "".join(f"{name} = {value}\n" for name, value in options.items())


CASES = [
    {"global": _toml("global", cache_size=2, keep_last=3)},
    {"global": _toml("global", cache_size=2), "pyproject": _toml("pyproject", keep_last=3)},
    {"pyproject": _toml("pyproject", cache_size=2, keep_last=9), "fabricatio": _toml("fabricatio", cache_size=5)},
    {"fabricatio": _toml("fabricatio", cache_size=5), "environ": {f"{FIELD}CACHE_SIZE": "6"}},
    {".env": f"{FIELD}CACHE_SIZE=7\n", "environ": {f"{FIELD}CACHE_SIZE": "6", f"{FIELD}KEEP_LAST": "8"}},
    {".env": f"fabricatio_ext__Checkpoint__cache_size=7\n{FIELD}CACHE_SIZE=8\n"},
    {"environ": {"Fabricatio_Ext__checkpoint__Cache_Size": "6"}},
    {".env above": f"{FIELD}CACHE_SIZE=7\n", "above": _toml("above", keep_last=4)},
    {"above": _toml("above", keep_last=4), "fabricatio": _toml("fabricatio", cache_size=5)},
    {"xdg": _toml("xdg", cache_size=2), "global": _toml("global", cache_size=3)},
    {"fabricatio": _toml("fabricatio", checkpoint_dir='"~/stores"')},
    {"pyproject": _toml("pyproject", checkpoint_dir='"stores"', autosave="true", exclude='["*.log", "d/"]')},
    {"environ": {f"{FIELD}CHECKPOINT_DIR": "~/stores", f"{FIELD}AUTOSAVE": "true", f"{FIELD}IDLE_EXIT_S": "0.5"}},
    {"environ": {f"{FIELD}EXCLUDE": '["*.log", "d/"]'}},
    {"environ": {f"{FIELD}EXCLUDE": "[*.log, d/]"}},
    *({".env": f"A=/a\n{FIELD}CHECKPOINT_DIR={value}\n"} for value in (
        "$HOME/x", "${HOME}/x", '"${HOME}/x"', "'${HOME}/x'", "${A}/x", "${NOPE}/x", "/a#c", '"/a b" # c',
    )),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[" ".join(case) for case in CASES])
def test_both_read_the_same_values(case, tmp_path):
    for name in ("cwd", "home"):
        (tmp_path / name).mkdir()
    for name, text in case.items():
        if name != "environ":
            path = tmp_path / FILES[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    environ = {
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("protocol", "client")),
        **({"XDG_CONFIG_HOME": str(tmp_path / "xdg")} if "xdg" in case else {}),
        **case.get("environ", {}),
    }
    done = subprocess.run(
        [sys.executable, "-c", _BOTH], cwd=tmp_path / "cwd", env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ours, theirs = json.loads(done.stdout)
    assert theirs
    assert ours == theirs
