"""Encoded messages read back equal, at every version, at any position in a buffer."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.codec import reader, writer
from tests.wire.instances import MESSAGES, make


@given(
    st.sampled_from(MESSAGES),
    st.integers(min_value=0),
    st.binary(max_size=20),
    st.binary(max_size=20),
)
@settings(max_examples=1500, deadline=None)
def test_message_round_trips(
    which: tuple[type[Any], int], seed: int, before: bytes, after: bytes
) -> None:
    declared, version = which
    sent = make(random.Random(seed), declared, version)
    parts: list[Any] = []
    writer(declared, version)(sent, parts)
    body = b"".join(parts)

    buffer = memoryview(before + body + after)
    end = len(before) + len(body)
    got, position = reader(declared, version)(buffer, len(before), end)
    assert position == end
    assert got == sent

    again: list[Any] = []
    writer(declared, version)(got, again)
    assert b"".join(again) == body
