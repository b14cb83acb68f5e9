"""The delivery machine against a model that watches every record, with crashes in between."""

import pytest

from penstock.state.queues.policy import Order
from tests.property.queue_world import World

SEEDS = 60


@pytest.mark.parametrize("order", list(Order), ids=lambda order: order.value)
def test_random_histories_keep_the_delivery_invariants(order: Order) -> None:
    crashes = 0
    for seed in range(SEEDS):
        world = World(seed, order)
        world.run()
        crashes += world.crashes
    assert crashes > SEEDS
