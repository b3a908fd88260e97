"""Which directory each watch of a worktree stands for, while directories come, go and move. Pure."""

from typing import Final

__all__ = ["Node", "WatchTree"]


class Node:
    """A directory; ``wd`` is its watch descriptor, -1 without one."""

    __slots__ = ("below", "name", "parent", "wd")

    def __init__(self, name: bytes, parent: "Node | None") -> None:
        self.name = name
        self.parent = parent
        self.wd = -1
        self.below: dict[bytes, Node] = {}

    @property
    def path(self) -> bytes:
        """Its path, relative to the worktree."""
        parts = []
        node = self
        while node.parent is not None:
            parts.append(node.name)
            node = node.parent
        return b"/".join(reversed(parts))


class WatchTree:
    """The directories that are watched, by path and by watch descriptor.

    The system gives one descriptor to an inode, whatever path it is watched by: a directory that is met again at
    another path (it has been moved, and the notice of that is still to come) belongs to the new one from then on.
    """

    def __init__(self) -> None:
        self.root: Final = Node(b"", None)
        self._by_wd: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._by_wd)

    def find(self, path: bytes) -> Node | None:
        """Give the node of a path, None where there is none."""
        node: Node | None = self.root
        for part in path.split(b"/") if path else ():
            node = node.below.get(part) if node is not None else None
        return node

    def descriptors(self) -> list[int]:
        """Give all descriptors that are in use."""
        return list(self._by_wd)

    def by_wd(self, wd: int) -> Node | None:
        """Give the node of a descriptor; None for one that is not in use any more."""
        return self._by_wd.get(wd)

    def put(self, path: bytes, wd: int) -> None:
        """Note that a path is watched."""
        node = self.root
        for part in path.split(b"/") if path else ():
            child = node.below.get(part)
            if child is None:
                child = node.below[part] = Node(part, node)
            node = child
        if node.wd >= 0 and self._by_wd.get(node.wd) is node and node.wd != wd:
            del self._by_wd[node.wd]
        before = self._by_wd.get(wd)
        if before is not None and before is not node:
            before.wd = -1
        node.wd = wd
        self._by_wd[wd] = node

    def forget(self, wd: int) -> None:
        """Note that the system has ended a watch."""
        node = self._by_wd.pop(wd, None)
        if node is not None:
            node.wd = -1

    def cut(self, parent: Node, name: bytes) -> list[int]:
        """Take a directory and all below it out; give the descriptors that they had."""
        top = parent.below.pop(name, None)
        stack = [top] if top is not None else []
        found: list[int] = []
        while stack:
            node = stack.pop()
            stack.extend(node.below.values())
            if node.wd >= 0 and self._by_wd.get(node.wd) is node:
                del self._by_wd[node.wd]
                found.append(node.wd)
        return found

    def is_watched(self, path: bytes) -> bool:
        """Tell whether a path has a watch."""
        node = self.find(path)
        return node is not None and node.wd >= 0
