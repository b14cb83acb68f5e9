"""The codecs: framing that other clients insist on, and outputs that stay within their budget."""

import gzip
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cramjam
import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.wire.compression import (
    CODEC_MAX,
    Codec,
    _zstd_content_bytes,
    compress,
    decompress,
)

TEXT = b"".join(b"line %d of a text that compresses\n" % number for number in range(5_000))
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def code_of(codec: int, data: bytes, bytes_max: int = 1 << 20) -> ErrorCode:
    with pytest.raises(Refused) as refusal:
        decompress(codec, data, bytes_max)
    return refusal.value.code


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("content", [b"", b"x", TEXT, bytes(100_000)])
def test_compression_round_trips(codec: Codec, content: bytes) -> None:
    for form in (content, bytearray(content), memoryview(content)):
        assert decompress(codec, memoryview(compress(codec, form)), len(content)) == content


@pytest.mark.parametrize("codec", COMPRESSED)
def test_text_becomes_smaller(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 3


@pytest.mark.parametrize("codec", list(Codec))
def test_budget_is_exact(codec: Codec) -> None:
    data = compress(codec, TEXT)
    assert len(decompress(codec, data, len(TEXT))) == len(TEXT)
    assert code_of(codec, data, len(TEXT) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(codec, data, 0) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_frame_is_corrupt(codec: Codec) -> None:
    data = compress(codec, TEXT)
    for cut in (1, 3, len(data) // 2, len(data) - 5, len(data)):
        assert code_of(codec, data[: len(data) - cut]) is ErrorCode.CORRUPT_MESSAGE, cut


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_after_the_frame_are_corrupt(codec: Codec) -> None:
    assert code_of(codec, compress(codec, TEXT) + b"garbage") is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_another_codecs_frame_is_corrupt(codec: Codec) -> None:
    for other in COMPRESSED:
        if other is not codec:
            assert code_of(codec, compress(other, TEXT)) is ErrorCode.CORRUPT_MESSAGE, other


@pytest.mark.parametrize("codec", [CODEC_MAX + 1, 7, -1])
def test_unknown_codec_is_unsupported(codec: int) -> None:
    assert code_of(codec, b"") is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(Refused):
        compress(codec, b"")


def test_gzip_is_one_member() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT), len(TEXT)) == TEXT
    assert code_of(Codec.GZIP, gzip.compress(b"") * 2) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(Codec.GZIP, zlib.compress(TEXT)) is ErrorCode.CORRUPT_MESSAGE


def test_snappy_is_written_in_xerial_blocks() -> None:
    data = compress(Codec.SNAPPY, TEXT)
    assert data[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (size,) = struct.unpack_from(">i", data, 16)
    assert bytes(cramjam.snappy.decompress_raw(data[20 : 20 + size])) == TEXT[: 32 << 10]


def test_raw_snappy_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, len(TEXT)) == TEXT


@pytest.mark.parametrize("size", [-1, 0, 1_000, 2**31 - 1])
def test_snappy_block_must_fit(size: int) -> None:
    header = compress(Codec.SNAPPY, b"")
    data = header + struct.pack(">i", size) + b"\x03\x08abc"
    assert code_of(Codec.SNAPPY, data) is ErrorCode.CORRUPT_MESSAGE


def test_length_that_snappy_cannot_reach_is_corrupt() -> None:
    declares_a_mebibyte = b"\x80\x80\x40" + b"\x08abc"
    with pytest.raises(Refused, match="7 bytes cannot decompress to 1048576"):
        decompress(Codec.SNAPPY, declares_a_mebibyte, 1 << 30)


def test_snappy_at_its_densest_is_within_the_ratio_believed() -> None:
    raw = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    assert (1 << 20) / len(raw) > 20
    assert decompress(Codec.SNAPPY, raw, 1 << 20) == bytes(1 << 20)


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    data = compress(Codec.LZ4, TEXT)
    assert data[:4] == b"\x04\x22\x4d\x18"
    flags = data[4]
    assert flags >> 6 == 1, "frame version"
    assert flags & 0x20, "block independence"
    assert not flags & 0x08, "no content size"


def test_lz4_with_linked_blocks_and_checksums_is_read() -> None:
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert not linked[4] & 0x20
    assert decompress(Codec.LZ4, linked, len(TEXT)) == TEXT
    damaged = linked[:-1] + bytes([linked[-1] ^ 1])
    assert code_of(Codec.LZ4, damaged) is ErrorCode.CORRUPT_MESSAGE


def zstd_of_zeros(size: int, *, declared: int | None, window_log: int = 17) -> bytes:
    """A frame of run-length blocks, four bytes for every 128 KiB (RFC 8878)."""
    parts = [b"\x28\xb5\x2f\xfd", b"\x00" if declared is None else b"\xc0"]
    parts.append(bytes([(window_log - 10) << 3]))
    if declared is not None:
        parts.append(struct.pack("<Q", declared))
    while size > 0:
        block = min(size, 128 << 10)
        size -= block
        parts.append(struct.pack("<I", (size == 0) | 1 << 1 | block << 3)[:3] + b"\x00")
    return b"".join(parts)


@pytest.mark.parametrize("declared", [None, 300_000])
def test_zstd_frame_may_declare_its_size_or_not(declared: int | None) -> None:
    frame = zstd_of_zeros(300_000, declared=declared)
    assert decompress(Codec.ZSTD, frame, 300_000) == bytes(300_000)
    assert code_of(Codec.ZSTD, frame, 299_999) is ErrorCode.MESSAGE_TOO_LARGE


def test_declared_size_over_the_budget_is_refused_unread() -> None:
    """The frame's blocks are missing, and are never read."""
    header = zstd_of_zeros(0, declared=1 << 30)
    assert code_of(Codec.ZSTD, header, (1 << 30) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(Codec.ZSTD, header, 1 << 30) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 70_000])
