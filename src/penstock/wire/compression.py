"""Compression with Kafka's four codecs; decompression has a strict output limit.

A few kilobytes can declare or produce gigabytes (zstd 1:32,750, gzip 1:1,028), so `decompress`
takes `bytes_max` and never returns more, whatever the input declares. It uses at most about twice
the limit in memory (measured, see the tests):

- gzip: zlib's own `max_length`, one byte above the limit to detect an overrun. One member only: a
  chain of empty members would cost time without output.
- snappy: raw, or in xerial's blocks as Java writes it. The declared lengths of the blocks are
  summed and compared with the limit and with snappy's best ratio before any allocation.
- lz4 and zstd: into a buffer of fixed size. The first size is a guess. If it was too small, a small
  limit is reached by doubling, a large one at once, because mapped memory is only allocated as far
  as it is written. A size declared by a zstd frame is refused above the limit and improves the
  guess, but only up to a likely ratio: memory use follows the bytes that were received. The library
  limits zstd's window to 128 MiB of address space, of which only the written part is touched.

A codec failure is CORRUPT_MESSAGE, an exceeded limit MESSAGE_TOO_LARGE. Every codec releases the
interpreter lock, so large payloads belong in a worker. Java clients require lz4 frames with
independent blocks, and snappy in xerial's framing.
"""

import contextlib
import enum
import mmap
import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Buffer


