"""After a power cut the times of a file may be on disk, and its content not: then the model is not believed."""

import os

import pytest

from ckptd.shadow.scan.boot import Written, boot_id
from ckptd.shadow.scan.entry import doubted, is_racy, pack_entry, signature
from ckptd.shadow.scan.modelfile import dump_model, load_model
from support.worktrees import Desk, opened_files

pytestmark = pytest.mark.core


def written_by(desk: Desk, boot: bytes, later_s: int = 0) -> None:
    """Have the model as another run of the system wrote it, so many seconds after what is on disk was changed."""
    desk.close()
    path = os.path.join(desk.folder, b"ckpt", b"model")
    with open(path, "rb") as file:
        root, fingerprint = load_model(file.read())
    at_ns = os.stat(desk.path(b"file")).st_ctime_ns + later_s * 1_000_000_000
    with open(path, "wb") as file:
        file.write(dump_model(root, fingerprint, Written(boot, at_ns)))
    desk.open(create=False)


def reads(desk: Desk) -> bool:
    with opened_files() as found:
        assert desk.changes() == []
    return b"file" in found


@pytest.mark.parametrize(
    ("boot", "later_s", "read"),
    [(b"another", 5, True), (b"another", 3600, False), (boot_id(), 5, False), (b"", 5, False)],
    ids=["changed shortly before", "long on disk", "the same run", "an older model"],
)
def test_what_had_changed_shortly_before_the_system_ended_is_read_again(desk: Desk, boot, later_s, read):
    if not boot_id():
        pytest.skip("this system does not number its runs")
    desk.write(b"file", b"content")
    desk.settle()
    desk.save()
    written_by(desk, boot, later_s)
    assert reads(desk) == read
    # Read once, it is known again.
    desk.save("again")
    assert not reads(desk)


def test_an_entry_is_doubted_from_its_change_on(tmp_path):
    (tmp_path / "f").touch()
    found = os.stat(tmp_path / "f")
    entry = pack_entry(b"o" * 20, signature(found), racy=False)
    assert is_racy(doubted(entry, found.st_ctime_ns))
    assert doubted(entry, found.st_ctime_ns + 1) == entry
