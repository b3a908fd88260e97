"""File names on the wire: text where they are UTF-8, base64 of the bytes where they are not.

The JSON form of a path is a string, or ``{"b64": "..."}`` for a name that is not UTF-8. There is exactly one
form for each name, so that equal paths are equal documents: base64 that holds valid UTF-8, and base64 that is
not canonical, are refused.
"""

__all__ = ["PathError", "check_absolute", "check_relative", "decode", "encode", "to_bytes", "to_text"]


class PathError(ValueError):
    """A path that the wire does not carry; the text says why and never repeats more than the path."""


def encode(path: bytes) -> str | dict[str, str]:
    """Give the JSON form of the bytes of a path."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        import binascii  # a library of its own in most interpreters, and hardly ever needed

        return {"b64": binascii.b2a_base64(path, newline=False).decode("ascii")}


def decode(value: object) -> bytes:
    """Read the JSON form of a path back into bytes.

    Raises PathError for a value of another shape, lone surrogates, base64 that is not canonical, and base64 of
    valid UTF-8 (which has to travel as text).
    """
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise PathError("a path given as text must be valid Unicode; send other names as b64") from error
    if isinstance(value, dict) and set(value) == {"b64"} and isinstance(value["b64"], str):
        return decode_b64(value["b64"])
    raise PathError('a path is a string or {"b64": "..."}')


def decode_b64(text: str) -> bytes:
    """Read the base64 form of a path; raises PathError as decode() does."""
    import binascii

    try:
        data = binascii.a2b_base64(text.encode("ascii"))
    except (UnicodeEncodeError, binascii.Error) as error:
        raise PathError("b64 of a path is not base64") from error
    # b2a gives the one canonical spelling; comparing with it refuses padding bits, white space and line ends.
    if binascii.b2a_base64(data, newline=False) != text.encode("ascii"):
        raise PathError("b64 of a path is not canonical")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    raise PathError("b64 of a path is for names that are not UTF-8; send this one as text")


def check_relative(path: bytes) -> bytes:
    """Return a path relative to a worktree, or raise PathError for one that could lead elsewhere.

    Refused are the empty path, absolute ones, NUL, and empty, ``.`` and ``..`` components (a trailing slash is
    an empty component).
    """
    if not path:
        raise PathError("empty path")
    if b"\0" in path:
        raise PathError(f"NUL in path {to_text(path)!r}")
    if path.startswith(b"/"):
        raise PathError(f"absolute path {to_text(path)!r} where a relative one is needed")
    for part in path.split(b"/"):
        if part in (b"", b".", b".."):
            raise PathError(f"component {to_text(part)!r} in path {to_text(path)!r}")
    return path


def check_absolute(path: bytes) -> bytes:
    """Return an absolute path, or raise PathError; NUL, ``.``, ``..`` and empty components are refused."""
    if b"\0" in path:
        raise PathError(f"NUL in path {to_text(path)!r}")
    if not path.startswith(b"/"):
        raise PathError(f"relative path {to_text(path)!r} where an absolute one is needed")
    if path != b"/":
        check_relative(path[1:])
    return path


def to_text(path: bytes) -> str:
    """Give a path as the API's plain results have it: ``os.fsdecode`` on a UTF-8 system."""
    return path.decode("utf-8", "surrogateescape")


def to_bytes(path: str) -> bytes:
    """Turn the text of to_text() back into bytes."""
    return path.encode("utf-8", "surrogateescape")
