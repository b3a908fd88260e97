"""The document that this package implements, word for word, by users' programs in real processes.

Every program runs in a directory that is not the worktree and that holds files of the same names with other content.
"""

import os
import shlex
import threading
from pathlib import Path

import pytest

from fabricatio_checkpoint.errors import CheckpointError
from fabricatio_checkpoint.rust import prune_stores
from fabricatio_checkpoint.service import CheckpointService
from support.live import Place, snapshot

pytestmark = pytest.mark.e2e

BEFORE = "print('before')\n"


@pytest.fixture
def project(place: Place) -> Path:
    """The worktree of the examples, and a directory with the same names where the programs run."""
    for root in (place.ws, place.base):
        (root / "src").mkdir()
        (root / "src" / "main.py").write_text(BEFORE if root == place.ws else "the decoy\n")
        (root / "config.toml").write_text(BEFORE if root == place.ws else "the decoy\n")
    return place.ws


def example(place: Place, text: str, then: str = "") -> str:
    """Run an example with its path replaced; give what it prints."""
    code = (text + then).replace("/path/to/project", str(place.ws))
    done = place.python(code)
    assert done.code == 0, done.stderr
    assert done.stderr == ""
    assert (place.base / "src" / "main.py").read_text() == "the decoy\n"
    return done.out


SERVICE = """
from fabricatio_checkpoint.inited_service import get_checkpoint_service

svc = get_checkpoint_service()
store = svc.get_store("/path/to/project")
"""

STORE = """
store = svc.get_store("/path/to/project")
cid = store.save("snapshot before refactor")
store.rollback(cid, "src/main.py")
store.reset(cid)
print(store.get_file_diff(cid, "src/main.py"))
"""

MIXIN = """
from pathlib import Path
from fabricatio_checkpoint.capabilities.checkpoint import Checkpoint

class SomeLLMRole:
    pass

class MyAgent(Checkpoint, SomeLLMRole):
    worktree_dir = Path("/path/to/project")

agent = MyAgent().mount_checkpoint_store()
cid = agent.save_checkpoint("before editing")
agent.rollback(cid, "config.toml")
"""

PRUNE = """
from pathlib import Path
from fabricatio_checkpoint.rust import prune_stores
prune_stores(Path.home() / ".fabricatio-checkpoint")
"""


def test_the_service_and_store_examples(place: Place, project: Path):
    assert example(place, SERVICE + STORE) == "\n"
    assert len(place.stores()) == 1
    wreck = """
import os, shutil
os.mkdir("/path/to/project/new")
open("/path/to/project/src/main.py", "w").write("wreck\\n")
print(sorted(store.get_status()))
print(store.get_file_diff(cid, "src/main.py"))
store.rollback(cid, "src/main.py")
print(open("/path/to/project/src/main.py").read(), end="")
shutil.rmtree("/path/to/project/src")
store.reset(cid)
print(sorted(os.listdir("/path/to/project")))
print(store.head() == cid, store.commits()[0] == cid, store.workspace)
"""
    told = example(place, SERVICE + STORE + wreck)
    assert "['new', 'src/main.py']" in told
    assert f"-{BEFORE}+wreck\n" in told
    assert f"\n{BEFORE}['config.toml', 'src']\nTrue True {project}\n" in told


def test_the_mixin_example(place: Place, project: Path):
    then = """
open("/path/to/project/config.toml", "w").write("wreck\\n")
print(agent.get_file_diff(cid, "config.toml"))
agent.rollback(cid, "config.toml")
Path("/path/to/project/config.toml").unlink()
agent.reset_to_checkpoint(cid)
print(agent.access_checkpoint_store().workspace)
assert agent.unmount_checkpoint_store() is agent
try:
    agent.save_checkpoint("nowhere")
except RuntimeError as error:
    print("clear:", error)
"""
    told = example(place, MIXIN, then)
    assert "+wreck" in told
    assert f"{project}\nclear: MyAgent has no checkpoint store mounted" in told
    assert (project / "config.toml").read_text() == BEFORE


def test_the_mixin_uses_exactly_the_directory_given(place: Place, project: Path):
    place.save()
    code = MIXIN.replace('Path("/path/to/project")', 'Path("/path/to/project/src")').replace("config.toml", "main.py")
    example(place, code)
    assert len(place.stores()) == 2


def test_the_prune_example_deletes_exactly_the_dead(place: Place, project: Path):
    dead, away = place.home / "dead", place.home / "volume" / "away"
    for path in (dead, away):
        path.mkdir(parents=True)
        (path / "f").write_text("f\n")
        place.save(cwd=path)
    place.save()
    example(place, PRUNE)
    assert len(place.stores()) == 3
    for path in (dead, away):
        (path / "f").unlink()
        path.rmdir()
    # With its parent gone as well, nothing proves that it was deleted: a volume may be unmounted.
    away.parent.rmdir()
    example(place, PRUNE)
    assert [each["path"] for each in place.json("workspaces")["workspaces"]] == [str(away), str(project)]
    assert len(place.stores()) == 2
    assert place.json("ls")["checkpoints"][0]["seq"] == 1


def test_the_command_lines(place: Place, project: Path):
    def line(text: str) -> str:
        words = [word.replace("/path/to/project", str(project)) for word in shlex.split(text)]
        return place.done(*words, cwd=place.base).out

    cid = line('--workspace /path/to/project save "checkpoint message"').strip()
    assert len(cid) == 40
    (project / "src" / "main.py").write_text("wreck\n")
    assert "+wreck" in line("--workspace /path/to/project diff")
    assert "checkpoint message" in line("--workspace /path/to/project ls")
    line(f"--workspace /path/to/project reset {cid}")
    assert (project / "src" / "main.py").read_text() == BEFORE
    assert str(project) in line("workspaces")


