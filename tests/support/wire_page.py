"""``protocol/WIRE.md`` as the tests read it: its blocks, its tables, and whether a reply is as the page shows it."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PAGE", "Block", "Likeness", "blocks", "error_rows", "method_sections"]

PAGE = Path(__file__).parents[2] / "protocol" / "WIRE.md"

_FENCE = re.compile(r"^```([\w. ]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ERROR_ROW = re.compile(r"^\| `(\w+)` \| (-?\d+) \| (yes|no) \| (.+) \|$", re.MULTILINE)
_MADE_UP = re.compile(
    r"[0-9a-f]{40}|[0-9a-f]{64}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|/home/u/\.fabricatio-checkpoint/.+"
)
_OTHER_EACH_TIME = {"pid", "subscription", "uptime_s", "build", "version"}
_SIZES = re.compile(r"(.*_)?(bytes|checkpoints|objects|packs|refs)(_.*)?")


class Block(NamedTuple):
    """A block of the page: ``kind`` is what stands behind the fence (``wire``, ``sh``, ``proof``, ``golden NAME``)."""

    kind: str
    text: str


def blocks() -> list[Block]:
    """All blocks, in order."""
    return [Block(*found) for found in _FENCE.findall(PAGE.read_text())]


def error_rows() -> list[tuple[str, int, bool, str]]:
    """The table of errors: kind, code, whether to try again, what it means."""
    return [
        (kind, int(code), again == "yes", means) for kind, code, again, means in _ERROR_ROW.findall(PAGE.read_text())
    ]


def method_sections() -> dict[str, str]:
    """What the page has of each method, by its name."""
    part = PAGE.read_text().partition("\n## Methods\n")[2].partition("\n## ")[0]
    found = re.split(r"^### (\S+)$", part, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


class Likeness:
    """Whether replies are as the page has them. What is other each time is learned when it is first seen."""

    def __init__(self, real: dict[str, str]) -> None:
        self.real = dict(real)

    def sent(self, line: str) -> str:
        """A request of the page with the real values in it."""
        for shown in sorted(self.real, key=len, reverse=True):
            line = line.replace(json.dumps(shown)[1:-1], json.dumps(self.real[shown])[1:-1])
        return line

    def check(self, shown: Any, real: Any, place: str = "$") -> None:
        """Assert that the real value is the one that is shown; it may have more fields."""
        if isinstance(shown, dict):
            assert isinstance(real, dict), place
            for key, value in shown.items():
                assert key in real, f"{place}: no {key} in {real}"
                if _is_other_each_time(key, shown):
                    assert type(real[key]) is type(value), f"{place}.{key}"
                else:
                    self.check(value, real[key], f"{place}.{key}")
        elif isinstance(shown, list):
            self._check_list(shown, real, place)
        elif isinstance(shown, str) and (shown in self.real or _MADE_UP.fullmatch(shown)):
            assert real == self.real.setdefault(shown, real), place
            assert isinstance(real, str), place
        else:
            assert real == shown, place

    def _check_list(self, shown: list[Any], real: Any, place: str) -> None:
        assert isinstance(real, list), place
        if shown[-1:] == ["..."]:
            shown, real = shown[:-1], real[: len(shown) - 1]
        assert len(shown) == len(real), f"{place}: {real}"
        for index, (one, other) in enumerate(zip(shown, real, strict=True)):
            self.check(one, other, f"{place}[{index}]")


def _is_other_each_time(key: str, shown: dict[str, Any]) -> bool:
    if key == "seq":
        # That of a checkpoint is as the page says; events are counted together with those that it does not show.
        return "subscription" in shown
    return key in _OTHER_EACH_TIME or (_SIZES.fullmatch(key) is not None and type(shown[key]) is int)
