"""A follower's fetch can show a leader that it has lost what was committed."""

import pytest
from msgspec.structs import replace

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata import store_keys
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.replicating import (
    NO_HIGH_WATERMARK,
    Copier,
    append,
    led,
    replicate,
    rows,
)


async def ask(node: Node, offset: int, high_watermark: int, last_fetched_epoch: int = 3) -> int:
    copier = Copier(node)
    part = copier.part(offset, high_watermark=high_watermark, last_fetched_epoch=last_fetched_epoch)
    found = rows(await copier.open(part))
    return found[0].error_code if found else 0


@run_with(on_node)
async def test_leader_below_a_follower_high_watermark_goes_offline(
    node: Node,
) -> None:
    await replicate(node)
    append(node)
    partition = led(node)
    assert await ask(node, 5, 4) == ErrorCode.KAFKA_STORAGE_ERROR
    log = partition.log
    assert log.is_lost
    assert log.offline is not None
    assert "ends at 1" in log.offline
    assert "node 2" in log.offline
    assert "up to 4" in log.offline
    assert partition.known_end == 4, "the next life knows it, too"


@pytest.mark.parametrize(
    ("offset", "high_watermark"),
    [
        (5, 1),  # It is only further on than we are: its own epoch says what of that counts.
        (5, NO_HIGH_WATERMARK),  # It does not say.
        (5, -1),
        (1, 1),
        (3, 7),  # It cannot know of more than it has.
    ],
)
@run_with(on_node)
async def test_valid_follower_offsets_do_not_take_a_leader_offline(
    node: Node, *, offset: int, high_watermark: int
) -> None:
    await replicate(node)
    append(node)
    await ask(node, offset, high_watermark)
    assert led(node).log.offline is None


@run_with(on_node)
async def test_follower_may_know_more_after_an_unclean_election(node: Node) -> None:
    await replicate(node)
    append(node)
    await elect_uncleanly(node, unreconciled=(2,))
    await ask(node, 5, 4, last_fetched_epoch=2)
    assert led(node).log.offline is None
    await ask(node, 5, 4, last_fetched_epoch=3)
    assert led(node).log.is_lost, "that one has followed this very leader"


async def elect_uncleanly(node: Node, unreconciled: tuple[int, ...], epoch: int = 3) -> None:
    record = replace(
        led(node).record,
        unclean_epoch=epoch,
        is_recovering=True,
        unreconciled=unreconciled,
        partition_epoch=11,
    )
    topic = node.ctx.image.topics["t"]
    await node.put(store_keys.partition_key(topic.id, 0), record)


@run_with(on_node)
async def test_follower_in_sync_since_an_unclean_election_proves_a_loss(
    node: Node,
) -> None:
    """Nothing was written since the election: both logs end in an epoch of before it."""

    await replicate(node)
    append(node)
    await elect_uncleanly(node, unreconciled=(3,), epoch=4)
    await ask(node, 5, 4, last_fetched_epoch=3)
    assert led(node).log.is_lost


@run_with(on_node)
async def test_log_from_before_an_unclean_election_proves_no_loss(
    node: Node,
) -> None:
    """Its directory was put back from an older copy."""

    await replicate(node)
    append(node)
    await elect_uncleanly(node, unreconciled=(3,), epoch=3)
    await ask(node, 5, 4, last_fetched_epoch=2)
    assert led(node).log.offline is None
