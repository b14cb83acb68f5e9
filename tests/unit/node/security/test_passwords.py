"""Passwords are checked in turn, and those that were right are not checked again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.node.security import passwords
from penstock.node.security.passwords import CHECKS_MAX, PROVEN_MAX, PROVEN_SECONDS, Passwords
from penstock.security import scram
from penstock.security.scram import Credential
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from tests.run_with import run_with

MECHANISM = "SCRAM-SHA-256"
HERE, THERE = "192.0.2.1", "192.0.2.2"
CHECK_S = 0.004
P = ParamSpec("P")
T = TypeVar("T")


def kept_of(password: str, salt: bytes = b"salt") -> Credential:
    salted = scram.salted_password(MECHANISM, password, salt, 1)
    return scram.credential_of(MECHANISM, salted, salt, 1)


KEPT = kept_of("right")


class SlowWorkers:
    """Each check takes its time, and like a thread it cannot be cancelled."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.under_way = self.under_way_most = 0
        self.is_full = False
        self.as_one_ends: Callable[[], object] = lambda: None

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        if self.is_full:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "overloaded")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.checked.append(str(args[-1]))
        self.under_way += 1
        self.under_way_most = max(self.under_way, self.under_way_most)

        def finish() -> None:
            self.under_way -= 1
            if not future.done():
                future.set_result(work(*args, **kwargs))
            self.as_one_ends()

        loop.call_later(CHECK_S, finish)
        return future


class World:
    def __init__(self) -> None:
        self.workers = SlowWorkers()
        self.passwords = Passwords(self.workers, SimRandom(0))

    def ask(
        self, password: str, peer: str, name: str = "bob", kept: Credential = KEPT
    ) -> "asyncio.Task[bool]":
        asked = self.passwords.fits(MECHANISM, kept, name, password, peer)
        return asyncio.get_running_loop().create_task(asked)


def in_world(test: Callable[[World], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        await test(World())

    run(main)


@run_with(in_world)
async def test_password_check_from_another_address_does_not_wait_behind_a_flood(
    world: World,
) -> None:
    flood = [world.ask(f"wrong {number}", THERE) for number in range(200)]
    await asyncio.sleep(0)
    assert await world.ask("right", HERE)
    assert world.workers.checked == ["wrong 0", "right"]
    assert not any(await asyncio.gather(*flood))
    assert len(world.workers.checked) == 201
    assert world.workers.under_way_most == CHECKS_MAX


@run_with(in_world)
async def test_password_check_of_another_user_from_the_same_address_waits_its_turn(
    world: World,
) -> None:
    for number in range(200):
        world.ask(f"wrong {number}", HERE, "admin")
    await asyncio.sleep(0)
    assert await world.ask("right", HERE)
    assert world.workers.checked[:3] == ["wrong 0", "wrong 1", "right"]


@run_with(in_world)
async def test_user_under_attack_can_log_in(world: World) -> None:
    assert await world.ask("right", HERE)
    flood = [world.ask(f"wrong {number}", HERE) for number in range(50)]
    await asyncio.sleep(0)
    checked = len(world.workers.checked)
    assert await world.ask("right", HERE), "it was right a moment ago"
    assert len(world.workers.checked) == checked
    assert not any(await asyncio.gather(*flood))
    assert await world.ask("right", THERE)


@run_with(in_world)
async def test_failing_address_is_limited_to_part_of_one_processor(world: World) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for number in range(20):
        assert not await world.ask(f"wrong {number}", THERE)
    assert world.workers.under_way_most == 1
    assert loop.time() - began_s > 3 * 20 * CHECK_S


@run_with(in_world)
async def test_verified_password_is_cached_until_it_changes_or_expires(
    world: World,
) -> None:
    for _ in range(3):
        assert await world.ask("right", HERE)
    assert world.workers.checked == ["right"]
    assert not await world.ask("right", HERE, kept=kept_of("new")), "it has changed"
    assert await world.ask("right", HERE, kept=kept_of("right", b"another salt"))
    assert await world.ask("right", HERE, name="ann"), "she has the same one"
    assert len(world.workers.checked) == 4
    await asyncio.sleep(PROVEN_SECONDS)
    assert await world.ask("right", HERE)
    assert len(world.workers.checked) == 5


@run_with(in_world)
async def test_wrong_password_is_not_cached(world: World) -> None:
    for _ in range(3):
        assert not await world.ask("wrong", HERE)
    assert len(world.workers.checked) == 3


@run_with(in_world)
async def test_oldest_verified_password_is_evicted(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PROVEN_MAX >= 10_000, "as many as there may be users"
    monkeypatch.setattr(passwords, "PROVEN_MAX", 2)

    for name in ("ann", "bob", "cid"):
        assert await world.ask("right", HERE, name)
    assert await world.ask("right", HERE, "cid")
    assert await world.ask("right", HERE, "bob")
    assert len(world.workers.checked) == 3
    assert await world.ask("right", HERE, "ann")
    assert len(world.workers.checked) == 4


@run_with(in_world)
async def test_concurrent_logins_of_a_user_need_one_check(world: World) -> None:
    clients = [world.ask("right", HERE) for _ in range(500)]
    assert all(await asyncio.gather(*clients))
    assert world.workers.checked == ["right"]


@run_with(in_world)
async def test_disconnecting_clients_get_no_more_concurrent_checks(world: World) -> None:
    for number in range(100):
        asked = world.ask(f"wrong {number}", f"198.51.100.{number}")
        await asyncio.sleep(CHECK_S / 100)
        asked.cancel()
    assert world.workers.under_way_most == CHECKS_MAX
    assert len(world.workers.checked) <= 2 * CHECKS_MAX, "who waits and goes is not checked"
    assert await world.ask("right", HERE)


@run_with(in_world)
async def test_cancelled_check_passes_its_turn_on(world: World) -> None:
    first = world.ask("right", HERE)
    await asyncio.sleep(0)
    second = world.ask("wrong", HERE, "ann")
    third = world.ask("right", HERE, "cid")
    world.workers.as_one_ends = second.cancel
    assert all(await asyncio.gather(first, third))
    assert world.workers.checked == ["right", "right"]
    assert second.cancelled()
    called = world.ask("wrong", HERE, "ann")
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(called.cancel)
    assert await world.ask("right", HERE, "dan")


@pytest.fixture
def small_waiting_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "WAITING_MAX", 30)


@pytest.mark.usefixtures("small_waiting_limit")
@run_with(in_world)
async def test_excess_checks_of_an_address_are_refused(world: World) -> None:
    flood = [world.ask(f"wrong {number}", THERE) for number in range(100)]
    await asyncio.sleep(0)
    assert await world.ask("right", HERE)
    assert await world.ask("right", THERE, "ann")
    outcomes = await asyncio.gather(*flood, return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, Refused)]
    assert {one.code for one in refused} == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert outcomes.count(False) == 100 - len(refused) == 11, "ten wait for the first"


@run_with(in_world)
async def test_turn_is_released_when_the_workers_are_full(world: World) -> None:
    world.workers.is_full = True
    with pytest.raises(Refused, match="overloaded"):
        await world.ask("right", HERE)
    world.workers.is_full = False
    assert await world.ask("right", HERE)
