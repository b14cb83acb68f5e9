"""Readers and writers of declared messages, compiled on first use.

Owns the cache: one reader and one writer per (class, version), compiled from the source that
`reader_source` and `writer_source` generate. The source is kept in `linecache`, so that tracebacks
and profilers show it, and `source` returns it for `penstock wire show`.

Invariants: a reader raises only `PeerError`, for any bytes; a version outside the declared range is
a bug of ours and raises `ValueError` before anything is compiled.
"""

import linecache
from collections.abc import Callable, Generator
from functools import cache
from typing import Any, TypeVar, cast

from penstock.base.ports import Buffer
from penstock.wire.reader_source import ReaderText
from penstock.wire.schema import wire_of
from penstock.wire.writer_source import WriterText

T = TypeVar("T")

MessageReader = Callable[[memoryview, int, int], tuple[T, int]]
"""`read(view, position, end)`: returns the message and the position of its end."""

Writer = Callable[[T, list[Buffer]], None]
"""`write(message, parts)`: appends the bytes of the message."""

StepWriter = Callable[[T, list[Buffer]], Generator[None, None, None]]
"""Generator form of a writer, for large messages: yields after each element of a list."""


def reader(declared: type[T], version: int) -> MessageReader[T]:
    """Function that reads `declared` at `version`."""
    key: Any = declared
    return cast("MessageReader[T]", _compile_reader(key, version))


def writer(declared: type[T], version: int) -> Writer[T]:
    """Function that writes `declared` at `version`."""
    key: Any = declared
    return cast("Writer[T]", _compile_writer(key, version))


def step_writer(declared: type[T], version: int) -> StepWriter[T]:
    """Generator function that writes `declared` at `version` step by step."""
    key: Any = declared
    return cast("StepWriter[T]", _compile_step_writer(key, version))


def source(declared: type[Any], version: int) -> str:
    """Source of reader and writer, as compiled."""
    _check_version(declared, version)
    return ReaderText(declared, version).text + "\n\n" + WriterText(declared, version).text


@cache
def _compile_reader(declared: type[Any], version: int) -> Callable[..., Any]:
    _check_version(declared, version)
    made = ReaderText(declared, version)
    return _compile(f"<read {declared.__name__} v{version}>", made.text, made.names, "read")


@cache
def _compile_writer(declared: type[Any], version: int) -> Callable[..., Any]:
    _check_version(declared, version)
    made = WriterText(declared, version)
    return _compile(f"<write {declared.__name__} v{version}>", made.text, made.names, "write")


@cache
def _compile_step_writer(declared: type[Any], version: int) -> Callable[..., Any]:
    _check_version(declared, version)
    made = WriterText(declared, version, in_steps=True)
    return _compile(f"<step {declared.__name__} v{version}>", made.text, made.names, "write")


def _compile(title: str, text: str, names: dict[str, Any], function: str) -> Callable[..., Any]:
    linecache.cache[title] = (len(text), None, text.splitlines(keepends=True), title)
    # The source is generated from our own declarations, never from a peer's bytes.
    exec(compile(text, title, "exec"), names)  # noqa: S102
    return cast("Callable[..., Any]", names[function])


def _check_version(declared: type[Any], version: int) -> None:
    wire = wire_of(declared)
    first, last = wire.versions
    if not first <= version <= last:
        raise ValueError(f"{wire.name} has versions {first}-{last}, not {version}")
