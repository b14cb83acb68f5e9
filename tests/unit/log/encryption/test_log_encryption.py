"""`log.encryption.log_encryption`, `key_file` and `Log`: what encryption does to a log's
files."""

import random
from dataclasses import replace

import pytest

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.log import files as store
from penstock.log.config import LogConfig
from penstock.log.encryption import key_file
from penstock.log.log import Log
from penstock.log.read_span import ReadSpan
from penstock.log.segment import Segment
from penstock.security.keyring import Keyring, kek_of
from penstock.wire.records import ENCRYPTED, Codec, Record, batches, check_batch, encode
from simulation.disk import SimDisk
from simulation.random import SimRandom
from tests.unit.log.building import (
    NOW_MS,
    PATH,
    SMALL,
    append,
    batch,
    fill,
    flush,
    make_disk,
    make_keyring,
    marker,
    offsets,
    read_all,
)

ON = replace(SMALL, encrypted=True)
PLANTED = b"planted-plaintext"


def open_with(disk: SimDisk, ring: Keyring | None, config: LogConfig = ON) -> Log:
    return Log.open(disk, PATH, config, NOW_MS, None, ring)


def on_disk(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.open(path).read(0, disk.size(path)) for path in disk.files()}


def kinds(log: Log) -> list[bool | None]:
    return [segment.find_kind() for segment in log.segments]


def test_served_bytes_equal_the_appended_ones() -> None:
    log = open_with(make_disk(), make_keyring())
    made = batch([PLANTED, b"x" * 300], key=PLANTED, codec=Codec.ZSTD)
    append(log, made)
    flush(log)
    span = log.locate(0, 1000, log.end_offset)
    assert span is not None
    for data in (span.read_cached(), span.read()):
        assert data is not None
        assert bytes(data) == bytes(made)


def test_sealed_slice_decrypts_whole_batches_as_appended() -> None:
    log = open_with(make_disk(), make_keyring(), replace(ON, segment_bytes=1 << 20))
    made = [batch([PLANTED, bytes([at]) * 300]) for at in range(6)]
    for one in made:
        append(log, one)
    flush(log)
    segment = log.segments.active
    for cut in (0, 1):  # Half a batch at the end is left out.
        span = ReadSpan(segment, 0, 1 << 20, log.end_offset, 0, segment.size - cut)
        assert span.slice() is None
        slice_ = span.sealed_slice()
        assert slice_ is not None
        assert not slice_.send_to(-1)
        promised = len(slice_)
        taken = []
        while len(slice_):
            taken.append(bytes(slice_.take(400)))
        assert b"".join(taken) == bytes(span.read())
        assert len(taken) > 1
        assert promised == sum(len(one) for one in made[: len(made) - cut])


def test_sealed_slice_that_does_not_decrypt_ends_the_connection() -> None:
    log = open_with(make_disk(), make_keyring())
    append(log, batch([b"a" * 300]))
    flush(log)
    span = log.locate(0, 1000, log.end_offset)
    assert span is not None
    slice_ = span.sealed_slice()
    assert slice_ is not None
    damaged = bytearray(slice_._data)
    damaged[-1] ^= 1
    slice_._data = memoryview(damaged)
    with pytest.raises(EOFError, match="changed on disk"):
        slice_.take(1)
    assert span.sealed_slice() is None


def test_encrypted_content_is_in_no_file() -> None:
    disk = make_disk()
    log = open_with(disk, make_keyring())
    for sequence in range(20):
        headers = ((PLANTED.decode(), PLANTED),)
        record = Record(timestamp=NOW_MS, key=PLANTED, value=PLANTED, headers=headers)
        view = memoryview(encode([record], producer_id=5, producer_epoch=0, base_sequence=sequence))
        append(log, view)
    append(log, batch([PLANTED], producer=(9, 0, 0), transactional=True))
    append(log, marker(9, 0, committed=False))
    flush(log)
    assert log.close() is not None
    files = on_disk(disk)
    assert [path for path, content in files.items() if PLANTED in content] == []
    sealed = [path for path in files if path.endswith((*store.CACHES, store.SNAPSHOT))]
    assert sealed
    assert all(files[path].startswith(store.ENCRYPTED_SEAL) for path in sealed)
    assert any(path.endswith(store.TXN_INDEX) for path in sealed)


