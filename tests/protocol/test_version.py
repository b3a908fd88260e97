"""Which of two builds is the older one."""

import tomllib
from pathlib import Path

import pytest

from ckpt_protocol.version import BUILD, is_older, release

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("build", "numbers"),
    [
        ("1.0.0", (1,)),
        ("1", (1,)),
        ("0.10.2", (0, 10, 2)),
        ("1.2.0.dev3", (1, 2)),
        ("2.0rc1", (2,)),
        ("1.4b2.9", (1, 4)),
        ("", ()),
        ("unknown", ()),
        ("v1.2", ()),
    ],
)
def test_the_numbers_of_a_build(build, numbers):
    assert release(build) == numbers


def test_builds_are_compared_as_numbers():
    ordered = ["0.9.9", "0.10", "1.0.0", "1.0.1", "1.2", "1.10", "2"]
    for index, build in enumerate(ordered):
        assert not is_older(build, build)
        assert [is_older(build, other) for other in ordered[index + 1 :]] == [True] * (len(ordered) - index - 1)
        assert not any(is_older(build, other) for other in ordered[:index])


def test_equal_but_differently_spelt_builds_are_not_older():
    assert not is_older("1.0", "1.0.0")
    assert not is_older("1.0.0", "1")
    assert not is_older("1.0.0.dev1", "1.0.0")


@pytest.mark.parametrize("odd", ["", "unknown", "main"])
def test_what_is_no_version_is_neither_older_nor_newer(odd):
    assert not is_older(odd, BUILD)
    assert not is_older(BUILD, odd)


def test_the_build_is_the_version_of_the_distribution():
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["version"] == BUILD
