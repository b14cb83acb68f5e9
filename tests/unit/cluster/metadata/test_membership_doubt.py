"""A node that is not sure of its place: when its word counts again, and whom it sends away."""

import asyncio

from penstock.base.ports import Delete
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.membership import AVOIDED_SECONDS
from tests.run_with import run_with
from tests.unit.cluster.metadata.test_membership import RECORD, SESSION_S, World, in_world


@run_with(in_world)
async def test_new_registration_is_valid_once_the_image_shows_it(world: World) -> None:
    shown = asyncio.Event()

    async def reached(revision: int) -> None:
        await shown.wait()
        await world.watcher.reached(revision)

    await world.join()
    assert not world.membership.is_fenced
    world.membership.reached = reached
    epoch = world.membership.epoch
    await world.store.commit([], [Delete(store_keys.broker_key(1))])
    await asyncio.sleep(SESSION_S / 2)
    found = await world.registered()
    assert found is not None
    assert found.epoch > epoch, "it has not registered again"
    assert world.membership.is_fenced
    shown.set()
    await asyncio.sleep(0.1)
    assert not world.membership.is_fenced


@run_with(in_world)
async def test_fenced_node_redirects_clients_for_a_limited_time(
    world: World,
) -> None:
    membership = world.membership
    assert membership.may_be_stale, "it has no place yet"
    await world.join()
    assert not membership.may_be_stale
    world.etcd.down = True
    await asyncio.sleep(SESSION_S + 1)
    assert membership.is_fenced
    assert membership.may_be_stale
    await asyncio.sleep(AVOIDED_SECONDS)
    assert membership.is_fenced
    assert not membership.may_be_stale
    world.etcd.down = False
    await asyncio.sleep(SESSION_S)
    assert not membership.is_fenced
    assert not membership.may_be_stale


@run_with(in_world)
async def test_node_that_was_suspended_redirects_clients_at_once(
    world: World,
) -> None:
    await world.join()
    world.membership.valid_until = world.loop.time()
    assert world.membership.may_be_stale


@run_with(in_world, is_leased=False)
async def test_single_node_never_redirects_clients(world: World) -> None:
    assert not world.membership.may_be_stale
    await world.membership.register(RECORD)
    assert not world.membership.may_be_stale
