"""The ``Checkpoint`` capability in real pydantic models."""

import asyncio
import copy
import pickle
from abc import ABC
from pathlib import Path

import pytest

from fabricatio_checkpoint import launch
from fabricatio_checkpoint.capabilities.checkpoint import Checkpoint
from fabricatio_checkpoint.config import checkpoint_config
from fabricatio_checkpoint.errors import StateError
from fabricatio_checkpoint.inited_service import get_checkpoint_service
from support.fake_daemon import FakeDaemon

pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

BaseModel, ConfigDict, Field, ValidationError = (
    pydantic.BaseModel,
    pydantic.ConfigDict,
    pydantic.Field,
    pydantic.ValidationError,
)

ID = "a" * 40
SAVED = {"id": ID, "seq": 1, "created": True, "complete": True, "skipped": [], "excluded": [], "files": 1}


@pytest.fixture(autouse=True)
def daemon():
    checkpoint_config.reload()
    opened = {"store": "/s", "created": True, "head": None}
    with FakeDaemon(launch.socket_path(), worktree__open=opened, checkpoint__save=SAVED) as serving:
        yield serving
        get_checkpoint_service().close()


class Base(BaseModel, ABC):
    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str = "role"
    """The name."""


class Pickled(Checkpoint, Base):
    """At the module's top, where pickle finds it."""


def _workspace(agent):
    return agent.mount_checkpoint_store().access_checkpoint_store().workspace


@pytest.mark.parametrize("bases", [(Checkpoint, Base), (Base, Checkpoint)])
def test_every_way_to_say_which_directory(bases, tmp_path):
    class Plain(*bases):
        pass

    class Unannotated(*bases):
        worktree_dir = tmp_path

    class Annotated(*bases):
        worktree_dir: Path = tmp_path

    class Described(*bases):
        worktree_dir: Path = Field(default=tmp_path, description="where it works")

    class Required(*bases):
        worktree_dir: Path

    class Child(Unannotated):
        other: int = 3

    class Grandchild(Child):
        worktree_dir = tmp_path / "g"

    for cls in (Unannotated, Annotated, Described, Child):
        assert cls().worktree_dir == tmp_path
        assert _workspace(cls()) == tmp_path
        assert cls(worktree_dir=str(tmp_path / "x")).worktree_dir == tmp_path / "x"
        assert cls.model_fields["worktree_dir"].annotation is Path
    assert Grandchild().worktree_dir == tmp_path / "g"
    with pytest.raises(ValidationError, match="worktree_dir"):
        Required()
    assert Required(worktree_dir=tmp_path).worktree_dir == tmp_path
    with pytest.raises(ValidationError, match="worktree_dir"):
        Plain(worktree_dir=3)


def test_the_default_is_the_directory_in_which_the_role_is_made(tmp_path, monkeypatch):
    class Plain(Checkpoint, Base):
        pass

    class Capable(Checkpoint, ABC):
        pass

    class Below(Capable, Base):
        pass

    monkeypatch.chdir(tmp_path)
    made = [Plain(), Below()]
    assert [each.worktree_dir for each in made] == [tmp_path, tmp_path]
    monkeypatch.chdir("/")
    assert [_workspace(each) for each in made] == [tmp_path, tmp_path]


def test_an_attribute_of_another_type_is_refused_by_pydantic_as_ever(tmp_path):
    with pytest.raises(pydantic.errors.PydanticUserError, match="non-annotated attribute"):

        class Wrong(Checkpoint, Base):
            worktree_dir = tmp_path
            limit = 3


def test_a_mounted_store_is_no_field_and_no_part_of_what_is_compared_dumped_or_shown(tmp_path):
    class Agent(Checkpoint, Base):
        worktree_dir = tmp_path

    class Team(BaseModel):
        members: list[Agent | int]

    plain, agent = Agent(), Agent().mount_checkpoint_store()
    assert agent == plain
    assert repr(agent) == repr(plain)
    assert agent.model_dump() == {"name": "role", "worktree_dir": tmp_path}
    assert agent.model_dump_json() == plain.model_dump_json()
    assert Team(members=[agent]).model_dump() == {"members": [plain.model_dump()]}
    assert Agent.model_validate_json(agent.model_dump_json()) == agent
    assert "worktree_dir" in Agent.model_json_schema()["properties"]
    assert agent.unmount_checkpoint_store() is agent
    with pytest.raises(StateError, match="no checkpoint store mounted"):
        agent.save_checkpoint("x")


@pytest.mark.parametrize("options", [{"frozen": True}, {"extra": "forbid"}, {"validate_assignment": True}])
def test_strict_models_can_be_mounted(options, tmp_path):
    class Agent(Checkpoint, BaseModel):
        model_config = ConfigDict(**options)
        worktree_dir = tmp_path

    agent = Agent()
    assert agent.mount_checkpoint_store() is agent
    assert agent.save_checkpoint("x") == ID
    assert agent.unmount_checkpoint_store() is agent


def test_copies_and_pickles_keep_their_store(tmp_path):
    agent = Pickled(worktree_dir=tmp_path).mount_checkpoint_store()
    store = agent.access_checkpoint_store()
    for twin in (
        agent.model_copy(),
        agent.model_copy(deep=True),
        copy.copy(agent),
        copy.deepcopy(agent),
        pickle.loads(pickle.dumps(agent)),
    ):
        assert twin.access_checkpoint_store() is store


def test_awaitable_twins(daemon, tmp_path):
    class Agent(Checkpoint, Base):
        worktree_dir = tmp_path

    async def work():
        agent = await Agent().amount_checkpoint_store()
        return await agent.asave_checkpoint("from a loop")

    assert asyncio.run(work()) == ID
    assert daemon.params("checkpoint.save")[0]["message"] == "from a loop"