def test_sealed_caches_spare_the_next_start_a_scan() -> None:
    disk, ring = make_disk(), make_keyring()
    log = open_with(disk, ring)
    fill(log, 20)
    flush(log)
    log.close()
    segment = open_with(disk, ring).segments[0]
    twin = segment.peek()
    assert twin.index is not None
    assert len(twin.index) > 0
    outsider = Segment.open(disk, PATH, 0, 200)
    assert list(outsider.load().keys) == list(twin.index.keys), "without the key: from the headers"


def test_log_whose_topic_is_switched_rolls_and_serves_both_kinds() -> None:
    disk, ring = make_disk(), make_keyring()
    log = open_with(disk, ring, SMALL)
    assert not log.cipher.has_key
    fill(log, 2)
    log.config = ON
    fill(log, 2)
    log.config = SMALL
    fill(log, 2)
    assert kinds(log) == [False, True, False]
    assert offsets(read_all(log)) == list(range(6))
    flush(log)
    log = open_with(disk.crashed(random.Random(1)), ring, ON)
    assert offsets(read_all(log)) == list(range(6))
    fill(log, 1)
    assert kinds(log) == [False, True, False, True]


def test_empty_segment_takes_the_kind_of_its_first_batch() -> None:
    log = open_with(make_disk(), make_keyring(), SMALL)
    log.config = ON
    fill(log, 1)
    assert kinds(log) == [True]


def test_every_opened_or_cut_segment_goes_on_with_another_key() -> None:
    disk, ring = make_disk(), make_keyring()
    log = open_with(disk, ring)
    fill(log, 3)
    log.sync()
    log.truncate_to(2, NOW_MS)
    fill(log, 1)
    flush(log)
    log.close()
    log = open_with(disk, ring)
    fill(log, 1)
    data = log.segments[0].file.read(0, log.segments[0].size)
    salts = [data[at + 61 : at + 73] for at, _ in batches(memoryview(data))]
    assert len(salts) == 4
    assert salts[0] == salts[1]
    assert len(set(salts)) == 3