def test_every_width_of_a_declared_size_is_read(size: int) -> None:
    """RFC 8878 stores two-byte sizes less 256; the budget sees the size itself."""
    frame = compress(Codec.ZSTD, bytes(size))
    assert _zstd_content_bytes(memoryview(frame)) == size


@pytest.mark.parametrize("declared", [0, 1, 299_999, 300_001])
def test_zstd_frame_that_lies_about_its_size_is_refused(declared: int) -> None:
    frame = zstd_of_zeros(300_000, declared=declared)
    assert code_of(Codec.ZSTD, frame) is ErrorCode.CORRUPT_MESSAGE


def test_zstd_window_beyond_the_limit_is_corrupt() -> None:
    frame = zstd_of_zeros(1_000, declared=None, window_log=28)
    assert code_of(Codec.ZSTD, frame) is ErrorCode.CORRUPT_MESSAGE


def test_several_zstd_frames_are_read_together() -> None:
    frames = compress(Codec.ZSTD, TEXT) + compress(Codec.ZSTD, b"the end")
    assert decompress(Codec.ZSTD, frames, 1 << 20) == TEXT + b"the end"
    assert code_of(Codec.ZSTD, frames, len(TEXT) + 1) is ErrorCode.MESSAGE_TOO_LARGE


def gzip_bomb(size: int) -> bytes:
    deflater = zlib.compressobj(9, wbits=31)
    parts = [deflater.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join(parts) + deflater.flush()


def lz4_bomb(size: int) -> bytes:
    compressor = cramjam.lz4.Compressor()
    parts = []
    for _ in range(size >> 20):
        compressor.compress(bytes(1 << 20))
        parts.append(bytes(compressor.flush()))
    return b"".join(parts) + bytes(compressor.finish())


def snappy_bomb(size: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    blocks = (struct.pack(">i", len(block)) + block) * (size >> 20)
    return compress(Codec.SNAPPY, b"") + blocks


# Runs in its own process, because a peak never goes back. The peak is that of the address space
# (VmHWM): getrusage's would be inherited from the test process.
_DETONATE = """
import sys
from pathlib import Path
from penstock.base.errors import Refused
from penstock.wire.compression import decompress

def peak_kib():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])

data = Path(sys.argv[2]).read_bytes()
before = peak_kib()
try:
    outcome = len(decompress(int(sys.argv[1]), data, int(sys.argv[3])))
except Refused as refusal:
    outcome = refusal.code.name
print(outcome, peak_kib() - before)
"""


@pytest.mark.parametrize("declared", [None, 1 << 30])
@pytest.mark.parametrize("window_log", [17, 27])
def test_32_kib_of_zstd_that_hold_1_gib_stop_at_the_budget(
    tmp_path: Path, declared: int | None, window_log: int
) -> None:
    bomb = zstd_of_zeros(1 << 30, declared=declared, window_log=window_log)
    assert len(bomb) < 33 << 10
    _detonate(Codec.ZSTD, bomb, tmp_path)


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (Codec.GZIP, gzip_bomb(256 << 20)),
        (Codec.LZ4, lz4_bomb(256 << 20)),
        (Codec.SNAPPY, snappy_bomb(256 << 20)),
    ],
    ids=["gzip", "lz4", "snappy"],
)
def test_bomb_stops_at_the_budget(codec: Codec, bomb: bytes, tmp_path: Path) -> None:
    _detonate(codec, bomb, tmp_path)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_refusal_does_not_keep_the_output_buffer(codec: Codec) -> None:
    """A stored error keeps the stack frames that it passed."""
    packed = bytes(
        cramjam.lz4.compress(bytes(4 << 20)) if codec is Codec.LZ4 else _undeclared(4 << 20)
    )
    with pytest.raises(Refused) as refusal:
        decompress(codec, packed, 2 << 20)
    step = refusal.value.__traceback__
    while step is not None:
        for value in step.tb_frame.f_locals.values():
            if isinstance(value, memoryview | bytearray):
                assert len(value) < 1 << 20
        step = step.tb_next


