"""What a restore leaves in the worktree, and what it does not touch."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptd.shadow.restore.batch import Batch, Tools
from ckptd.shadow.restore.crew import Crew
from ckptd.shadow.restore.exchange import Renamer
from ckptd.shadow.restore.look import Refused
from ckptd.shadow.restore.writer import BATCH_STEPS
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, LINK, REGULAR
from support.restoring import Contents, file, leftovers, link, restore, snapshot, steps_between
from support.same import differences

pytestmark = pytest.mark.core

FOLDER = State(DIRECTORY, b"")

# Trees that can turn into one another: few names, so that types change often.
NAMES = st.sampled_from(["a", "b", "c", "\udcff\n", "-é "])
FILES = st.tuples(st.sampled_from([b"", b"one", b"two\r\n", b"x" * 30]), st.sampled_from([0o644, 0o755, 0o600, 0o444]))
LINKS = st.sampled_from(["a", "../c", "/nowhere", "one"])


def folders(children):
    return st.tuples(st.dictionaries(NAMES, children, max_size=4), st.sampled_from([0o755, 0o700, 0o555]))


NODES = st.recursive(st.one_of(FILES, LINKS), folders, max_leaves=12)
TREES = st.dictionaries(NAMES, NODES, max_size=5)


def build(place: str, tree: dict) -> None:
    for name, node in tree.items():
        path = os.path.join(place, name)
        if isinstance(node, str):
            os.symlink(node, path)
            continue
        content, perm = node
        if isinstance(content, dict):
            os.mkdir(path)
            build(path, content)
        else:
            Path(path).write_bytes(content)
        os.chmod(path, perm)


def remove(place: str) -> None:
    for folder, directories, _ in os.walk(place):
        for name in directories:
            if not os.path.islink(os.path.join(folder, name)):
                os.chmod(os.path.join(folder, name), 0o700)
    shutil.rmtree(place)


def turns_into(one: dict, other: dict, renamer: Renamer | None = None, **how) -> None:
    place = tempfile.mkdtemp(prefix="ckw")
    try:
        here, there = os.path.join(place, "here"), os.path.join(place, "there")
        for root, tree in ((here, one), (there, other)):
            os.mkdir(root)
            build(root, tree)
        contents = Contents()
        steps = steps_between(snapshot(here, contents), snapshot(there, contents))
        outcome = restore(here, steps, contents, renamer=renamer, **how)
        assert (outcome.failed, outcome.kept) == ([], [])
        assert sorted(outcome.written + outcome.deleted) == [step.path for step in steps]
        assert list(differences(here, there)) == []
    finally:
        remove(place)


def no_flags(_fd: int, _source: bytes, _target: bytes, _flag: int) -> None:
    raise OSError(22, "Invalid argument")


def any_trees(examples: int):
    checked = settings(max_examples=examples, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    return lambda check: checked(given(TREES, TREES)(check))


@any_trees(100)
def test_any_tree_becomes_any_other(one, other):
    turns_into(one, other)


@any_trees(30)
def test_any_tree_becomes_any_other_without_exchange(one, other):
    turns_into(one, other, Renamer(no_flags))


@any_trees(60)
def test_any_tree_becomes_any_other_with_helpers(one, other):
    turns_into(one, other, crew=Crew(2, 0))


@any_trees(60)
def test_any_tree_becomes_any_other_where_room_is_short(one, other):
    turns_into(one, other, roomy=False)


def with_other_bits(tree: dict) -> dict:
    """A directory that is read-only before and after can't be written to; here it is another one after."""
    turned = {}
    for name, node in tree.items():
        folder = not isinstance(node, str) and isinstance(node[0], dict)
        turned[name] = (with_other_bits(node[0]), 0o550 if node[1] == 0o555 else node[1]) if folder else node
    return turned


@any_trees(60)
def check_any_tree_with_other_bits(one, other):
    turns_into(one, with_other_bits(other), None)


