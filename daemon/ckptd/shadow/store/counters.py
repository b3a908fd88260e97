"""How much work an operation took: counted, so that tests and people can hold it against what changed."""

from collections.abc import Iterable

from ckpt_protocol.structs import Stats
from ckptd.shadow.objects.pack import PackWriter
from ckptd.shadow.scan.scanner import ScanResult
from ckptd.shadow.trees.step import Step

__all__ = ["count_work"]


def count_work(
    scan: ScanResult, pack: PackWriter | None, steps: Iterable[Step] = (), written: Iterable[bytes] = ()
) -> Stats:
    """Count what a scan read, what a pack took, and how many files and links of ``written`` the steps made."""
    done = set(written)
    made = [step for step in steps if step.path in done and step.after is not None and not step.after.is_dir]
    return Stats(
        files_opened=scan.read_count,
        bytes_hashed=scan.read_bytes,
        directories_listed=scan.listed_count,
        objects_written=pack.object_count if pack is not None else 0,
        packs_written=pack.pack_count if pack is not None else 0,
        files_written=len(made),
    )
