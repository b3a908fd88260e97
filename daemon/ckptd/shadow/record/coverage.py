"""The ignore rules that a checkpoint was made under: recorded by a save, asked by a restore."""

from collections.abc import Iterator
from typing import Final

from ckptd.shadow.ignore.chain import IgnoreChain, IgnoreRules
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.info import Info, OutsideRules
from ckptd.shadow.scan.basis import Basis
from ckptd.shadow.scan.model import DirNode
from ckptd.shadow.trees.tree import LINK
from ckptd.shadow.trees.view import DirectoryView, find_view

__all__ = ["CKPTIGNORE", "GITIGNORE", "Coverage", "outside_rules"]

GITIGNORE: Final = b".gitignore"
CKPTIGNORE: Final = b".ckptignore"


def outside_rules(root: DirNode, options: tuple[bytes, ...], global_excludes: bytes | None) -> OutsideRules:
    """Gather every effective rule that is no file of the tree that a scan gave."""
    git_excludes, gitignores, ckptignores = [], [], []
    for path, node in _where_rules_may_begin(root):
        basis = node.basis
        # A basis that a directory shares with the one above it adds nothing here.
        if not isinstance(basis, Basis) or basis.parent is None or basis.path != path:
            continue
        if basis.outside is not None:
            git_excludes.append((path, basis.outside))
        if basis.gitignore is not None and GITIGNORE not in node.entries:
            gitignores.append((path, basis.gitignore))
        if basis.ckptignore is not None and CKPTIGNORE not in node.entries:
            ckptignores.append((path, basis.ckptignore))
    return OutsideRules(
        options=list(options),
        global_excludes=global_excludes,
        git_excludes=sorted(git_excludes),
        gitignores=sorted(gitignores),
        ckptignores=sorted(ckptignores),
    )


def _where_rules_may_begin(root: DirNode) -> Iterator[tuple[bytes, DirNode]]:
    """Give the directories whose rules may be others than those of the one above; of a large tree these are few."""
    stack = [(b"", root)]
    while stack:
        path, node = stack.pop()
        yield path, node
        if not node.one_basis:
            prefix = path + b"/" if path else b""
            stack.extend((prefix + name, child) for name, child in node.children.items())


class Coverage:
    """What a checkpoint speaks about: a path that it lacks was absent then, unless something kept it out.

    ``info`` None: nobody knows what was kept out, so the checkpoint says nothing about any path it lacks.
    """

    def __init__(self, objects: ObjectStore, root: DirectoryView, info: Info | None) -> None:
        self._blind = info is None
        outside = info.rules if info is not None else OutsideRules()
        self._left_out = {item.path for item in (*info.skipped, *info.excluded)} if info is not None else set()
        chain = IgnoreChain.root(options=outside.options, global_excludes=outside.global_excludes)
        self._rules = IgnoreRules(chain, _IgnoreFiles(objects, root, outside).read)

    def says_absent(self, path: bytes, *, is_dir: bool) -> bool:
        """Tell whether a path that is not in the checkpoint's tree was really not there when it was made.

        Raises DomainError where an ignore file of the checkpoint cannot be read.
        """
        if self._blind or self._is_left_out(path):
            return False
        return not self._rules.ignored(path, is_dir)

    def _is_left_out(self, path: bytes) -> bool:
        while path:
            if path in self._left_out:
                return True
            path = path.rpartition(b"/")[0]
        # The worktree's own directory, if it could not be listed.
        return b"" in self._left_out


class _IgnoreFiles:
    """The ignore files of a checkpoint. Nothing refers to it in turn: the whole tree would live until it is found out
    that nobody needs it."""

    def __init__(self, objects: ObjectStore, root: DirectoryView, outside: OutsideRules) -> None:
        self._objects = objects
        self._root = root
        self._git_excludes = dict(outside.git_excludes)
        self._ignore_files = {GITIGNORE: dict(outside.gitignores), CKPTIGNORE: dict(outside.ckptignores)}

    def read(self, directory: bytes) -> tuple[bytes | None, bytes | None, bytes | None]:
        view = find_view(self._root, directory)
        return (
            self._ignore_file(view, directory, GITIGNORE),
            self._ignore_file(view, directory, CKPTIGNORE),
            self._git_excludes.get(directory),
        )

    def _ignore_file(self, view: DirectoryView | None, directory: bytes, name: bytes) -> bytes | None:
        found = view.file(name) if view is not None else None
        if found is None:
            return self._ignore_files[name].get(directory)
        # As git has it: a link of this name holds no rules.
        return None if found.mode == LINK else self._objects.read(found.oid, b"blob")
