"""The table of faults is true: each test that it names is there."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.core

_HERE = Path(__file__).parent
_HEADER = ["Id", "Kind", "Tests"]
_REASON = "Does not apply: "


class Row(NamedTuple):
    """One fault; ``tests`` as they are written."""

    id: str
    kind: str
    tests: str

    def names(self) -> list[str]:
        return [one.strip("` ") for one in self.tests.split(",")]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _rows() -> list[Row]:
    lines = [_cells(line) for line in (_HERE / "FAULTS.md").read_text().splitlines() if line.startswith("|")]
    assert all(len(cells) == len(_HEADER) for cells in lines), [cells for cells in lines if len(cells) != len(_HEADER)]
    return [Row(*cells) for cells in lines if cells != _HEADER and not set("".join(cells)) <= set("-:")]


def _defined(path: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions)}


def test_ids_are_unique_and_no_row_is_empty():
    rows = _rows()
    ids = [row.id for row in rows]
    assert len(ids) > 50
    assert len(set(ids)) == len(ids), sorted(one for one in ids if ids.count(one) > 1)
    assert [row for row in rows if not re.fullmatch(r"B\d{2,3}", row.id) or not row.kind or not row.tests] == []


def test_each_test_that_is_named_is_there():
    defined: dict[str, set[str]] = {}
    missing = []
    for row in _rows():
        if row.tests.startswith(_REASON) and row.tests != _REASON:
            continue
        for name in row.names():
            path, _, test = name.partition("::")
            if path not in defined:
                defined[path] = _defined(_HERE / path) if (_HERE / path).is_file() else set()
            if not test.startswith("test_") or test not in defined[path]:
                missing.append((row.id, name))
    assert missing == []
