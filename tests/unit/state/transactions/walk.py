"""Long random histories of the transaction world, each named by its seed."""

import random
from collections import Counter

from penstock.state.transactions.records import EPOCH_MAX
from tests.unit.state.transactions.world import PARTITIONS, TIMEOUT_MS, World

EPOCHS = (0, EPOCH_MAX - 6, EPOCH_MAX - 3)


def walk(seed: int, steps: int = 300) -> Counter[str]:
    """Runs one long random history and returns its events."""
    choose = random.Random(seed)
    world = World(choose.choice(EPOCHS))
    for _ in range(steps):
        step(world, choose)
        world.host.tick()
    world.check()
    world.settle()
    return world.seen


def step(world: World, choose: random.Random) -> None:
    at, soon = choose.choice((0, 1, 2, 3, 3, 4, 4, 4)), choose.random() < 0.7
    again = choose.random() < 0.4
    action = choose.choices(
        ("init", "produce", "finish", "arrive", "commit", "append", "markers", "report", "time"),
        (5, 22, 14, 8, 10, 14, 12, 14, 4),
    )[0]
    if action == "init":
        world.initialise(at, recover=choose.random() < 0.5, at_once=soon)
    elif action == "produce":
        world.produce(at, choose.choice(PARTITIONS), soon)
    elif action == "finish":
        world.finish(at, choose.random() < 0.7, soon)
    elif action == "arrive" and world.network:
        world.arrive(choose.randrange(len(world.network)), again)
    elif action == "commit":
        world.commit(choose.choice((None, 1, 2)))
    elif action == "append" and world.writes:
        world.append(choose.randrange(len(world.writes)))
    elif action == "markers" and world.host.markers:
        at = choose.randrange(len(world.host.markers))
        world.write_markers(at, again, only_first=choose.random() < 0.3)
    elif action == "report" and world.reports:
        world.report(choose.randrange(len(world.reports)), again)
    elif action == "time":
        if choose.random() < 0.5:
            world.crash(choose.randrange(3))
        else:
            world.wait(choose.choice((1, 300, TIMEOUT_MS)))
