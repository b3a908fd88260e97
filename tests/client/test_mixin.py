"""The ``Checkpoint`` capability on plain classes, and what it promises to pydantic."""

import copy
import inspect
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabricatio_checkpoint import launch
from fabricatio_checkpoint.capabilities.checkpoint import Checkpoint
from fabricatio_checkpoint.config import checkpoint_config
from fabricatio_checkpoint.errors import StateError
from fabricatio_checkpoint.inited_service import get_checkpoint_service
from fabricatio_checkpoint.store import CheckPointStore
from support.fake_daemon import FakeDaemon

ID = "a" * 40
RESTORED = {
    **{key: [] for key in ["written", "deleted", "kept", "conflicts", "edited"]},
    "target": ID,
    "safety": None,
    "head": ID,
    "digest": "d",
    "weak": False,
    "dry_run": False,
}


@pytest.fixture(autouse=True)
def daemon():
    checkpoint_config.reload()
    saved = {"id": ID, "seq": 1, "created": True, "complete": True, "skipped": [], "excluded": [], "files": 1}
    piece = {"data": {"b64": "LWEK"}, "offset": 0, "total_bytes": 3, "cursor": None}
    with FakeDaemon(
        launch.socket_path(),
        worktree__open={"store": "/s", "created": True, "head": None},
        checkpoint__save=saved,
        checkpoint__restore=RESTORED,
        checkpoint__diff=piece,
    ) as serving:
        yield serving
        get_checkpoint_service().close()


class Role:
    def __init__(self, name="role"):
        self.name = name


def test_every_method_reaches_the_store_of_the_class_attribute(daemon, tmp_path):
    class MyAgent(Checkpoint, Role):
        worktree_dir = tmp_path

    agent = MyAgent(name="x")
    assert agent.mount_checkpoint_store() is agent
    assert agent.name == "x"
    assert agent.save_checkpoint("before editing") == ID
    assert agent.rollback(ID, "config.toml").target == ID
    assert agent.reset_to_checkpoint(ID).target == ID
    assert agent.get_file_diff(ID, "config.toml") == "-a\n"
    store = agent.access_checkpoint_store()
    assert isinstance(store, CheckPointStore)
    assert store.workspace == tmp_path
    assert daemon.params("checkpoint.save")[0]["message"] == "before editing"
    assert [params.get("paths") for params in daemon.params("checkpoint.restore")] == [["config.toml"], None]


def test_the_constructor_takes_a_directory_and_the_default_is_the_current_one(tmp_path):
    class Plain(Checkpoint):
        pass

    (tmp_path / "given").mkdir()
    assert Plain(worktree_dir=tmp_path / "given").mount_checkpoint_store().access_checkpoint_store().workspace == (
        tmp_path / "given"
    )
    assert Plain(worktree_dir=str(tmp_path)).worktree_dir == tmp_path
    assert Plain().worktree_dir == Path.cwd()
    assert Plain().mount_checkpoint_store().access_checkpoint_store().workspace == Path.cwd()
    assert Checkpoint().mount_checkpoint_store().access_checkpoint_store().workspace == Path.cwd()
    with pytest.raises(TypeError, match="worktree_dir must be a path"):
        Plain(worktree_dir=3)
    with pytest.raises(TypeError):
        Plain(no_such_argument=1)


def test_a_default_is_inherited_and_not_overwritten(tmp_path):
    class Base(Checkpoint):
        worktree_dir = tmp_path

    class Child(Base):
        pass

    @dataclass
    class Data(Checkpoint):
        worktree_dir: Path = tmp_path

    @dataclass
    class Required(Checkpoint):
        worktree_dir: Path

    with pytest.raises(TypeError, match="worktree_dir"):
        Required()
    assert Child().worktree_dir == tmp_path
    assert Data(tmp_path / "x").worktree_dir == tmp_path / "x"
    assert Data().worktree_dir == tmp_path


