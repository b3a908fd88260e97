"""Every weakness of the library that was found, provoked: what is told, and what is said where nothing can be."""

import os
import shutil
import sys

import pytest

from ckptd.watch.budget import Budget
from support.poll import eventually
from support.watching import COMMAND, Post, posted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's list of watches is Linux's")


async def test_changes_are_told_by_their_relative_paths(tmp_path):
    (tmp_path / "d").mkdir()
    async with posted(tmp_path) as post:
        assert await post.cover() == (True, True, 2, 0, None)
        (tmp_path / "a").write_text("1")
        (tmp_path / "d" / "b").write_text("1")
        await post.heard("a")
        await post.heard("d/b")
        (tmp_path / "a").unlink()
        os.rename(tmp_path / "d" / "b", tmp_path / "c")
        await post.heard("c")


async def test_what_is_covered_already_is_left_as_it_is(tmp_path):
    (tmp_path / "d").mkdir()
    async with posted(tmp_path) as post:
        assert (await post.cover()).fresh
        assert not (await post.cover()).fresh
        (tmp_path / "e").mkdir()
        assert await post.cover() == (True, True, 3, 0, None)
        assert (await post.cover(afresh=True)).fresh


async def test_own_temporary_names_git_and_the_trial_are_not_told(tmp_path):
    async with posted(tmp_path) as post:
        await post.cover(try_out=True)
        (tmp_path / ".ckpt-0123456789abcdef.tmp").write_text("1")
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "index").write_text("1")
        (tmp_path / ".ckpt-mine.tmp").write_text("1")
        assert await post.silence() == {b".ckpt-mine.tmp"}
        assert sorted(os.listdir(tmp_path)) == [".ckpt-0123456789abcdef.tmp", ".ckpt-mine.tmp", ".git"]


async def test_what_is_not_on_the_list_is_not_watched(tmp_path):
    for name in ("src", "node_modules/x"):
        (tmp_path / name).mkdir(parents=True)
    async with posted(tmp_path) as post:
        assert (await post.cover(b"", b"src")).watched == 2
        (tmp_path / "node_modules" / "x" / "f").write_text("1")
        (tmp_path / "node_modules" / "f").write_text("1")
        (tmp_path / "src" / "f").write_text("1")
        await post.heard("src/f")
        assert not any(path.startswith(b"node_modules/") for path in await post.silence())


async def test_a_list_that_has_become_shorter_takes_watches_away(tmp_path):
    (tmp_path / "dist").mkdir()
    async with posted(tmp_path) as post:
        await post.cover(b"", b"dist")
        assert await post.cover(b"") == (True, True, 1, 0, None)
        (tmp_path / "dist" / "f").write_text("1")
        assert b"dist/f" not in await post.silence()