# the classes, method by method


def test_every_method_of_the_store(place: Place, project: Path):
    svc = CheckpointService(stores_root=place.base / "own", cache_size=2)
    try:
        store = svc.get_store(str(project))
        assert store.workspace == project
        assert store.commits() == []
        with pytest.raises(RuntimeError, match="no checkpoint"):
            store.head()
        first = store.save()
        assert first == store.head() == store.save("nothing changed") == store.save(commit_msg=None)
        assert store.get_status() == []
        (project / "src" / "main.py").write_text("two\n")
        (project / "src" / "new").write_text("new\n")
        (project / "config.toml").unlink()
        assert store.get_status() == ["config.toml", "src/main.py", "src/new"]
        second = store.save("two")
        assert store.commits() == [first, second]
        diff = store.get_file_diff(first, "src/main.py")
        assert f"-{BEFORE}+two\n" in diff
        assert "new" not in diff
        store.rollback(first, "config.toml")
        assert store.get_status() == ["config.toml"]
        assert store.head() == second
        store.reset(first)
        assert (store.head(), store.get_status()) == (first, [])
        assert sorted(path.name for path in (project / "src").iterdir()) == ["main.py"]
        # Later checkpoints stay in the list, and stay good.
        assert [cid for cid in store.commits() if cid in (first, second)] == [first, second]
        store.reset(second)
        assert not (project / "config.toml").exists()
        assert (project / "src" / "new").read_text() == "new\n"
        assert place.stores() == []
        assert len(place.stores(place.base / "own")) == 1
    finally:
        svc.close()


def test_workspaces_and_pruning(place: Place, project: Path):
    svc = place.service(cache_size=1)
    gone, moved = place.home / "gone", place.home / "moved"
    for path in (gone, moved):
        path.mkdir()
        (path / "f").write_text("f\n")
        svc.get_store(path).save()
    svc.get_store(project).save()
    assert svc.workspaces() == [gone, moved, project]
    svc.prune_invalid()
    assert svc.workspaces() == [gone, moved, project]
    (gone / "f").unlink()
    gone.rmdir()
    assert prune_stores(place.checkpoint_dir) is None
    assert svc.workspaces() == [moved, project]
    (moved / "f").unlink()
    moved.rmdir()
    assert svc.prune_invalid() is None
    assert svc.workspaces() == [project]
    assert svc.get_store(project).commits() != []
    assert prune_stores(place.base / "there is nothing here") is None


def test_errors_are_runtime_errors_and_say_what_the_users_look_for(place: Place, project: Path):
    store = place.service().get_store(project)
    cid = store.save()
    (place.base / "other").write_text("not yours\n")
    before = snapshot(place.ws)
    for path in ("../other", place.base / "other", "/etc/passwd", "src/../../other"):
        for ask in (store.rollback, store.get_file_diff):
            with pytest.raises(RuntimeError, match="prefix not found"):
                ask(cid, path)
    for ask in (store.reset, lambda bad: store.rollback(bad, "config.toml"), lambda bad: store.cat(bad, "x")):
        for bad in ("0" * 40, "no such tag", "#77", "HEAD~5"):
            with pytest.raises(RuntimeError) as caught:
                ask(bad)
            assert isinstance(caught.value, CheckpointError), bad
            assert bad in str(caught.value)
    with pytest.raises(RuntimeError, match="not in checkpoint"):
        store.rollback(cid, "nope")
    with pytest.raises(RuntimeError, match="does not exist"):
        place.service().get_store(place.base / "nope")
    with pytest.raises(RuntimeError, match="not a directory"):
        place.service().get_store(project / "config.toml")
    assert snapshot(place.ws) == before


def test_an_id_of_another_worktree_is_unknown(place: Place, project: Path):
    other = place.home / "other"
    other.mkdir()
    (other / "x").write_text("x\n")
    svc = place.service()
    foreign = svc.get_store(other).save()
    store = svc.get_store(project)
    store.save()
    with pytest.raises(RuntimeError, match="no checkpoint"):
        store.reset(foreign)
    assert sorted(path.name for path in project.iterdir()) == ["config.toml", "src"]


def test_a_relative_path_is_the_worktrees_and_an_absolute_one_is_taken(place: Place, project: Path):
    code = (
        SERVICE
        + """
cid = store.save()
for path in ("src/main.py", "./src//main.py", "/path/to/project/src/main.py", b"src/main.py"):
    open("/path/to/project/src/main.py", "w").write("wreck\\n")
    store.rollback(cid, path)
    print(open("/path/to/project/src/main.py").read(), end="")
    print(len(store.get_file_diff(cid, path)))
"""
    )
    assert example(place, code) == f"{BEFORE}0\n" * 4


def test_threads_share_a_service(place: Place, project: Path):
    store = place.service().get_store(project)
    ids: list[str] = []
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            (project / f"by {number}").write_text(f"{number}\n")
            ids.append(store.save(f"by {number}"))
            assert store.head() in store.commits()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(ids) == 12
    assert set(ids) <= set(store.commits())
    assert store.get_status() == []


def test_a_forked_child_uses_the_same_service(place: Place, project: Path):
    code = (
        SERVICE
        + """
import os
first = store.save("parent")
children = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            open(f"/path/to/project/child {number}", "w").close()
            mine = store.save(f"child {number}")
            code = 0 if mine != first and mine in svc.get_store("/path/to/project").commits() else 2
        finally:
            os._exit(code)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children], store.head() in store.commits(), store.get_status())
"""
    )
    assert example(place, code) == "[0, 0, 0] True []\n"
    assert os.path.exists(project / "child 2")