def test_log_without_a_key_writes_nothing_in_clear() -> None:
    log = open_with(make_disk(), None)
    assert log.offline is not None
    assert "encryption.kek.source" in log.offline
    log = open_with(make_disk(), None, SMALL)
    log.config = ON
    with pytest.raises(Refused, match=r"encryption\.kek\.source") as refused:
        fill(log, 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.end_offset == 0


@pytest.mark.parametrize("ring", [None, make_keyring(seed=99)])
def test_wrong_or_missing_key_takes_the_log_offline_and_touches_nothing(
    ring: Keyring | None,
) -> None:
    disk = make_disk()
    log = open_with(disk, make_keyring())
    fill(log, 10)
    log.close()
    before = on_disk(disk)
    locked = open_with(disk, ring)
    assert locked.offline is not None
    assert on_disk(disk) == before
    assert offsets(read_all(open_with(disk, make_keyring()))) == list(range(10))


def test_damaged_key_file_takes_the_log_offline() -> None:
    disk = make_disk()
    fill(open_with(disk, make_keyring()), 1)
    disk.flip_bit(f"{PATH}/key", 100)
    assert "damaged" in (open_with(disk, make_keyring()).offline or "")


def test_tampering_that_the_crc_does_not_see_is_never_served() -> None:
    """An attacker with write access to the disk can forge a CRC, but not a tag."""
    disk, ring = make_disk(), make_keyring()
    log = open_with(disk, ring)
    fill(log, 3)
    flush(log)
    log.close()
    file = disk.open(f"{PATH}/{store.file_name(0, store.LOG)}")
    data = bytearray(file.read(0, file.size()))
    first, second = list(batches(memoryview(data)))[:2]
    swapped = data.copy()
    body = slice(second[0] + 61, second[0] + second[1].size_bytes)
    swapped[body] = data[first[0] + 61 : first[0] + first[1].size_bytes]
    _reseal(swapped, second[0], second[1].size_bytes)
    file.truncate(0)
    file.append((bytes(swapped),))
    file.sync()
    tampered = open_with(disk, ring)
    span = tampered.locate(1, 100, 3)
    assert span is not None
    assert span.read_cached() is None
    with pytest.raises(Corrupt, match="changed on disk"):
        span.read()


def _reseal(data: bytearray, at: int, size: int) -> None:
    import crc32c

    crc = crc32c.crc32c(memoryview(data)[at + 21 : at + size])
    data[at + 17 : at + 21] = crc.to_bytes(4, "big")


def test_batch_with_the_encrypted_bit_is_refused() -> None:
    made = memoryview(encode([Record(value=b"v")], attributes=ENCRYPTED))
    with pytest.raises(Refused, match="ENCRYPTED"):
        check_batch(made)
    log = open_with(make_disk(), None, SMALL)
    with pytest.raises(Refused, match="encrypted batch"):
        log.append_replica(made, NOW_MS)


def test_replica_seals_runs_of_batches_with_its_own_key() -> None:
    leader, follower = (
        open_with(make_disk(1), make_keyring(1)),
        open_with(make_disk(2), None, SMALL),
    )
    own = open_with(make_disk(3), make_keyring(3))
    fill(leader, 12, value=b"v")
    offset = 0
    while offset < 12:
        span = leader.locate(offset, 300, 12)
        assert span is not None
        view = memoryview(bytearray(span.read()))
        for log in (follower, own):
            assert log.append_replica(view, NOW_MS) == len(view)
        offset = own.end_offset
    assert read_all(own) == read_all(leader) == read_all(follower)
    assert kinds(own)[0] is True
    assert all(segment.size <= SMALL.segment_bytes for segment in own.segments)


# The key file.


def test_rewrap_changes_only_the_wrapping_and_reports_whether_it_did() -> None:
    disk, randomness = make_disk(), SimRandom(3)
    old, new = kek_of(b"o" * 32), kek_of(b"n" * 32)
    ring = Keyring([old], randomness)
    log = open_with(disk, ring)
    fill(log, 5)
    flush(log)
    ring.replace([new, old])
    assert key_file.rewrap(disk, PATH, log.cipher)
    assert not key_file.rewrap(disk, PATH, log.cipher)
    fill(log, 5)
    flush(log)
    after = disk.crashed(random.Random(1))
    assert offsets(read_all(open_with(after, Keyring([new], randomness)))) == list(range(10))
    assert open_with(after, Keyring([old], randomness)).offline is not None


@pytest.mark.parametrize("step", range(1, 8))
def test_power_cut_while_a_key_is_rewrapped_leaves_one_of_the_two(step: int) -> None:
    disk, randomness = make_disk(), SimRandom(3)
    old, new = kek_of(b"o" * 32), kek_of(b"n" * 32)
    ring = Keyring([old], randomness)
    log = open_with(disk, ring)
    fill(log, 5)
    flush(log)
    ring.replace([new, old])
    cuts: list[SimDisk] = []
    begun = disk.operations

    def cut() -> None:
        if disk.operations == begun + step:
            cuts.append(disk.crashed(random.Random(step)))

    disk.on_operation = cut
    key_file.rewrap(disk, PATH, log.cipher)
    disk.on_operation = None
    for after in cuts:
        assert offsets(read_all(open_with(after, ring))) == list(range(5))


def test_shredded_log_cannot_be_read() -> None:
    disk, ring = make_disk(), make_keyring()
    log = open_with(disk, ring)
    fill(log, 5)
    flush(log)
    wrapped = key_file.peek(disk, PATH)
    assert wrapped is not None
    key_file.shred(disk, PATH)
    for after in (disk, disk.crashed(random.Random(1))):
        assert all(wrapped.key not in content for content in on_disk(after).values())
        with pytest.raises(Corrupt):
            open_with(after, ring, SMALL).segments[0].read_batch(
                0, next(iter(open_with(after, ring, SMALL).segments[0].headers()))[1]
            )
    key_file.shred(disk, PATH)
