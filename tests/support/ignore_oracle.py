"""What git itself says about ignored paths: a scratch repository, asked in bulk."""

import os
import subprocess
from collections.abc import Iterable, Mapping

from ckptd.shadow.ignore.chain import IgnoreChain, IgnoreRules
from support.isolation import private_environment

__all__ = ["GitOracle", "rules_of_tree"]


class GitOracle:
    """A repository below ``place`` with ignore files and directories, and no file besides."""

    def __init__(self, place: str, gitignore: Mapping[bytes, bytes], directories: Iterable[bytes] = ()) -> None:
        self._environ = private_environment(os.path.join(place, "env"), os.environ)
        self._root = os.fsencode(os.path.join(place, "tree"))
        self._git("init", "-q", os.fsdecode(self._root), cwd=place)
        for directory in {*directories, *gitignore}:
            os.makedirs(os.path.join(self._root, directory), exist_ok=True)
        for directory, data in gitignore.items():
            _write(os.path.join(self._root, directory, b".gitignore"), data)

    def set_exclude(self, data: bytes) -> None:
        """Write the repository's own info/exclude."""
        _write(os.path.join(self._root, b".git/info/exclude"), data)

    def set_global_excludes(self, data: bytes) -> None:
        """Write a file beside the repository and name it as core.excludesFile."""
        path = self._root + b".excludes"
        _write(path, data)
        self._git("config", "core.excludesFile", os.fsdecode(path))

    def ignored(self, paths: list[bytes]) -> dict[bytes, bool]:
        """Ask about paths. One that stands on disk as a directory is a directory, any other a file."""
        # The prefix keeps git from taking a colon in front for pathspec magic.
        asked = b"".join([b"./" + path + b"\0" for path in paths])
        answer = self._git("check-ignore", "--no-index", "--stdin", "-z", "-v", "-n", stdin=asked)
        fields = answer.split(b"\0")[:-1]
        found = {}
        for source, pattern, path in zip(fields[0::4], fields[2::4], fields[3::4], strict=True):
            found[path.removeprefix(b"./")] = bool(source) and not pattern.startswith(b"!")
        assert set(found) == set(paths)
        return found

    def _git(self, *arguments: str, stdin: bytes = b"", cwd: str | None = None) -> bytes:
        done = subprocess.run(
            ["git", "-c", "core.ignoreCase=false", *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd or self._root,
            env={**self._environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
            timeout=100,
        )
        # check-ignore tells "nothing is ignored" by 1
        assert done.returncode in (0, 1), done.stderr
        return done.stdout


def rules_of_tree(
    gitignore: Mapping[bytes, bytes],
    *,
    ckptignore: Mapping[bytes, bytes] | None = None,
    exclude: bytes | None = None,
    global_excludes: bytes | None = None,
    options: Iterable[bytes] = (),
) -> IgnoreRules:
    """Give our own rules for files given as mappings from directories; ``exclude`` belongs to the root."""
    checkpoint = ckptignore or {}

    def read(directory: bytes) -> tuple[bytes | None, bytes | None, bytes | None]:
        return gitignore.get(directory), checkpoint.get(directory), None if directory else exclude

    return IgnoreRules(IgnoreChain.root(options=tuple(options), global_excludes=global_excludes), read)


def _write(path: bytes, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