def as_nobody(code: str, place: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in a child that has given up root, with everything imported before.

    The modules may lie where root alone can read; ``before`` runs first and as root, to load what is loaded late.
    """
    if os.getuid() == 0:
        os.chown(place, 65534, 65534)
    drop = "import os\nif os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    here = os.path.dirname(__file__)
    program = f"import sys; sys.path[:0] = {[here, *sys.path]!r}\nimport test_writer as t\n{before}\n{drop}{code}"
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(place), "HOME": str(place)}
    return subprocess.run(
        [sys.executable, "-c", program], env=environ, cwd=place, capture_output=True, text=True, check=False
    )


@pytest.fixture
def open_place():
    # The directories that pytest makes belong to root alone.
    with tempfile.TemporaryDirectory(prefix="ckw") as place:
        yield Path(place)


def test_any_tree_becomes_any_other_for_a_user_who_is_not_root(open_place: Path):
    check = "t.check_any_tree_with_other_bits()"
    # Whoever is not root may not get into what holds the directory for temporary files: it is looked for anew.
    done = as_nobody(f"t.tempfile.tempdir = None\n{check}", open_place, before=check)
    assert done.returncode == 0, done.stderr


def test_nothing_to_do_touches_nothing(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"x")
    before = os.stat(tmp_path)
    outcome = restore(str(tmp_path), [], Contents())
    assert outcome == ([], [], [], [], False)
    assert os.stat(tmp_path) == before


def test_only_the_paths_of_the_steps_are_touched(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
    before = os.lstat(tmp_path / "b")
    outcome = restore(str(tmp_path), [Step(b"a", file(b"old"), file(b"new"))], Contents(b"new"))
    assert outcome.written == [b"a"]
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.lstat(tmp_path / "b") == before


def mode_after(tmp_path: Path, now: int, before: State, after: State, umask: int = 0o022) -> int:
    target = tmp_path / "f"
    target.write_bytes(b"old")
    target.chmod(now)
    outcome = restore(str(tmp_path), [Step(b"f", before, after)], Contents(b"old", b"new"), umask=umask)
    assert outcome.failed == []
    return stat.S_IMODE(target.stat().st_mode)


@pytest.mark.parametrize(
    ("now", "after", "wanted"),
    [
        # no record: the bits on disk stay
        (0o644, file(b"new"), 0o644),
        (0o600, file(b"new"), 0o600),
        (0o664, file(b"new"), 0o664),
        (0o400, file(b"new"), 0o400),
        # the execute bits follow the target, and go no further than reading does
        (0o644, file(b"new", executable=True), 0o755),
        (0o600, file(b"new", executable=True), 0o700),
        (0o640, file(b"new", executable=True), 0o750),
        (0o755, file(b"new"), 0o644),
        (0o711, file(b"new"), 0o600),
        # a record decides, set-id bits included
        (0o600, file(b"new", 0o644), 0o644),
        (0o644, file(b"new", 0o600), 0o600),
        (0o644, file(b"new", 0o4755, executable=True), 0o4755),
        (0o4755, file(b"new", executable=True), 0o755),
        # the same content with other bits
        (0o644, file(b"old", executable=True), 0o755),
        (0o600, file(b"old", executable=True), 0o700),
        (0o644, file(b"old", 0o600), 0o600),
        (0o600, file(b"old", 0o644), 0o644),
        (0o600, file(b"old"), 0o600),
    ],
)
def test_permissions(tmp_path: Path, now: int, after: State, wanted: int):
    before = file(b"old", now, executable=bool(now & 0o100))
    assert mode_after(tmp_path, now, before, after) == wanted


@pytest.mark.parametrize(
    ("umask", "executable", "wanted"), [(0o022, False, 0o644), (0o077, False, 0o600), (0o002, True, 0o755)]
)
def test_new_files_get_the_clients_umask(tmp_path: Path, umask: int, executable: bool, wanted: int):
    steps = [Step(b"d", None, FOLDER), Step(b"d/f", None, file(b"new", executable=executable))]
    restore(str(tmp_path), steps, Contents(b"new"), umask=umask)
    assert stat.S_IMODE((tmp_path / "d/f").stat().st_mode) == wanted
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o755 & ~umask


def test_the_set_group_bit_that_a_directory_inherits_stays(tmp_path: Path):
    tmp_path.chmod(0o2755)
    restore(str(tmp_path), [Step(b"d", None, FOLDER), Step(b"e", None, State(DIRECTORY, b"", 0o700))], Contents())
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o2755
    assert stat.S_IMODE((tmp_path / "e").stat().st_mode) == 0o700


def test_a_file_is_private_until_it_is_whole_and_in_its_final_mode_then(tmp_path: Path):
    seen = []

    class Watching(Contents):
        def chunks(self, oid):
            for chunk in super().chunks(oid):
                seen.extend(stat.S_IMODE((tmp_path / name).stat().st_mode) for name in os.listdir(tmp_path))
                yield chunk

    def at(name, _path):
        if name == "staged":
            seen.extend(-stat.S_IMODE((tmp_path / name).stat().st_mode) for name in os.listdir(tmp_path))

    restore(str(tmp_path), [Step(b"f", None, file(b"new" * 9, 0o640))], Watching(b"new" * 9), hooks=at)
    assert set(seen) == {0o600, -0o640}


def test_hard_links_are_broken_on_purpose(tmp_path: Path):
    for name in ("written", "moded", "deleted"):
        (tmp_path / name).write_bytes(b"old")
        os.link(tmp_path / name, tmp_path / f"{name}2")
    steps = [
        Step(b"written", file(b"old"), file(b"new")),
        Step(b"moded", file(b"old"), file(b"old", executable=True)),
        Step(b"deleted", file(b"old"), None),
    ]
    outcome = restore(str(tmp_path), steps, Contents(b"old", b"new"))
    assert outcome.failed == []
    for name in ("written", "moded", "deleted"):
        assert (tmp_path / f"{name}2").read_bytes() == b"old"
        assert stat.S_IMODE((tmp_path / f"{name}2").stat().st_mode) == 0o644
    assert (tmp_path / "written").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "moded").stat().st_mode) == 0o755


def test_a_mode_change_keeps_the_inode(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"old")
    before = (tmp_path / "f").stat()
    restore(str(tmp_path), [Step(b"f", file(b"old"), file(b"old", executable=True))], Contents(b"old"))
    after = (tmp_path / "f").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_becomes_a_link_whose_target_is_its_text(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "l").symlink_to("x")
    contents = Contents(b"x")
    outcome = restore(str(tmp_path), [Step(b"f", file(b"x"), link(b"x")), Step(b"l", link(b"x"), file(b"x"))], contents)
    assert outcome.failed == []
    assert os.readlink(tmp_path / "f") == "x"
    assert (tmp_path / "l").read_bytes() == b"x"
    assert not (tmp_path / "l").is_symlink()


def test_missing_files_are_no_obstacle(tmp_path: Path):
    steps = [
        Step(b"written", file(b"old"), file(b"new")),
        Step(b"deleted", file(b"old"), None),
        Step(b"gone/deleted", file(b"old"), None),
        Step(b"gone", FOLDER, None),
    ]
    outcome = restore(str(tmp_path), steps, Contents(b"new"))
    assert outcome == ([b"written"], [b"deleted", b"gone/deleted", b"gone"], [], [], False)
    assert (tmp_path / "written").read_bytes() == b"new"


def test_a_directory_that_is_there_already_is_fine_and_gets_its_bits(tmp_path: Path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/mine").write_bytes(b"")
    outcome = restore(str(tmp_path), [Step(b"d", None, State(DIRECTORY, b"", 0o700))], Contents())
    assert outcome.written == [b"d"]
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert (tmp_path / "d/mine").exists()


def test_directories_that_are_not_empty_stay(tmp_path: Path):
    for name in ("goes", "turns"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ignored").write_bytes(b"precious")
    steps = [Step(b"goes", FOLDER, None), Step(b"turns", FOLDER, file(b"new"))]
    outcome = restore(str(tmp_path), steps, Contents(b"new"))
    assert outcome.kept == [b"goes"]
    assert [(failed.path, failed.reason) for failed in outcome.failed] == [(b"turns", "not_empty")]
    assert {path.read_bytes() for path in tmp_path.glob("*/ignored")} == {b"precious"}


@pytest.mark.parametrize(
    "path", [b"", b"/etc/x", b"..", b"../x", b"a/../x", b"a//b", b"a/", b".", b".git/config", b"a/.GIT", b"a\0b"]
)
def test_names_that_no_tree_may_hold_are_refused(tmp_path: Path, path: bytes):
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / ".git").mkdir()
    outcome = restore(str(root), [Step(path, None, file(b"new"))], Contents(b"new"))
    assert outcome == ([], [], [(path, "bad_name", None)], [], False)
    assert sorted(os.listdir(root)) == [".git", "a"]
    assert os.listdir(tmp_path) == ["root"]
    assert os.listdir(root / "a") == os.listdir(root / ".git") == []


@pytest.mark.parametrize("path", [b"l/sentinel", b"l/new", b"l/d/sentinel"])
@pytest.mark.parametrize("absolute", [True, False])
def test_nothing_is_written_or_deleted_through_a_link(tmp_path: Path, path: bytes, absolute: bool):
    outside, root = tmp_path / "outside", tmp_path / "root"
    (outside / "d").mkdir(parents=True)
    root.mkdir()
    (outside / "sentinel").write_bytes(b"old")
    (outside / "d/sentinel").write_bytes(b"old")
    (root / "l").symlink_to(outside if absolute else "../outside")
    before = snapshot(str(outside), Contents())
    for after in (file(b"new"), None, link(b"new"), FOLDER):
        expected = file(b"old") if path.endswith(b"sentinel") else None
        if after is expected:
            continue
        outcome = restore(str(root), [Step(path, expected, after)], Contents(b"new"))
        assert [failed.reason for failed in outcome.failed] == ["beyond_symlink"]
    assert snapshot(str(outside), Contents()) == before


def test_a_damaged_store_fails_one_step_and_leaves_its_file(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
    steps = [Step(b"a", file(b"old"), file(b"lost")), Step(b"b", file(b"old"), file(b"new"))]
    outcome = restore(str(tmp_path), [*steps, Step(b"c", None, file(b"lost"))], Contents(b"new"))
    assert [(failed.path, failed.reason) for failed in outcome.failed] == [
        (b"a", "object_missing"),
        (b"c", "object_missing"),
    ]
    assert outcome.written == [b"b"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.parametrize("target", [b"", b"a\0b", b"x" * 70_000, b"x" * 5000])
def test_link_targets_that_no_link_can_have(tmp_path: Path, target: bytes):
    outcome = restore(str(tmp_path), [Step(b"l", None, link(target))], Contents(target))
    assert [failed.reason for failed in outcome.failed] in (["bad_link"], ["bad_name"])
    assert os.listdir(tmp_path) == []


def test_more_steps_than_a_batch_holds(tmp_path: Path):
    count = 2 * BATCH_STEPS + 3
    many = [b"%d" % number for number in range(count)]
    contents = Contents(*many)
    highest = 0

    def at(name, _path):
        nonlocal highest
        if name == "before-verify":
            highest = max(highest, sum(entry.startswith(".ckpt-") for entry in os.listdir(tmp_path)))

    outcome = restore(str(tmp_path), [Step(name, None, file(name)) for name in many], contents, hooks=at)
    assert len(outcome.written) == count
    outcome = restore(
        str(tmp_path),
        [Step(name, file(name), file(b"x")) for name in many],
        Contents(b"x"),
        hooks=at,
    )
    assert len(outcome.written) == count
    assert highest == BATCH_STEPS
    outcome = restore(str(tmp_path), [Step(name, file(b"x"), None) for name in many], Contents(), hooks=at)
    assert len(outcome.deleted) == count
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("roomy", [True, False])
def test_what_only_goes_does_so_before_anything_comes(tmp_path: Path, roomy: bool):
    """Everywhere where room is short, else in its directory: in one go, unless a directory is to be made there."""
    for name in ("d", "e", "large"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gone").write_bytes(b"old")
    many = [b"large/%d" % number for number in range(BATCH_STEPS)]
    steps = [Step(b"%s/gone" % folder, file(b"old"), None) for folder in (b"d", b"e", b"large")]
    steps += [Step(path, None, file(b"new")) for path in (b"d/Gone", b"d/z", b"e/Gone", *many)]
    steps.append(Step(b"e/GONE", None, FOLDER))
    done: list[str] = []

    def at(point: str, path: bytes) -> None:
        if point in ("opened", "aside", "created", "mkdir") and not path.startswith(b"large/"):
            done.append(f"{point} {os.fsdecode(path)}")

    assert restore(str(tmp_path), sorted(steps), Contents(b"old", b"new"), hooks=at, roomy=roomy).failed == []
    before = ["opened e", "aside e/gone", "opened large"]
    after = ["opened d", "created d/Gone", "created d/z", "opened e", "created e/Gone", "opened large"]
    if roomy:
        after.insert(1, "aside d/gone")
    else:
        before[:0] = ["opened d", "aside d/gone"]
    assert done == [*before, "opened e", "mkdir e/GONE", *after]


class Meeting:
    """Whoever comes first waits until another thread has come, too."""

    def __init__(self) -> None:
        self._arriving = threading.Lock()
        self._first = 0
        self._met = threading.Event()

    def come(self) -> None:
        with self._arriving:
            is_first = not self._first
            self._first = self._first or threading.get_ident()
        if is_first:
            assert self._met.wait(60)
        elif self._first != threading.get_ident():
            self._met.set()


def test_many_steps_are_done_in_several_directories_at_a_time(tmp_path: Path):
    """By threads, in any order but for directories, which go when they are empty; each is told of once."""
    count = 150
    folder = State(DIRECTORY, b"", 0o755)
    for number in range(count):
        (tmp_path / f"d{number % 7}" / f"e{number}").mkdir(parents=True)
        (tmp_path / f"d{number % 7}" / f"e{number}" / "f").write_bytes(b"old")
        (tmp_path / f"f{number}").write_bytes(b"old")
        (tmp_path / f"k{number % 7}").mkdir(exist_ok=True)
        (tmp_path / f"k{number % 7}" / f"f{number}").write_bytes(b"old")
    contents = Contents(b"old", b"new")
    before = snapshot(str(tmp_path), contents)
    after = {b"f%d" % number: file(b"new", 0o644) for number in range(count)}
    for number in range(count):
        changed, new = b"k%d" % (number % 7), b"n%d" % (number % 7)
        after |= {changed: folder, changed + b"/f%d" % number: file(b"new", 0o644)}
        after |= {new: folder, new + b"/n%d" % number: folder, new + b"/n%d/f" % number: file(b"new", 0o644)}
    told: list[int] = []
    points = ("opened", "staged", "created", "exchanged", "aside", "mkdir", "verified", "unlinked")
    meetings = {point: Meeting() for point in points}
    steps = steps_between(before, after)
    outcome = restore(
        str(tmp_path),
        steps,
        contents,
        progress=lambda done, _bytes: told.append(done),
        # In the worktree's own directory there may be nobody to meet.
        hooks=lambda point, path: meetings[point].come() if point in meetings and b"/" in path else None,
        crew=Crew(2, 0),
    )
    assert (outcome.failed, outcome.kept) == ([], [])
    assert snapshot(str(tmp_path), contents) == after
    assert told == list(range(1, len(steps) + 1))


def test_paths_longer_than_the_system_takes_as_one(tmp_path: Path):
    name = b"d" * 200
    paths = [b"/".join([name] * depth) for depth in range(1, 31)]
    steps = [Step(path, None, FOLDER) for path in paths]
    steps.append(Step(paths[-1] + b"/f", None, file(b"new")))
    assert restore(str(tmp_path), steps, Contents(b"new")).failed == []
    turned = [Step(step.path, step.after, None) for step in steps]
    assert restore(str(tmp_path), turned, Contents()).failed == []
    assert os.listdir(tmp_path) == []


def test_names_of_full_length(tmp_path: Path):
    name = b"n" * 255
    assert restore(str(tmp_path), [Step(name, None, file(b"old"))], Contents(b"old")).failed == []
    assert restore(str(tmp_path), [Step(name, file(b"old"), file(b"new"))], Contents(b"new")).failed == []
    assert (tmp_path / ("n" * 255)).read_bytes() == b"new"
    outcome = restore(str(tmp_path), [Step(name + b"n", None, file(b"new"))], Contents(b"new"))
    assert [failed.reason for failed in outcome.failed] == ["bad_name"]
    assert leftovers(str(tmp_path)) == []


def test_called_off_between_files(tmp_path: Path):
    asked = iter([False, True, True])
    steps = [Step(name, None, file(b"new")) for name in (b"a", b"b", b"c")]
    outcome = restore(str(tmp_path), steps, Contents(b"new"), cancelled=lambda: next(asked))
    assert outcome.written == [b"a"]
    assert [(failed.path, failed.reason) for failed in outcome.failed] == [(b"b", "cancelled"), (b"c", "cancelled")]
    assert os.listdir(tmp_path) == ["a"]


def test_without_exchange_the_answer_is_weak(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"old")
    steps = [Step(b"f", file(b"old"), file(b"new")), Step(b"g", None, file(b"new"))]
    outcome = restore(str(tmp_path), steps[1:], Contents(b"new"), renamer=Renamer(no_flags))
    assert not outcome.weak
    outcome = restore(str(tmp_path), steps[:1], Contents(b"new"), renamer=Renamer(no_flags))
    assert (outcome.written, outcome.weak) == ([b"f"], True)
    assert sorted(os.listdir(tmp_path)) == ["f", "g"]


def test_a_crew_hears_of_each_call_that_may_take_long(tmp_path: Path):
    for name in ("changed", "gone"):
        (tmp_path / name).write_bytes(b"old")
    steps = [
        Step(b"changed", file(b"old"), file(b"new")),
        Step(b"come", None, file(b"new")),
        Step(b"gone", file(b"old"), None),
        Step(b"link", None, link(b"new")),
    ]
    crew = Crew(0)
    restore(str(tmp_path), steps, Contents(b"new"), crew=crew)
    assert {kind: len(calls) for kind, calls in crew._calls_s.items()} == {"create": 2, "unlink": 2}


def test_what_was_just_written_is_not_deleted_under_another_name(tmp_path: Path):
    """As on a file system that folds names: ``A`` is to go, but stands for the new ``a``. A second link acts as one."""
    fd = os.open(tmp_path, os.O_RDONLY)
    tools = Tools(Contents(b"new"), 0o022, Renamer(), lambda _name, _path: None, lambda _kind, _took_s: None)
    batch = Batch(tools, fd, os.fstat(fd).st_dev, b"")
    try:
        batch.write(b"a", None, file(b"new"))
        os.link(tmp_path / "a", tmp_path / "A")
        with pytest.raises(Refused) as caught:
            batch.delete(b"A", file(b"new"))
        assert caught.value.reason == "case_fold"
        batch.make_directory(b"d", None)
        with pytest.raises(Refused, match="case_fold"):
            batch.remove_directory(b"d")
    finally:
        os.close(fd)
    assert sorted(os.listdir(tmp_path)) == ["A", "a", "d"]


READ_ONLY = """
from pathlib import Path
t.Path("locked").mkdir(); t.Path("open").mkdir()
for name in ("locked/a", "locked/b", "open/a"):
    t.Path(name).write_bytes(b"old")
t.Path("open/a").chmod(0o400)
t.Path("locked").chmod(0o555)
steps = [t.Step(b"locked/a", t.file(b"old"), t.file(b"new")), t.Step(b"locked/b", t.file(b"old"), None),
         t.Step(b"locked/c", None, t.file(b"new")), t.Step(b"locked/d", None, t.FOLDER),
         t.Step(b"open/a", t.file(b"old"), t.file(b"new"))]
outcome = t.restore(".", steps, t.Contents(b"new"))
assert outcome.written == [b"open/a"], outcome
assert {failed.reason for failed in outcome.failed} == {"permission_denied"}, outcome
assert len(outcome.failed) == 4
assert sorted(os.listdir("locked")) == ["a", "b"] and os.listdir("open") == ["a"]
assert t.Path("locked/a").read_bytes() == b"old"
assert t.Path("open/a").read_bytes() == b"new" and os.stat("open/a").st_mode & 0o777 == 0o400
"""

UNREADABLE = """
t.Path("a").write_bytes(b"old"); t.Path("b").write_bytes(b"old")
t.Path("a").chmod(0o200); t.Path("b").chmod(0)
steps = [t.Step(b"a", t.file(b"old"), t.file(b"new")), t.Step(b"b", t.file(b"old"), None)]
outcome = t.restore(".", steps, t.Contents(b"new"))
assert [failed.reason for failed in outcome.failed] == ["unreadable", "unreadable"], outcome
t.Path("a").chmod(0o600); t.Path("b").chmod(0o600)
assert t.Path("a").read_bytes() == t.Path("b").read_bytes() == b"old"
assert sorted(os.listdir(".")) == ["a", "b"]
"""

LOCKED_TREE = """
import stat
t.Path("d/e").mkdir(parents=True)
t.Path("d/e/f").write_bytes(b"old"); t.Path("d/ignored").write_bytes(b"precious")
t.Path("d/e").chmod(0o555); t.Path("d").chmod(0o555)
locked = t.State(t.DIRECTORY, b"", 0o555)
steps = [t.Step(b"d", locked, None), t.Step(b"d/e", locked, None), t.Step(b"d/e/f", t.file(b"old"), None)]
outcome = t.restore(".", steps, t.Contents())
assert (outcome.deleted, outcome.kept, outcome.failed) == ([b"d/e", b"d/e/f"], [b"d"], []), outcome
assert os.listdir("d") == ["ignored"]
assert stat.S_IMODE(os.stat("d").st_mode) == 0o555, "a directory that stays is as it was"
t.Path("d").chmod(0o755)
"""


CLOSED_TREE = """
import stat
steps = [t.Step(b"d", None, t.State(t.DIRECTORY, b"", 0o400)), t.Step(b"d/e", None, t.State(t.DIRECTORY, b"", 0o000)),
         t.Step(b"d/e/f", None, t.file(b"new"))]
outcome = t.restore(".", steps, t.Contents(b"new"))
assert outcome.failed == [], outcome
assert stat.S_IMODE(os.stat("d").st_mode) == 0o400
turned = [t.Step(step.path, step.after, None) for step in steps]
outcome = t.restore(".", turned, t.Contents())
assert outcome.failed == outcome.kept == [], outcome
assert os.listdir(".") == []
"""


@pytest.mark.parametrize(
    "code",
    [READ_ONLY, UNREADABLE, LOCKED_TREE, CLOSED_TREE],
    ids=["read-only", "unreadable", "locked tree", "closed tree"],
)
def test_as_a_user_with_few_permissions(open_place: Path, code: str):
    done = as_nobody(code, open_place)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def small_disk(tmp_path: Path):
    place = tmp_path / "small"
    place.mkdir()
    options = "size=256k,nr_inodes=40"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], capture_output=True).returncode:
        pytest.skip("mounting needs root and a tmpfs")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_leaves_old_or_new_content_in_full(small_disk: Path):
    old, new = b"o" * 60_000, b"n" * 60_000
    names = [b"a", b"b", b"c"]
    for name in names:
        (small_disk / os.fsdecode(name)).write_bytes(old)
    steps = [Step(name, file(old), file(new)) for name in names] + [Step(b"small", None, file(b"s"))]
    outcome = restore(str(small_disk), steps, Contents(new, b"s"))
    assert outcome.written == [b"a", b"small"]
    assert [(failed.path, failed.reason) for failed in outcome.failed] == [(b"b", "no_space"), (b"c", "no_space")]
    assert [(small_disk / os.fsdecode(name)).read_bytes() for name in names] == [new, old, old]
    assert len(os.listdir(small_disk)) == 4


def test_other_mounts_are_not_entered(tmp_path: Path, small_disk: Path):
    (small_disk / "f").write_bytes(b"old")
    steps = [
        Step(b"small/f", file(b"old"), file(b"new")),
        Step(b"small/g", None, file(b"new")),
        Step(b"small", FOLDER, file(b"new")),
    ]
    outcome = restore(str(tmp_path), steps, Contents(b"new"))
    assert [failed.reason for failed in outcome.failed] == ["other_mount"] * 3
    assert os.listdir(small_disk) == ["f"]
    assert (small_disk / "f").read_bytes() == b"old"


assert {REGULAR, EXECUTABLE, LINK}  # the children that are run as another user find these here
