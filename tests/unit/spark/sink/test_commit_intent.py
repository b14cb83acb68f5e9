"""Commit intents as text: read back complete, or detected as incomplete."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.producer.identity import ProducerIdentity
from penstock.spark.sink.commit_intent import TEXT_MAX, read_producers, write_producers
from penstock.spark.sink.committed_batches import LEDGER_PARTITIONS

PRODUCERS = st.dictionaries(
    st.integers(0, 99_999),
    st.builds(ProducerIdentity, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 15) - 1)),
    max_size=1_000,
)


@given(PRODUCERS)
def test_producers_round_trip(producers: dict[int, ProducerIdentity]) -> None:
    texts = write_producers(producers)
    assert texts is not None
    assert len(texts) <= LEDGER_PARTITIONS
    assert all(len(text) <= TEXT_MAX for text in texts)
    assert read_producers(texts) == (producers, True)


def test_missing_metadata_is_detected() -> None:
    texts = write_producers({task: ProducerIdentity(task, 0) for task in range(1_000)})
    assert texts is not None
    assert len(texts) > 2
    for missing in range(1, len(texts)):
        _, is_whole = read_producers(texts[:missing] + texts[missing + 1 :])
        assert not is_whole


def test_too_many_producers_have_no_intent() -> None:
    assert write_producers({task: ProducerIdentity(1 << 62, 0) for task in range(3_000)}) is None


def test_empty_metadata_has_no_producers() -> None:
    assert read_producers([""]) == ({}, True)
