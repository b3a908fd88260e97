"""Other programs at work while a restore writes: whatever they do at whichever point, nothing of theirs is lost."""

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptd.shadow.restore.crew import Crew
from ckptd.shadow.restore.exchange import EXCHANGE, Renamer, native_rename
from ckptd.shadow.restore.writer import Outcome
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.tree import DIRECTORY
from support.restoring import Contents, file, leftovers, restore

pytestmark = pytest.mark.core

FOLDER = State(DIRECTORY, b"")
OLD, NEW, MINE = b"old content", b"new content", b"mine, in no checkpoint"

WRITE = Step(b"d/f", file(OLD), file(NEW))
DELETE = Step(b"d/f", file(OLD), None)
CREATE = Step(b"d/n", None, file(NEW))
CHMOD = Step(b"d/f", file(OLD, 0o644), file(OLD, 0o600))


class World:
    """A worktree ``root`` with ``d/f``, a place outside, and something that happens once at a point of a restore."""

    def __init__(self, place: Path) -> None:
        self.root = place / "root"
        self.outside = place / "outside"
        self.directory = self.root / "d"
        self.file = self.directory / "f"
        self.directory.mkdir(parents=True)
        self.file.write_bytes(OLD)
        self.outside.mkdir()
        for name in ("f", "n"):
            (self.outside / name).write_bytes(b"sentinel")
        self.happened = 0

    def restore(
        self, step: Step, point: str, act: Callable[["World"], object], *, times: int = 1, plain: bool = False
    ) -> Outcome:
        def at(name: str, _path: bytes) -> None:
            if name == point and self.happened < times:
                self.happened += 1
                act(self)

        renamer = Renamer(no_flags) if plain else None
        outcome = restore(str(self.root), [step], Contents(OLD, NEW), hooks=at, renamer=renamer)
        assert self.happened == times, f"{point} was never reached"
        self.check_outside()
        return outcome

    def check_outside(self) -> None:
        assert {path.name: path.read_bytes() for path in self.outside.iterdir()} == {"f": b"sentinel", "n": b"sentinel"}
        assert leftovers(str(self.root)) == []

    def all_files(self) -> list[bytes]:
        """Every content anywhere in the worktree."""
        found = (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        return sorted(path.read_bytes() for path in found)


def no_flags(_fd: int, _source: bytes, _target: bytes, _flag: int) -> None:
    raise OSError(22, "Invalid argument")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def reasons(outcome: Outcome) -> list[str]:
    return [failed.reason for failed in outcome.failed]


# What may come to stand at d/f.


def overwrite(world: World) -> None:
    world.file.write_bytes(MINE)


def save_as_editors_do(world: World) -> None:
    (world.directory / "f~").write_bytes(MINE)
    (world.directory / "f~").rename(world.file)


def append(world: World) -> None:
    with world.file.open("ab") as opened:
        opened.write(MINE)


def make_executable(world: World) -> None:
    world.file.chmod(0o755)


def swap_for(make: Callable[[World], object]) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.file.unlink()
        make(world)

    return act


def bind_socket(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(world.file))


CHANGES = {
    "overwritten": overwrite,
    "saved": save_as_editors_do,
    "appended": append,
    "executable": make_executable,
    "fifo": swap_for(lambda world: os.mkfifo(world.file)),
    "socket": swap_for(bind_socket),
    "link outside": swap_for(lambda world: world.file.symlink_to("../../outside/f")),
    "dangling link": swap_for(lambda world: world.file.symlink_to("nowhere")),
    "directory": swap_for(lambda world: (world.file / "sub").mkdir(parents=True)),
    "empty directory": swap_for(lambda world: world.file.mkdir()),
}
if os.getuid() == 0:
    CHANGES["device"] = swap_for(lambda world: os.mknod(world.file, stat.S_IFCHR | 0o600, os.makedev(1, 3)))


SPECIAL = {"fifo", "socket", "device"}


def looks(path: Path) -> tuple[object, ...]:
    found = os.lstat(path)
    content: object = None
    if stat.S_ISREG(found.st_mode):
        content = path.read_bytes()
    elif stat.S_ISLNK(found.st_mode):
        content = os.readlink(path)
    elif stat.S_ISDIR(found.st_mode):
        content = sorted(os.listdir(path))
    return (found.st_ino, found.st_mode, content)


def acting(change: Callable[[World], None], seen: list[object]) -> Callable[[World], None]:
    def act(world: World) -> None:
        change(world)
        seen.append(looks(world.file))

    return act


BEFORE_THE_MOVE = [
    (WRITE, "opened"),
    (WRITE, "staged"),
    (WRITE, "before-exchange"),
    (DELETE, "opened"),
    (DELETE, "before-aside"),
]


@pytest.mark.parametrize("plain", [False, True], ids=["exchange", "plain"])
@pytest.mark.parametrize(("step", "point"), BEFORE_THE_MOVE, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_since_the_plan_stays_as_it_is(world: World, change: str, step: Step, point: str, plain: bool):
    seen: list[object] = []
    outcome = world.restore(step, point, acting(CHANGES[change], seen), plain=plain)
    assert reasons(outcome) == ["special" if change in SPECIAL else "changed"]
    assert seen == [looks(world.file)]
    assert os.listdir(world.directory) == ["f"]


@pytest.mark.parametrize("change", CHANGES)
def test_without_exchange_it_is_looked_at_again_right_before_the_rename(world: World, change: str):
    seen: list[object] = []
    outcome = world.restore(WRITE, "before-rename", acting(CHANGES[change], seen), plain=True)
    assert reasons(outcome) == ["changed"]
    assert seen == [looks(world.file)]
    assert os.listdir(world.directory) == ["f"]


@pytest.mark.parametrize("step", [WRITE, DELETE], ids=["write", "delete"])
@pytest.mark.parametrize("change", ["fifo", "directory"])
def test_what_is_plainly_something_else_is_not_even_moved(world: World, change: str, step: Step):
    reached = []

    def at(name: str, _path: bytes) -> None:
        if name == "opened":
            CHANGES[change](world)
        reached.append(name)

    outcome = restore(str(world.root), [step], Contents(OLD, NEW), hooks=at)
    assert len(outcome.failed) == 1
    assert reached == ["opened", "before-verify", "verified"]


@pytest.mark.parametrize("change", ["overwritten", "fifo", "link outside", "directory"])
def test_a_mode_change_of_what_changed_is_not_made(world: World, change: str):
    seen: list[object] = []
    outcome = world.restore(CHMOD, "opened", acting(CHANGES[change], seen))
    assert reasons(outcome) in (["changed"], ["special"])
    assert seen == [looks(world.file)]


@pytest.mark.parametrize("change", ["saved", "fifo", "link outside", "empty directory"])
def test_a_mode_change_reaches_the_compared_file_only(world: World, change: str):
    seen: list[object] = []
    outcome = world.restore(CHMOD, "before-chmod", acting(CHANGES[change], seen))
    assert reasons(outcome) == ["changed"]
    assert seen == [looks(world.file)]


def test_a_file_made_private_meanwhile_does_not_come_back_readable(world: World):
    outcome = world.restore(WRITE, "before-exchange", lambda world: world.file.chmod(0o600))
    assert reasons(outcome) == ["changed"]
    assert stat.S_IMODE(world.file.stat().st_mode) == 0o600
    assert world.file.read_bytes() == OLD


@pytest.mark.parametrize("plain", [False, True], ids=["exchange", "plain"])
@pytest.mark.parametrize("point", ["opened", "staged", "before-create"])
@pytest.mark.parametrize("kind", ["file", "link", "dangling", "directory", "fifo"])
def test_what_appears_at_a_free_place_stays(world: World, kind: str, point: str, plain: bool):
    place = world.directory / "n"
    make: dict[str, Callable[[World], object]] = {
        "file": lambda _: place.write_bytes(MINE),
        "link": lambda _: place.symlink_to("../../outside/n"),
        "dangling": lambda _: place.symlink_to("nowhere"),
        "directory": lambda _: place.mkdir(),
        "fifo": lambda _: os.mkfifo(place),
    }
    seen = []

    def act(world: World) -> None:
        make[kind](world)
        seen.append(looks(place))

    assert reasons(world.restore(CREATE, point, act, plain=plain)) == ["changed"]
    assert seen == [looks(place)]
    assert sorted(os.listdir(world.directory)) == ["f", "n"]


@pytest.mark.parametrize("point", ["opened", "staged", "before-exchange"])
def test_what_is_deleted_meanwhile_is_written_all_the_same(world: World, point: str):
    outcome = world.restore(WRITE, point, lambda world: world.file.unlink())
    assert outcome.written == [b"d/f"]
    assert world.file.read_bytes() == NEW


@pytest.mark.parametrize("point", ["opened", "before-aside"])
def test_what_is_deleted_meanwhile_counts_as_deleted(world: World, point: str):
    outcome = world.restore(DELETE, point, lambda world: world.file.unlink())
    assert outcome.deleted == [b"d/f"]
    assert os.listdir(world.directory) == []


# Somebody writes to the new file, or to the old one while it has a temporary name.


@pytest.mark.parametrize("point", ["exchanged", "before-verify", "verified", "unlinked"])
@pytest.mark.parametrize("change", ["overwritten", "saved", "appended"])
def test_who_writes_to_the_new_file_keeps_what_was_written(world: World, point: str, change: str):
    outcome = world.restore(WRITE, point, CHANGES[change])
    assert outcome.written == [b"d/f"]
    assert world.file.read_bytes() == (NEW + MINE if change == "appended" else MINE)


@pytest.mark.parametrize("plain", [False, True], ids=["exchange", "plain"])
@pytest.mark.parametrize(
    ("step", "first", "points"),
    [
        (WRITE, "opened", ["exchanged", "before-verify", "verified", "before-unlink"]),
        (DELETE, "opened", ["aside", "before-verify", "verified", "before-unlink"]),
    ],
    ids=["write", "delete"],
)
def test_a_program_that_holds_the_old_file_open_is_heard_until_it_is_deleted(
    tmp_path: Path, step: Step, first: str, points: list[str], plain: bool
):
    for number, point in enumerate(points):
        world = World(tmp_path / str(number))
        with world.file.open("ab", buffering=0) as held:

            def write(_world: World, held=held) -> None:
                held.write(MINE)

            outcome = world.restore(step, point, write, plain=plain)
        assert reasons(outcome) == ["changed"], point
        assert world.file.read_bytes() == OLD + MINE
        assert world.all_files() == [OLD + MINE]


def test_a_program_that_holds_the_old_file_open_longer_writes_to_nowhere(world: World):
    # The known limit: the path is not disturbed by it.
    with world.file.open("ab", buffering=0) as held:
        outcome = world.restore(WRITE, "unlinked", lambda _: held.write(MINE))
    assert outcome.written == [b"d/f"]
    assert world.file.read_bytes() == NEW


def test_two_programs_at_once_lose_nothing(world: World):
    """One had changed the file before it was exchanged, another saves over the new one before it is put back."""
    theirs = b"theirs, in no checkpoint either"
    points = {"before-exchange": MINE, "exchanged": theirs}

    def at(name: str, _path: bytes) -> None:
        if name in points:
            (world.directory / "f~").write_bytes(points.pop(name))
            (world.directory / "f~").rename(world.file)

    outcome = restore(str(world.root), [WRITE], Contents(OLD, NEW), hooks=at)
    assert reasons(outcome) == ["changed"]
    assert world.file.read_bytes() == theirs
    assert world.all_files() == sorted([theirs, MINE])
    kept = next(name for name in os.listdir(world.directory) if name != "f")
    assert kept in (outcome.failed[0].detail or "")
    world.check_outside()


def test_a_place_taken_while_a_changed_file_was_aside(world: World):
    theirs = b"theirs, in no checkpoint either"

    def at(name: str, _path: bytes) -> None:
        if name == "before-aside":
            world.file.write_bytes(MINE)
        if name == "aside":
            world.file.write_bytes(theirs)

    outcome = restore(str(world.root), [DELETE], Contents(OLD), hooks=at)
    assert reasons(outcome) == ["changed"]
    assert world.file.read_bytes() == theirs
    assert world.all_files() == sorted([theirs, MINE])
    kept = next(name for name in os.listdir(world.directory) if name != "f")
    assert kept.startswith("f.ckpt-rescued-")
    assert kept in (outcome.failed[0].detail or "")
    world.check_outside()


def test_a_rescued_file_with_a_name_of_full_length(tmp_path: Path):
    long = "n" * 250
    (tmp_path / long).write_bytes(OLD)

    def at(name: str, _path: bytes) -> None:
        if name in ("before-aside", "aside"):
            (tmp_path / long).write_bytes(name.encode())

    outcome = restore(str(tmp_path), [Step(long.encode(), file(OLD), None)], Contents(OLD), hooks=at)
    assert reasons(outcome) == ["changed"]
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"aside", b"before-aside"]
    assert leftovers(str(tmp_path)) == []


# The directory itself is moved or replaced.


def move_out(world: World) -> None:
    world.directory.rename(world.outside.parent / "elsewhere")


def move_within(world: World) -> None:
    world.directory.rename(world.root / "elsewhere")


def link_outside(world: World) -> None:
    move_out(world)
    world.directory.symlink_to("../outside")


def link_to_itself(world: World) -> None:
    move_within(world)
    world.directory.symlink_to("elsewhere")


def replace(world: World) -> None:
    move_out(world)
    copied = world.outside.parent / "elsewhere"
    shutil.copytree(copied, world.directory, ignore=shutil.ignore_patterns(".ckpt-*"))


MOVES = {"out": move_out, "within": move_within, "link": link_outside, "self": link_to_itself, "replaced": replace}
POINTS = [
    (WRITE, ["opened", "staged", "before-exchange", "exchanged", "before-verify"]),
    (DELETE, ["opened", "before-aside", "aside", "before-verify"]),
    (CREATE, ["opened", "staged", "before-create", "created", "before-verify"]),
    (CHMOD, ["opened", "before-chmod", "before-verify"]),
    (Step(b"d/m", None, FOLDER), ["opened", "before-mkdir", "mkdir", "before-verify"]),
    (Step(b"d/e", FOLDER, None), ["opened", "before-verify"]),
    (Step(b"d/e", FOLDER, State(DIRECTORY, b"", 0o700)), ["opened", "before-chmod", "before-verify"]),
]
CASES = [(step, point) for step, points in POINTS for point in points]


@pytest.mark.parametrize("plain", [False, True], ids=["exchange", "plain"])
@pytest.mark.parametrize(("step", "point"), CASES, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("move", MOVES)
def test_a_directory_that_does_not_stand_in_its_place_any_more(
    world: World, move: str, step: Step, point: str, plain: bool
):
    (world.directory / "e").mkdir()
    identity = os.stat(world.directory)
    modes = {name: os.lstat(world.directory / name).st_mode for name in ("e", "f")}
    copied: list[str] = []

    def act(world: World) -> None:
        MOVES[move](world)
        copied.extend(sorted(os.listdir(world.directory)) if move == "replaced" else [])

    outcome = world.restore(step, point, act, plain=plain)
    assert reasons(outcome) == ["moved"]
    elsewhere = (world.root if move in ("within", "self") else world.outside.parent) / "elsewhere"
    assert os.stat(elsewhere).st_ino == identity.st_ino
    assert sorted(os.listdir(elsewhere)) == ["e", "f"]
    assert (elsewhere / "f").read_bytes() == OLD
    assert {name: os.lstat(elsewhere / name).st_mode for name in ("e", "f")} == modes
    if move == "replaced":
        # The new one was not touched, whatever was in the old one when it was copied.
        assert sorted(os.listdir(world.directory)) == copied
        shutil.rmtree(world.directory)


@pytest.mark.parametrize("move", ["out", "link"])
def test_a_directory_that_is_gone_before_its_turn(world: World, move: str):
    steps = [Step(b"b", None, file(NEW)), WRITE, CREATE]
    done = []

    def at(name: str, path: bytes) -> None:
        if name == "opened" and path == b"" and not done:
            done.append(MOVES[move](world))

    outcome = restore(str(world.root), steps, Contents(OLD, NEW), hooks=at)
    assert outcome.written == [b"b"]
    assert reasons(outcome) == ["changed" if move == "out" else "beyond_symlink"] * 2
    world.check_outside()


def test_the_other_directories_go_on(world: World):
    (world.root / "e").mkdir()
    (world.root / "e/f").write_bytes(OLD)
    steps = [WRITE, Step(b"e/f", file(OLD), file(NEW)), Step(b"e/g", None, file(NEW))]
    done = []

    def at(name: str, path: bytes) -> None:
        if name == "exchanged" and path == b"d/f":
            done.append(move_out(world))

    outcome = restore(str(world.root), steps, Contents(OLD, NEW), hooks=at)
    assert done
    assert outcome.written == [b"e/f", b"e/g"]
    assert [(failed.path, failed.reason) for failed in outcome.failed] == [(b"d/f", "moved")]


def test_all_of_a_moved_directory_comes_back_in_one_piece(world: World):
    for name in ("g", "h", "i"):
        (world.directory / name).write_bytes(OLD)
    os.link(world.directory / "i", world.directory / "i2")
    steps = [
        WRITE,
        CREATE,
        Step(b"d/g", file(OLD), State(0o120000, file(NEW).oid)),
        Step(b"d/h", file(OLD), file(OLD, executable=True)),
        Step(b"d/i", file(OLD), file(OLD, executable=True)),
    ]
    before = {name: looks(world.directory / name) for name in os.listdir(world.directory)}

    def at(name: str, _path: bytes) -> None:
        if name == "before-verify":
            move_within(world)

    outcome = restore(str(world.root), steps, Contents(OLD, NEW), hooks=at)
    assert reasons(outcome) == ["moved"] * len(steps)
    elsewhere = world.root / "elsewhere"
    assert {name: looks(elsewhere / name) for name in os.listdir(elsewhere)} == before
    world.check_outside()


# Somebody works in a moved directory while it is put back.


@pytest.mark.parametrize("plain", [False, True], ids=["exchange", "plain"])
def test_undoing_keeps_what_was_written_meanwhile(world: World, plain: bool):
    def at(name: str, _path: bytes) -> None:
        if name == "before-verify":
            move_within(world)
        if name == "before-undo":
            (world.root / "elsewhere/f").write_bytes(MINE)

    renamer = Renamer(no_flags) if plain else None
    outcome = restore(str(world.root), [WRITE], Contents(OLD, NEW), hooks=at, renamer=renamer)
    assert reasons(outcome) == ["moved"]
    assert (world.root / "elsewhere/f").read_bytes() == MINE
    assert "stays" in (outcome.failed[0].detail or "")
    world.check_outside()


@pytest.mark.parametrize("plain", [False, True], ids=["exchange", "plain"])
def test_undoing_where_the_new_files_are_gone(world: World, plain: bool):
    def at(name: str, _path: bytes) -> None:
        if name == "before-verify":
            move_within(world)
            for path in ("f", "n"):
                (world.root / "elsewhere" / path).unlink()

    renamer = Renamer(no_flags) if plain else None
    outcome = restore(str(world.root), [WRITE, CREATE], Contents(OLD, NEW), hooks=at, renamer=renamer)
    assert reasons(outcome) == ["moved"] * 2
    assert world.all_files() == [OLD]
    world.check_outside()


def test_undoing_keeps_a_new_file_that_was_edited(world: World):
    def at(name: str, _path: bytes) -> None:
        if name == "before-verify":
            move_within(world)
            (world.root / "elsewhere/n").write_bytes(MINE)

    assert reasons(restore(str(world.root), [CREATE], Contents(OLD, NEW), hooks=at)) == ["moved"]
    assert world.all_files() == sorted([MINE, OLD])
    world.check_outside()


def test_undoing_keeps_a_new_directory_that_was_filled(world: World):
    def at(name: str, _path: bytes) -> None:
        if name == "before-verify" and not (world.root / "elsewhere").exists():
            move_within(world)
            (world.root / "elsewhere/m/x").write_bytes(MINE)

    assert reasons(restore(str(world.root), [Step(b"d/m", None, FOLDER)], Contents(), hooks=at)) == ["moved"]
    assert world.all_files() == sorted([MINE, OLD])


# An exception, and a file system that changes its mind.


class Stop(Exception):
    pass


ALL_POINTS = [
    *["opened", "staged", "before-create", "created", "before-exchange", "exchanged", "before-aside", "aside"],
    *["before-mkdir", "mkdir", "before-chmod", "before-verify", "verified", "before-unlink", "unlinked"],
]


@pytest.mark.parametrize("crew", [Crew(0), Crew(2, 0)], ids=["alone", "helped"])
@pytest.mark.parametrize("plain", [False, True], ids=["exchange", "plain"])
@pytest.mark.parametrize("point", ALL_POINTS)
def test_an_exception_at_any_point_leaves_no_temporary_and_no_third_content(
    world: World, point: str, plain: bool, crew: Crew
):
    (world.directory / "g").write_bytes(OLD)
    (world.directory / "h").write_bytes(OLD)
    steps = [
        WRITE,
        CREATE,
        Step(b"d/g", file(OLD), None),
        Step(b"d/h", file(OLD), file(OLD, 0o600)),
        Step(b"d/m", None, FOLDER),
        Step(b"d/m/x", None, file(NEW)),
    ]

    def act(_world: World) -> None:
        raise Stop

    def at(name: str, _path: bytes) -> None:
        if name == point:
            raise Stop

    renamer = Renamer(no_flags) if plain else None
    with pytest.raises(Stop):
        restore(str(world.root), steps, Contents(OLD, NEW), hooks=at, renamer=renamer, crew=crew)
    world.check_outside()
    assert set(world.all_files()) <= {OLD, NEW}
    assert world.file.read_bytes() in (OLD, NEW)
    assert (world.directory / "h").read_bytes() == OLD
    assert set(os.listdir(world.directory)) <= {"f", "g", "h", "m", "n"}
    # What is left can be finished by the same steps, or as many of them as are still to do.
    again = restore(str(world.root), steps, Contents(OLD, NEW))
    assert set(reasons(again)) <= {"changed"}
    assert world.file.read_bytes() == (world.directory / "n").read_bytes() == NEW
    assert not (world.directory / "g").exists()


def test_a_disk_error_while_a_file_is_put_back_does_not_lose_it(world: World):
    """The first exchange works, the one that would undo it does not: what was found gets a name that is seen."""
    exchanges = []

    def rename(dir_fd: int, source: bytes, target: bytes, flag: int) -> None:
        if flag == EXCHANGE:
            exchanges.append(source)
            if len(exchanges) == 1:
                world.file.write_bytes(MINE)
            else:
                raise OSError(5, "Input/output error")
        native_rename(dir_fd, source, target, flag)

    outcome = restore(str(world.root), [WRITE], Contents(OLD, NEW), renamer=Renamer(rename))
    assert reasons(outcome) == ["changed"]
    assert MINE in world.all_files()
    kept = next(name for name in os.listdir(world.directory) if (world.directory / name).read_bytes() == MINE)
    assert kept == "f" or kept in (outcome.failed[0].detail or "")
