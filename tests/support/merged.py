"""Merging all small packs of a repository in one go, for tests of what lies in one."""

import os
from contextlib import nullcontext

import pytest

from ckptd.shadow.objects import merge, pack
from ckptd.shadow.objects.merge import merging
from ckptd.shadow.objects.pieces import at_once, drained
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.objects.surveying import pack_sizes

__all__ = ["merge_packs", "wait_at_once"]


def wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be waited for where it is, not beside: how many saves that takes is the machine's business."""
    monkeypatch.setattr(pack, "beside", at_once)
    monkeypatch.setattr(merge, "beside", at_once)


def merge_packs(pack_dir: bytes) -> int:
    """Merge whatever may be merged; give how many packs have gone."""
    before = set(_packs(pack_dir))
    drained(merging(ObjectStore(os.path.dirname(os.path.dirname(pack_dir))), pack_sizes(pack_dir), nullcontext))
    return len(before - set(_packs(pack_dir)))


def _packs(pack_dir: bytes) -> list[bytes]:
    return [name for name in os.listdir(pack_dir) if name.startswith(b"pack-") and name.endswith(b".pack")]
