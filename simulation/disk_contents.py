"""Contents of a simulated disk, and their state after a power cut.

Each file is a durable image plus the ordered changes since its last sync. Each directory is its
durable entries plus changes to entries, recorded by the disk in their order. While the power is on,
reads see the live state. After a power cut, `surviving` decides by the seed which pending changes
became durable:

- data becomes durable in sectors of 512 bytes, in any order: prefixes, torn writes, gaps;
- the size may become durable before the data, which then reads as zeros;
- a truncation may be lost although a later write survives;
- changes of names (create, rename, unlink) survive up to some point in their order, as in a
  journal; without one, only changes of the same name keep their order.

Only POSIX guarantees hold: sync of a file for data, sync of the directory for a name.
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

SECTOR_BYTES = 512


class Write(NamedTuple):
    position: int
    data: bytes


class Truncation(NamedTuple):
    size: int


class FileNode:
    """Inode of a file: durable image, live content and pending changes."""

    __slots__ = ("bad", "durable", "live", "name", "parent", "pending")

    def __init__(self, image: bytes | bytearray = b"") -> None:
        self.live = bytearray(image)
        self.durable = bytearray(image)
        self.pending: list[Write | Truncation] = []
        self.bad: list[tuple[int, int]] = []  # Unreadable ranges.
        self.parent: DirectoryNode | None = None
        self.name = ""

    def write(self, position: int, data: bytes) -> None:
        self.pending.append(Write(position, data))
        _apply(self.live, self.pending[-1])

    def truncate(self, size: int) -> None:
        self.pending.append(Truncation(size))
        _apply(self.live, self.pending[-1])

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def lose_pending(self, rng: random.Random) -> None:
        """Simulates a failed fsync: some changes survive, others are lost and marked clean."""
        self.durable = self.surviving(rng)
        self.pending.clear()

    def surviving(self, rng: random.Random) -> bytearray:
        image = bytearray(self.durable)
        changes = self.pending
        fate = rng.random() if changes else 0.0
        if fate < 0.15:
            return image
        if fate < 0.3:
            kept, rest = len(changes), "lost"
        elif fate < 0.6:
            kept, rest = rng.randrange(len(changes)), "torn"
        elif fate < 0.75:
            kept, rest = rng.randrange(len(changes)), "zeros"
        else:
            kept, rest = 0, "any"
        for change in changes[:kept]:
            _apply(image, change)
        for change in changes[kept : kept + 1 if rest == "torn" else None]:
            if rest == "lost" or (rest == "any" and rng.random() < 0.5):
                continue
            if isinstance(change, Truncation):
                _apply(image, change)
            elif rest == "zeros":
                _grow(image, change.position + len(change.data))
            else:
                _tear(image, change, rng)
        return image


class DirectoryNode:
    """Inode of a directory: durable and live entries."""

    __slots__ = ("durable", "live", "name", "parent")

    def __init__(self) -> None:
        self.live: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.parent: DirectoryNode | None = None
        self.name = ""

    def path(self) -> str:
        return self.name if self.parent is None else f"{self.parent.path()}/{self.name}"


Node = FileNode | DirectoryNode


class Entry(NamedTuple):
    """Change of a directory entry: `name` now refers to `node`, or is removed."""

    directory: DirectoryNode
    name: str
    node: Node | None


Link = tuple[Entry, ...]
"""Atomic change of the tree: one entry, or two for a rename."""


def apply_live(link: Link) -> None:
    for directory, name, node in link:
        if node is None:
            del directory.live[name]
        else:
            directory.live[name] = node
            node.parent, node.name = directory, name


def apply_durable(links: Iterable[Link]) -> None:
    for link in links:
        for directory, name, node in link:
            _set_entry(directory.durable, name, node)


def needed_for(chosen: Sequence[bool], links: Sequence[Link]) -> list[bool]:
    """Extends a selection of changes by earlier changes of the same entries."""
    kept = list(chosen)
    names: set[tuple[int, str]] = set()  # Only membership tests, never iterated.
    for at in range(len(links) - 1, -1, -1):
        keys = [(id(directory), name) for directory, name, _ in links[at]]
        kept[at] = kept[at] or any(key in names for key in keys)
        if kept[at]:
            names.update(keys)
    return kept


def surviving_tree(
    root: DirectoryNode, links: Sequence[Link], rng: random.Random, journaled: bool
) -> DirectoryNode:
    """New tree of `root` and its pending `links` after a power cut."""
    if journaled or rng.random() < 0.5:
        count = rng.randint(0, len(links))
        chosen = [at < count for at in range(len(links))]
    else:
        chosen = needed_for([rng.random() < 0.5 for _ in links], links)
    entries: dict[int, dict[str, Node]] = {}
    for keep, link in zip(chosen, links, strict=True):
        for directory, name, node in link if keep else ():
            view = entries.setdefault(id(directory), dict(directory.durable))
            _set_entry(view, name, node)
    return _copy(root, entries, rng)


def live_copy(directory: DirectoryNode) -> DirectoryNode:
    """New tree with the live state, all of it durable."""
    copy = DirectoryNode()
    for name, node in sorted(directory.live.items()):
        child = live_copy(node) if isinstance(node, DirectoryNode) else FileNode(node.live)
        child.parent, child.name = copy, name
        copy.live[name] = copy.durable[name] = child
    return copy


def _copy(
    directory: DirectoryNode, entries: dict[int, dict[str, Node]], rng: random.Random
) -> DirectoryNode:
    copy = DirectoryNode()
    for name, node in sorted(entries.get(id(directory), directory.durable).items()):
        child: Node
        if isinstance(node, DirectoryNode):
            child = _copy(node, entries, rng)
        else:
            child = FileNode(node.surviving(rng))
            child.bad = list(node.bad)
        child.parent, child.name = copy, name
        copy.live[name] = copy.durable[name] = child
    return copy


def _set_entry(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _apply(image: bytearray, change: Write | Truncation) -> None:
    if isinstance(change, Truncation):
        _grow(image, change.size)
        del image[change.size :]
    else:
        _grow(image, change.position)
        image[change.position : change.position + len(change.data)] = change.data


def _grow(image: bytearray, size: int) -> None:
    if size > len(image):
        image.extend(bytes(size - len(image)))


def _tear(image: bytearray, write: Write, rng: random.Random) -> None:
    """Applies some sectors of a write: a prefix, or a random subset."""
    end = write.position + len(write.data)
    first = write.position // SECTOR_BYTES
    count = -(-end // SECTOR_BYTES) - first
    if rng.random() < 0.5:
        run = rng.randint(0, count)
        kept = [at < run for at in range(count)]
    else:
        kept = [rng.random() < 0.5 for _ in range(count)]
    for at, keep in enumerate(kept):
        if keep:
            start = max(write.position, (first + at) * SECTOR_BYTES)
            stop = min(end, (first + at + 1) * SECTOR_BYTES)
            _grow(image, start)
            image[start:stop] = write.data[start - write.position : stop - write.position]
    if rng.random() < 0.5:
        _grow(image, end)