class Codec(enum.IntEnum):
    """Codec bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_MAX: Final = int(max(Codec))

# Kafka's defaults. For lz4 only level 9 means the fast compressor.
_GZIP_LEVEL: Final = -1
_LZ4_LEVEL: Final = 9
_LZ4_LEVEL_FAST: Final = 1
_ZSTD_LEVEL: Final = 3
_GZIP_WINDOW_BITS: Final = 31  # 15 bits of window, gzip wrapper

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 << 10  # Java's
# Snappy's densest element is a three-byte copy of 64 bytes.
_SNAPPY_RATIO_MAX: Final = 22
_INT32: Final = struct.Struct(">i")

_GUESS_RATIO: Final = 8
_DECLARED_RATIO_MAX: Final = 64
_GUESS_BYTES_MIN: Final = 4 << 10
_MAPPED_BYTES_MIN: Final = 1 << 20
_BUFFER_TOO_SMALL: Final = "failed to write whole buffer"

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compresses `data` as one frame, at one of Kafka's levels; None is the default level."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            level = _GZIP_LEVEL if level is None else level
            return zlib.compress(data, level, wbits=_GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            # The plain function links blocks, which Java clients refuse.
            is_fast = level is None or level == _LZ4_LEVEL
            compressor = cramjam.lz4.Compressor(
                level=_LZ4_LEVEL_FAST if is_fast else level,
                content_checksum=False,
                block_linked=False,
            )
            compressor.compress(bytes(data))
            return bytes(compressor.finish())
        case Codec.ZSTD:
            level = _ZSTD_LEVEL if level is None else level
            return bytes(cramjam.zstd.compress(data, level=level))
        case _:
            raise _unknown(codec)


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """Decompresses `data`, up to `bytes_max` bytes; refuses more."""
    match codec:
        case Codec.NONE:
            if len(data) > bytes_max:
                raise _too_large(bytes_max)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, bytes_max)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), bytes_max)
        case Codec.LZ4:
            return _decompress_into(cramjam.lz4.decompress_into, data, None, bytes_max)
        case Codec.ZSTD:
            declared = _zstd_content_bytes(memoryview(data))
            return _decompress_into(cramjam.zstd.decompress_into, data, declared, bytes_max)
        case _:
            raise _unknown(codec)


def _decompress_gzip(data: Buffer, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        output = inflater.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise _corrupt("gzip", error) from None
    if len(output) > bytes_max:
        raise _too_large(bytes_max)
    if not inflater.eof:
        raise _corrupt("gzip", "the stream is cut short")
    if inflater.unused_data:
        raise _corrupt("gzip", "there are bytes after the end of the stream")
    return output


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, bytes_max: int) -> bytearray:
    blocks = _xerial_blocks(data) if bytes(data[:8]) == _XERIAL_HEADER[:8] else [data]
    try:
        sizes = [_declared_snappy(block) for block in blocks]
        total = sum(sizes)
        if total > bytes_max:
            raise _too_large(bytes_max)
        output = bytearray(total)
        rest = memoryview(output)
        for block, size in zip(blocks, sizes, strict=True):
            if cramjam.snappy.decompress_raw_into(block, rest[:size]) != size:
                raise _corrupt("snappy", "a block is shorter than it declares")
            rest = rest[size:]
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", error) from None
    return output


def _declared_snappy(block: memoryview) -> int:
    size = int(cramjam.snappy.decompress_raw_len(block))
    if size > len(block) * _SNAPPY_RATIO_MAX:
        raise _corrupt("snappy", f"{len(block)} bytes cannot decompress to {size}")
    return size


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    """Raw blocks after xerial's header, whose version fields are ignored."""
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise _corrupt("snappy", "the stream is cut short")
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 < size <= len(data) - position:
            raise _corrupt(
                "snappy", f"a block of {size} bytes, but {len(data) - position} bytes remain"
            )
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _decompress_into(
    into: Callable[[Buffer, Buffer], int], data: Buffer, declared: int | None, bytes_max: int
) -> Buffer:
    """Runs `into` on a buffer of guessed size, then on larger ones up to `bytes_max`.

    Each attempt starts over, so there are few: a decompression bomb costs its sender nothing.
    """
    if declared is not None and declared > bytes_max:
        raise _too_large(bytes_max)
    if declared:
        guess = min(declared, max(len(data) * _DECLARED_RATIO_MAX, _GUESS_BYTES_MIN))
    else:
        guess = max(len(data) * _GUESS_RATIO, _GUESS_BYTES_MIN)
    capacity = min(guess, bytes_max)
    while True:
        output = _buffer(capacity)
        try:
            size = into(data, output)
        except cramjam.DecompressionError as error:
            # Release this buffer before the next one is allocated, and before an error is raised:
            # an exception keeps the frames of its traceback alive.
            del output
            if _BUFFER_TOO_SMALL not in str(error):
                raise _corrupt("the frame", error) from None
            if capacity == bytes_max:
                raise _too_large(bytes_max) from None
            capacity = bytes_max if bytes_max >= _MAPPED_BYTES_MIN else min(capacity * 2, bytes_max)
        else:
            return output[:size]


def _buffer(size: int) -> memoryview:
    """Output buffer. A large one is memory-mapped: a bytearray would clear every page at once, and
    block all other threads meanwhile.

    The mapping is private, with huge pages if available: a page of shared memory (the default) or
    of normal size costs more to allocate and free than to fill. A bomb took three times as long.
    """
    if size < _MAPPED_BYTES_MIN:
        return memoryview(bytearray(size))
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # A kernel without huge pages.
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(mapped)


def _zstd_content_bytes(data: memoryview) -> int | None:
    """Content size declared by the first frame, if any (RFC 8878, 3.1.1.1)."""
    if len(data) < 6 or bytes(data[:4]) != _ZSTD_MAGIC:
        return None
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    field_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
    start = 5 + (not single_segment) + dictionary_bytes
    field = data[start : start + field_bytes]
    if not field_bytes or len(field) < field_bytes:
        return None
    size = int.from_bytes(field, "little")
    return size + 256 if field_bytes == 2 else size


def _corrupt(what: str, why: object) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"{what} does not decompress: {why}")


def _too_large(bytes_max: int) -> Refused:
    return Refused(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch decompresses to more than {bytes_max} bytes: send smaller batches",
    )


def _unknown(codec: int) -> Refused:
    return Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {codec}")
