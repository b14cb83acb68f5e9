"""Work at a rate, by the loop's clock."""

import asyncio

from penstock.client.pacing import PORTION_MAX, Pace
from simulation.loop import SimLoop


def times_of(pace_of: float | None, counts: list[int]) -> list[float]:
    async def main() -> list[float]:
        pace = Pace(pace_of)
        begun = asyncio.get_running_loop().time()
        found = []
        for count in counts:
            await pace.wait(count)
            found.append(asyncio.get_running_loop().time() - begun)
        return found

    return SimLoop(1).run(main())


def test_unlimited_pace_never_waits() -> None:
    assert times_of(None, [1_000, 1_000]) == [0, 0]


def test_each_portion_waits_for_earlier_ones() -> None:
    assert [round(time, 6) for time in times_of(10, [5, 5, 10, 1])] == [0, 0.5, 1.0, 2.0]


def test_portions_last_about_200_ms_and_are_at_least_one() -> None:
    assert Pace(1).portion == 1
    assert Pace(100).portion == 20
    assert Pace(None).portion == PORTION_MAX
