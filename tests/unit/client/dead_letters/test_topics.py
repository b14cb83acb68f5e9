"""Dead-letter topics, and kinds of dead letters."""

from dataclasses import replace

from penstock.client.admin.admin import Admin
from penstock.client.dead_letters.grouping import KINDS_MAX, OTHER_KINDS, DeadLetterKinds
from penstock.client.dead_letters.topics import DeadLetterTopic, list_dead_letter_topics
from tests.run_with import run_with
from tests.unit.client.dead_letters.test_redrive import DEAD_LETTER, dead_letter
from tests.unit.client.on_cluster import Desk, on_cluster


@run_with(on_cluster)
async def test_dead_letter_topics_are_found_by_name_and_config(desk: Desk) -> None:
    for name in ("t", "t.dlq", "configured", "plain"):
        await desk.admin.create_topic(name, 2, 1)
    await dead_letter(desk, 3)
    name = "errors.deadletterqueue.topic.name"
    await Admin(desk.cluster).alter_configs(32, "g", {name: "configured"})
    configured, messages = await list_dead_letter_topics(desk.cluster)
    assert configured == DeadLetterTopic("configured", 2, 0, None)
    assert (messages.topic, messages.messages) == ("t.dlq", 3)
    assert messages.oldest_ms is not None


def test_dead_letters_are_counted_by_kind() -> None:
    kinds = DeadLetterKinds("class")
    for number, error in enumerate(("A", "B", "A")):
        kinds.add(
            replace(DEAD_LETTER, offset=number, error_class=error, last_failure_ms=100 + number)
        )
    first, second = kinds.largest()
    assert (first.name, first.count, first.first_ms, first.last_ms) == (("A",), 2, 100, 102)
    assert (second.name, second.sample) == (("B",), "1:1")


def test_kinds_beyond_the_limit_are_counted_together() -> None:
    kinds = DeadLetterKinds("key")
    for number in range(KINDS_MAX + 5):
        kinds.add(replace(DEAD_LETTER, key=b"%d" % number))
    assert kinds.count == KINDS_MAX + 5
    assert kinds.largest()[0].name == (OTHER_KINDS,)
    assert kinds.largest()[0].count == 5