def _undeclared(size: int) -> bytes:
    """A zstd frame that does not say how much it holds."""
    press = cramjam.zstd.Compressor()
    press.compress(bytes(size))
    return bytes(press.finish())


def test_peak_of_a_large_output_is_seen(tmp_path: Path) -> None:
    """Else the tests above would pass whatever happens."""
    frame = zstd_of_zeros(128 << 20, declared=None)
    outcome, peak_kib = _run(Codec.ZSTD, frame, tmp_path, bytes_max=128 << 20)
    assert outcome == str(128 << 20)
    assert peak_kib > 120 << 10


def test_large_output_is_private_memory() -> None:
    """Shared memory comes and goes page by page, and takes far longer."""
    before_kib = _shared_kib()
    output = decompress(Codec.ZSTD, zstd_of_zeros(16 << 20, declared=None), 16 << 20)
    assert len(output) == 16 << 20
    assert _shared_kib() - before_kib < 4 << 10


def _shared_kib() -> int:
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if "RssShmem" in line
    )
    return int(line.split()[1])


def _detonate(codec: Codec, bomb: bytes, folder: Path) -> None:
    """The budget is 8 MiB; the buffer, the one before it and zstd's window may live together."""
    outcome, peak_kib = _run(codec, bomb, folder, bytes_max=8 << 20)
    assert outcome == "MESSAGE_TOO_LARGE"
    assert peak_kib < 32 << 10, f"took {peak_kib} KiB"


def _run(codec: Codec, data: bytes, folder: Path, *, bytes_max: int) -> tuple[str, int]:
    """Result of decompressing it, and growth of the process's peak memory in KiB."""
    path = folder / "data"
    path.write_bytes(data)
    run = subprocess.run(
        [sys.executable, "-c", _DETONATE, str(int(codec)), str(path), str(bytes_max)],
        capture_output=True,
        text=True,
        check=True,
    )
    outcome, peak_kib = run.stdout.split()
    return outcome, int(peak_kib)
