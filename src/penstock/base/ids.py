"""Types for the plain values that all layers pass on.

They are NewTypes: free at run time, distinguished by the type checker. Annotate hot loops with
them, but do not call them there.
"""

import base64
from typing import NewType

Offset = NewType("Offset", int)
"""Position in a partition's log, counted in records."""

Epoch = NewType("Epoch", int)
"""Leader epoch, producer epoch or member epoch: fences requests of earlier epochs."""

NodeId = NewType("NodeId", int)
Millis = NewType("Millis", int)
"""Wall-clock milliseconds since 1970, or a duration where the name says so."""

TopicId = NewType("TopicId", bytes)
"""Sixteen bytes; shown like in Kafka, in URL-safe base64 without padding."""

NO_TOPIC_ID = TopicId(bytes(16))


def show_topic_id(topic_id: TopicId) -> str:
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def parse_topic_id(text: str) -> TopicId:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a topic id: a topic id has 22 base64 characters")
    return TopicId(raw)
