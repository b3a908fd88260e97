"""What an operation costs, counted: the change and not the tree."""

import os

import pytest

from support.worktrees import Desk, opened_files

pytestmark = pytest.mark.core

FILES = 1000


@pytest.fixture
def saved(desk: Desk) -> Desk:
    """A thousand files in ninety directories, saved, and old enough to be trusted."""
    for number in range(FILES):
        desk.write(b"%d/%d/f%d" % (number % 9, number % 81, number), b"content %d\n" % number)
    desk.settle()
    desk.save("first")
    return desk


def own(desk: Desk, opened: list[bytes]) -> list[bytes]:
    """Those of the worktree: the scan names them relative to their directory."""
    return [path for path in opened if not os.path.isabs(path)]


def test_a_first_save_reads_everything_once(desk: Desk):
    for number in range(20):
        desk.write(b"d/f%d" % number, b"%02d" % number)
    with opened_files() as opened:
        stats = desk.save("first").stats
    assert len(own(desk, opened)) == stats.files_opened == 20
    assert stats.bytes_hashed == 40
    assert stats.directories_listed == 2
    assert (stats.objects_written, stats.packs_written) == (20 + 2 + 1, 1)
    assert stats.files_written == 0


def test_a_second_save_after_a_restart_opens_nothing(saved: Desk):
    saved.reopen()
    with opened_files() as opened:
        result = saved.save("second")
    assert own(saved, opened) == []
    assert not result.created
    assert result.stats.files_opened == result.stats.bytes_hashed == result.stats.objects_written == 0
    assert result.stats.packs_written == 0


def test_one_edit_costs_one_file_and_the_trees_above_it(saved: Desk):
    saved.write(b"1/10/f10", b"edited")
    with opened_files() as opened:
        result = saved.save("second")
    assert own(saved, opened) == [b"f10"]
    stats = result.stats
    assert (stats.files_opened, stats.bytes_hashed) == (1, len(b"edited"))
    # A blob, three trees, the commit; no info here.
    assert (stats.objects_written, stats.packs_written) == (1 + 3 + 1, 1)


def test_with_something_to_tell_it_costs_an_info_commit_more(saved: Desk):
    saved.write(b"1/10/f10", b"edited")
    os.mkfifo(saved.path(b"1/pipe"))
    # Besides those: the info commit, its tree, and the list of what was left out.
    assert saved.save("second").stats.objects_written == 5 + 3


def test_a_reset_writes_what_differs(saved: Desk):
    saved.write(b"1/10/f10", b"edited")
    saved.save("second")
    result = saved.reset("#1")
    assert result.written == ["1/10/f10"]
    assert result.stats.files_written == 1
    assert result.stats.files_opened == 0
    nothing = saved.reset("#1").stats
    assert (nothing.files_written, nothing.objects_written) == (0, 0)


def test_what_a_retried_request_took_is_told_again(saved: Desk):
    saved.write(b"1/10/f10", b"edited")
    token = saved.token()
    assert saved.save("second", token=token) == saved.save("second", token=token)