async def test_links_are_not_followed_out_of_the_root(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    for folder in (outside, root / "real"):
        folder.mkdir(parents=True)
    (root / "out").symlink_to(outside)
    (root / "alias").symlink_to("real")
    (root / "loop").symlink_to(".")
    async with posted(root) as post:
        assert (await post.cover(b"", b"real", b"out", b"alias", b"loop")).watched == 2
        (outside / "f").write_text("1")
        (root / "real" / "f").write_text("1")
        await post.heard("real/f")
        assert await post.silence() == {b"real/f"}


async def test_a_directory_that_is_removed_and_made_again_is_watched_again(tmp_path):
    """Its path is the same and so, most of the time, is its inode: the kernel's list tells that the watch is gone."""
    folder = tmp_path / "src"
    folder.mkdir()
    async with posted(tmp_path) as post:
        await post.cover()
        for _ in range(5):
            shutil.rmtree(folder)
            folder.mkdir()
            assert (await post.cover()).fresh
        (folder / "f").write_text("1")
        await post.heard("src/f")


async def test_directories_that_came_unseen_are_watched_at_the_next_coverage(tmp_path):
    async with posted(tmp_path) as post:
        await post.cover()
        os.makedirs(tmp_path / "a" / "b" / "c")
        (tmp_path / "a" / "b" / "c" / "early").write_text("1")
        await post.heard("a")
        assert (await post.cover()).watched == 4
        (tmp_path / "a" / "b" / "c" / "late").write_text("1")
        await post.heard("a/b/c/late")


async def test_a_burst_is_told_of_even_if_not_in_full(tmp_path):
    """The queue of the kernel may run over without a word; that something has changed is told after it has."""
    async with posted(tmp_path) as post:
        await post.cover()
        for number in range(20_000):
            (tmp_path / f"f{number}").touch()
        await eventually(lambda: post.news.more)
        assert len(post.news.paths) < 20_000
        # A single change right now may be lost, too.
        await eventually(lambda: (tmp_path / "after").write_text("1") and b"after" in post.news.paths)


async def test_a_name_that_is_not_utf8_breaks_an_instance_and_not_the_next_one(tmp_path):
    async with posted(tmp_path) as post:
        await post.cover()
        odd = os.fsencode(tmp_path) + b"/\xff"
        os.mknod(odd)
        await eventually(lambda: post.news.breaks)
        assert "decode" in post.news.breaks[0]
        assert (await post.cover()).fresh
        (tmp_path / "plain").write_text("1")
        await post.heard("plain")
        os.unlink(odd)
        await eventually(lambda: len(post.news.breaks) == 2)


async def test_directories_whose_names_are_not_utf8_are_left_and_said(tmp_path):
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    (tmp_path / "d").mkdir()
    async with posted(tmp_path) as post:
        covered = await post.cover(b"", b"d", b"\xff")
        assert (covered.native, covered.watched, covered.left) == (True, 2, 1)
        assert "not UTF-8" in covered.reason


async def test_directories_that_are_gone_are_no_problem(tmp_path):
    async with posted(tmp_path) as post:
        assert await post.cover(b"", b"gone", b"gone/deeper") == (True, True, 1, 0, None)


async def test_a_root_that_is_gone_or_no_directory_is_said(tmp_path):
    async with posted(tmp_path / "root") as post:
        covered = await post.cover(b"")
        assert (covered.native, "No such file" in covered.reason) == (False, True)
        (tmp_path / "root").write_text("1")
        assert not (await post.cover(b"")).native


async def test_a_root_that_was_replaced_is_watched_as_it_is_now(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    async with posted(root) as post:
        await post.cover()
        root.rename(tmp_path / "elsewhere")
        root.mkdir()
        assert (await post.cover()).fresh
        (tmp_path / "elsewhere" / "old").write_text("1")
        (root / "new").write_text("1")
        await post.heard("new")
        assert b"old" not in await post.silence()


async def test_more_directories_than_may_be_watched_are_not_watched_at_all(tmp_path):
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    async with posted(tmp_path, budget=Budget(roots=3, directories=5)) as post:
        covered = await post.cover()
        assert (covered.native, covered.watched) == (False, 0)
        assert "6 directories are more than may be watched (5)" in covered.reason
        (tmp_path / "4").rmdir()
        assert (await post.cover()).native


async def test_the_budget_is_for_all_roots_together(tmp_path):
    for name in ("one/a", "two/a"):
        (tmp_path / name).mkdir(parents=True)
    async with posted(tmp_path / "one", budget=Budget(roots=3, directories=3)) as one:
        two = Post(one.service, tmp_path / "two")
        assert (await one.cover()).native
        assert not (await two.cover()).native
        one.service.remove(one.number)
        assert (await two.cover()).native


async def test_the_root_that_was_covered_the_longest_ago_makes_room(tmp_path):
    roots = [tmp_path / name for name in "abc"]
    for root in roots:
        root.mkdir()
    async with posted(roots[0], budget=Budget(roots=2, directories=100)) as first:
        second, third = (Post(first.service, root) for root in roots[1:])
        for post in (first, second, first, third):
            assert (await post.cover()).native
        assert [post.news.evicted for post in (first, second, third)] == [False, True, False]
        (roots[0] / "f").write_text("1")
        (roots[2] / "f").write_text("1")
        await first.heard("f")
        await third.heard("f")


def test_the_budget_is_taken_from_the_system():
    found = Budget.of_system()
    assert 1 <= found.roots <= 32
    assert found.directories >= 1


async def test_directories_that_may_not_be_read_stop_nothing(tmp_path):
    """A scan cannot look into them either; the library would stop there, or watch nothing at all."""
    closed, last = tmp_path / "closed", tmp_path / "last"
    for folder in (closed / "inner", last):
        folder.mkdir(parents=True)
    closed.chmod(0)
    async with posted(tmp_path, command=obeying_permissions()) as post:
        directories = (b"", b"closed", b"closed/inner", b"last")
        try:
            assert await post.cover(*directories) == (True, True, 2, 0, None)
            (last / "f").write_text("1")
            await post.heard("last/f")
        finally:
            closed.chmod(0o755)
        await post.heard("closed")
        assert (await post.cover(*directories)).watched == 4


def obeying_permissions():
    """The command, without root's right to read everything."""
    if os.geteuid() != 0:
        return COMMAND
    if shutil.which("setpriv") is None:
        pytest.skip("root may do everything, and there is no setpriv")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--", *COMMAND)
