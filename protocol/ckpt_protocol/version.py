"""The versions that a hello compares."""

__all__ = ["BUILD", "PROTOCOL_VERSION", "is_older", "release"]

PROTOCOL_VERSION = 1
"""Counts changes of the wire that an older peer cannot work with."""

BUILD = "1.0.0"
"""The distribution's version, as ``pyproject.toml`` has it."""


def release(build: str) -> tuple[int, ...]:
    """The numbers that a build begins with: ``1.10.2.dev3`` gives (1, 10, 2); () where it begins with none.

    A suffix does not count: it is not worth ending a daemon that works.
    """
    numbers: list[int] = []
    for part in build.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if digits:
            numbers.append(int(digits))
        if digits != part:
            break
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def is_older(build: str, other: str) -> bool:
    """Tell whether a build comes before another one; one without numbers comes nowhere."""
    first, second = release(build), release(other)
    return bool(first and second) and first < second
