"""The table of errors: unique, in families, and off the numbers that belong to others."""

import re

import pytest

from ckpt_protocol import errors

pytestmark = pytest.mark.core

ROWS = list(errors.BY_KIND.values())
OF_JSON_RPC = {
    "parse_error": -32700,
    "invalid_request": -32600,
    "method_not_found": -32601,
    "invalid_params": -32602,
    "internal": -32603,
}
THOUSANDS = {"input": 1, "state": 2, "storage": 3, "daemon": 4}


def test_kinds_and_codes_are_unique():
    # The two tables are made from one list of rows: a double kind or code would make one of them shorter.
    assert len(errors.BY_KIND) == len(errors.BY_CODE) == len(errors._ROWS)


def test_the_two_tables_agree():
    assert all(errors.BY_CODE[row.code] is row for row in ROWS)
    assert all(kind == row.kind for kind, row in errors.BY_KIND.items())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_a_row(row):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", row.kind)
    assert row.family in errors.FAMILIES
    assert isinstance(row.retryable, bool)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_codes_of_our_own_lie_outside_the_range_that_json_rpc_keeps(row):
    if row.kind in OF_JSON_RPC:
        assert row.code == OF_JSON_RPC[row.kind]
    else:
        assert row.code // 1000 == THOUSANDS[row.family]


def test_the_number_of_the_dispatching_library_is_never_ours():
    assert -32000 not in errors.BY_CODE


def test_every_family_has_a_row():
    assert {row.family for row in ROWS} == set(errors.FAMILIES)


def test_only_internal_is_a_bug():
    assert [row for row in ROWS if row.family == "bug"] == [errors.INTERNAL]
