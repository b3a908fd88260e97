"""Which directories of a worktree are worth watching, as the last scan saw them."""

from ckptd.shadow.scan.model import DirNode, iter_nodes

__all__ = ["ModelWatchPlan"]


class ModelWatchPlan:
    """Fulfils the core's WatchPlan: the directories that a scan walks, so nothing ignored, and no ``.git``.

    Immutable, like the model that it looks at: any thread may use it.
    """

    def __init__(self, root: DirNode | None) -> None:
        self._root = root
        self.directories = [b""] if root is None else [path for path, _ in iter_nodes(root)]

    def leaves_out(self, path: bytes) -> bool:
        """Tell whether the last scan has left a path out by the rules, itself or a directory above it."""
        node = self._root
        for name in path.split(b"/") if path else ():
            if node is None:
                return False
            if name in node.entries or name in node.children:
                node = node.children.get(name)
            else:
                return name in node.ignored or name + b"/" in node.ignored
        return False

    def is_directory(self, path: bytes) -> bool:
        """Tell whether a path is one of the directories."""
        node = self._root
        for name in path.split(b"/") if path else ():
            node = node.children.get(name) if node is not None else None
            if node is None:
                return False
        return True
