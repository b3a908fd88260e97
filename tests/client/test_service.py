"""The service: what it asks for, which object it gives, and its life across forks and processes."""

import copy
import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from ckpt_protocol.methods import METHODS
from fabricatio_checkpoint import launch
from fabricatio_checkpoint.config import checkpoint_config
from fabricatio_checkpoint.errors import InputError, InternalError
from fabricatio_checkpoint.inited_service import get_checkpoint_service, service_for
from fabricatio_checkpoint.rust import CheckPointStore, prune_stores
from fabricatio_checkpoint.service import CheckpointService
from support.fake_daemon import FakeDaemon, Refusal, stub_environment

OPENED = {"store": "/s/x", "created": True, "head": None}
PRUNED = {
    "pruned": [{"path": "/gone", "store": "/s/gone_1", "checkpoints": 3, "bytes": 10}],
    "unreachable": ["/mnt/away"],
    "dry_run": False,
}


@pytest.fixture
def daemon(short_dir):
    with FakeDaemon(str(short_dir / "d.sock"), worktree__open=OPENED, store__prune=PRUNED) as serving:
        yield serving
    # What was asked is what the protocol has, to the letter.
    for _, method, params in serving.asked:
        msgspec.convert(params, METHODS[method].params)


@pytest.fixture
def service(daemon, tmp_path):
    made = CheckpointService(tmp_path / "stores", socket=daemon.path)
    yield made
    made.close()


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def test_get_store_opens_once_and_gives_the_same_object(daemon, service, tree, tmp_path):
    os.symlink(tree, tmp_path / "alias")
    store = service.get_store(tree)
    assert service.get_store(str(tree)) is store
    assert service.get_store(os.fsencode(tmp_path / "alias")) is store
    assert isinstance(store, CheckPointStore)
    assert store.workspace == tree
    (asked,) = daemon.params("worktree.open")
    found = os.stat(tree)
    assert asked["worktree"] == {"path": str(tree), "dev": str(found.st_dev), "ino": str(found.st_ino)}
    assert asked["checkpoint_dir"] == str(tmp_path / "stores")
    assert re.fullmatch("[0-9a-f]{32}", asked["token"])
    assert asked["force"] is False


def test_relative_directories_start_at_the_process(daemon, tmp_path):
    (tmp_path / "tree").mkdir()
    program = (
        "import sys; from fabricatio_checkpoint.service import CheckpointService\n"
        "service = CheckpointService('stores', socket=sys.argv[1])\n"
        "print(service.stores_root, service.get_store('tree').workspace)"
    )
    environ = stub_environment(tmp_path)
    command = [sys.executable, "-c", program, daemon.path]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "stores"), str(tmp_path / "tree")]


def test_a_directory_that_was_replaced_is_opened_again(daemon, service, tree):
    store = service.get_store(tree)
    tree.rename(tree.with_name("old"))
    tree.mkdir()
    assert service.get_store(tree) is store
    assert len(daemon.params("worktree.open")) == 2


def test_a_directory_that_is_not_there_is_the_daemons_to_judge(daemon, service, tmp_path):
    daemon.answers["worktree.open"] = Refusal("not_a_directory", "no directory there")
    with pytest.raises(InputError, match="no directory there"):
        service.get_store(tmp_path / "none")
    assert daemon.params("worktree.open")[0]["worktree"] == {"path": str(tmp_path / "none"), "dev": None, "ino": None}


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_is_no_path_is_an_input_error(service, path):
    with pytest.raises(InputError):
        service.get_store(path)


def test_only_the_most_recently_used_stores_are_kept(daemon, tmp_path):
    service = CheckpointService(tmp_path / "stores", 2, socket=daemon.path)
    for name in "abc":
        (tmp_path / name).mkdir()
    a = service.get_store(tmp_path / "a")
    b = service.get_store(tmp_path / "b")
    assert service.get_store(tmp_path / "a") is a
    service.get_store(tmp_path / "c")
    assert service.get_store(tmp_path / "a") is a
    assert service.get_store(tmp_path / "b") is not b
    service.close()