def test_without_a_mounted_store_the_error_says_what_to_do(tmp_path):
    class MyAgent(Checkpoint, Role):
        worktree_dir = tmp_path

    agent = MyAgent()
    for call in (
        agent.access_checkpoint_store,
        agent.save_checkpoint,
        lambda: agent.rollback(ID, "a"),
        lambda: agent.reset_to_checkpoint(ID),
        lambda: agent.get_file_diff(ID, "a"),
    ):
        with pytest.raises(
            StateError, match=r"MyAgent has no checkpoint store mounted; call mount_checkpoint_store\(\)"
        ):
            call()


def test_mounting_a_given_store_unmounting_and_falling_back(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = (get_checkpoint_service().get_store(tmp_path / name) for name in "ab")
    agent = Checkpoint()
    assert agent.mount_checkpoint_store(first).access_checkpoint_store() is first
    assert agent.access_checkpoint_store(second) is first
    assert agent.unmount_checkpoint_store() is agent
    assert agent.unmount_checkpoint_store() is agent
    assert agent.access_checkpoint_store(second) is second
    assert agent.access_checkpoint_store() is second


def test_a_role_with_a_store_can_be_copied(tmp_path):
    agent = Checkpoint().mount_checkpoint_store()
    assert copy.deepcopy(agent).access_checkpoint_store() is agent.access_checkpoint_store()


def _model(name, bases, namespace):
    """Make a class by pydantic's rules, as far as they concern the mixin.

    Refuses attributes without annotation that are not of an ignored type, collects annotations of all bases as
    fields, warns nobody, and takes the defaults away from the class.
    """
    ignored = next(base.model_config["ignored_types"] for base in bases if hasattr(base, "model_config"))
    annotated = namespace.get("__annotations__", {})
    for key, value in namespace.items():
        assert key.startswith("__") or callable(value) or key in annotated or isinstance(value, ignored), key
    cls = type(name, bases, namespace)
    fields = {}
    for base in reversed(cls.__mro__):
        fields.update(dict.fromkeys(inspect.get_annotations(base)))
        fields.update(base.__dict__.get("__pydantic_fields__", {}))
    for field in fields:
        assert not any(hasattr(base, field) for base in bases), f"{field} shadows an attribute"
        if hasattr(cls, field):
            fields[field] = getattr(cls, field)
            delattr(cls, field)
    cls.__pydantic_fields__ = fields
    return cls


class Model:
    def __init__(self, **values):
        fields = type(self).__pydantic_fields__
        assert not set(values) - set(fields)
        self.__dict__.update({**fields, **values})

    def __setattr__(self, name, value):
        raise ValueError(f"no field {name}")


@pytest.mark.parametrize("order", [(Checkpoint, Model), (Model, Checkpoint)])
def test_a_class_made_by_the_rules_of_pydantic(order, tmp_path):
    default = _model("Default", order, {})
    plain_override = _model("PlainOverride", order, {"worktree_dir": tmp_path})
    annotated = _model("Annotated", order, {"worktree_dir": tmp_path, "__annotations__": {"worktree_dir": Path}})
    child = _model("Child", (plain_override,), {})
    grandchild = _model("Grandchild", (child,), {"worktree_dir": tmp_path / "g"})
    assert default.__pydantic_fields__ == {"worktree_dir": Path()}
    for cls in (plain_override, annotated, child):
        assert cls.__pydantic_fields__ == {"worktree_dir": tmp_path}
        assert cls().mount_checkpoint_store().access_checkpoint_store().workspace == tmp_path
    assert grandchild().worktree_dir == tmp_path / "g"
    (tmp_path / "given").mkdir()
    agent = child(worktree_dir=tmp_path / "given").mount_checkpoint_store()
    assert agent.access_checkpoint_store().workspace == tmp_path / "given"
    assert agent.unmount_checkpoint_store() is agent