def test_threads_get_the_same_store(service, tree):
    found = []
    threads = [threading.Thread(target=lambda: found.append(service.get_store(tree))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_workspaces_are_paths_whatever_their_names(daemon, service):
    names = ["/a/b", {"b64": "L3gv/w=="}]
    rows = [{"path": name, "store": "/s/1", "state": "ok", "checkpoints": 1, "bytes": 2} for name in names]
    daemon.answers["worktree.list"] = {"workspaces": rows, "damaged": []}
    assert service.workspaces() == [Path("/a/b"), Path(os.fsdecode(b"/x/\xff"))]
    assert [record.state for record in service.workspace_records()] == ["ok", "ok"]


def test_prune_invalid_says_nothing_and_prune_says_what(daemon, service, tree):
    service.get_store(tree)
    assert service.prune_invalid() is None
    service.get_store(tree)
    assert len(daemon.params("worktree.open")) == 2
    result = service.prune(dry_run=True)
    assert (result.pruned[0].path, result.pruned[0].checkpoints, result.unreachable) == ("/gone", 3, ("/mnt/away",))
    assert [params["dry_run"] for params in daemon.params("store.prune")] == [False, True]


def test_adopt_names_both_places(daemon, service, tree):
    service.get_store(tree)
    daemon.answers["worktree.adopt"] = lambda params: {
        "path": params["worktree"]["path"],
        "old": params["old"],
        "store": "/s/w",
        "checkpoints": 2,
        "sure": True,
        "dry_run": params["dry_run"],
    }
    plan = service.adopt(tree, "/before/it", dry_run=True)
    assert (plan.path, plan.old, plan.checkpoints, plan.sure, plan.dry_run) == (str(tree), "/before/it", 2, True, True)
    (params,) = daemon.params("worktree.adopt")
    assert (params["old"], params["force"], len(params["token"])) == ("/before/it", False, 32)
    service.get_store(tree)
    assert len(daemon.params("worktree.open")) == 2


def test_an_answer_that_is_not_as_agreed_is_an_internal_error(daemon, service):
    daemon.answers["worktree.list"] = {"workspaces": [{"path": 3}]}
    with pytest.raises(InternalError, match="not as agreed"):
        service.workspaces()


@pytest.mark.parametrize("size", [0, -1, "5", True, 1.5])
def test_a_cache_size_that_is_none_is_refused(size):
    with pytest.raises(InputError, match="cache_size"):
        CheckpointService("/s", size)


@pytest.fixture
def default_daemon():
    path = launch.socket_path()
    checkpoint_config.reload()
    with FakeDaemon(path, worktree__open=OPENED, store__prune=PRUNED) as serving:
        yield serving


def test_prune_stores_prunes_the_directory_it_is_given(default_daemon, tmp_path):
    assert prune_stores(tmp_path / "stores") is None
    assert prune_stores(str(tmp_path / "stores")) is None
    assert [params["checkpoint_dir"] for params in default_daemon.params("store.prune")] == [
        str(tmp_path / "stores")
    ] * 2


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_one_service_for_a_process_and_another_for_its_child(default_daemon, tree):
    service = get_checkpoint_service()
    assert get_checkpoint_service() is service
    assert service.stores_root == Path.home() / ".fabricatio-checkpoint"
    service.get_store(tree)
    child = os.fork()
    if child == 0:
        try:
            other = get_checkpoint_service()
            os._exit(0 if other is not service and other.get_store(tree).workspace == tree else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    service.close()


def test_stores_can_be_copied_and_pickled(default_daemon, tree, tmp_path):
    store = service_for(os.fsencode(tmp_path / "stores")).get_store(tree)
    assert copy.copy(store) is store
    assert copy.deepcopy({"store": store})["store"] is store
    assert pickle.loads(pickle.dumps(store)) is store
    service_for(os.fsencode(tmp_path / "stores")).close()
