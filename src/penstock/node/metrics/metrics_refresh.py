"""Measurements taken only while the node is scraped: group lag, partition skew, loop delay.

None of them runs before the first scrape, nor once scrapes have stopped for some minutes
(`ScrapeActivity`). The first scrape starts them; values are available at the second.
"""

import asyncio

from penstock.base.metrics import Histogram
from penstock.base.scrape_activity import ScrapeActivity
from penstock.cluster.storage import partition_skew
from penstock.cluster.storage.partition_skew import PartitionSkew
from penstock.coordinator import group_lag
from penstock.coordinator.group_lag import GroupWatch
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.runtime.shard_host import HostContext

BEAT_SECONDS = 0.1


class Watching:
    def __init__(self, around: HostContext, groups: GroupCoordinator, loop_lag: Histogram) -> None:
        self.scrape_activity = ScrapeActivity()
        self.groups = GroupWatch(around, groups)
        self.skew = PartitionSkew(around.partitions)
        self._loop_lag = loop_lag

    async def run(self) -> None:
        """Measures until cancelled."""
        await asyncio.gather(self._look_at_groups(), self._look_at_topics(), self._time_loop())

    async def _look_at_groups(self) -> None:
        while True:
            await self.scrape_activity.wait()
            await self.groups.run_round()
            await asyncio.sleep(group_lag.ROUND_SECONDS)

    async def _look_at_topics(self) -> None:
        while True:
            await self.scrape_activity.wait()
            await self.skew.run_round()
            await asyncio.sleep(partition_skew.ROUND_SECONDS)

    async def _time_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.scrape_activity.wait()
            due_s = loop.time() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            self._loop_lag.observe(max(0.0, loop.time() - due_s))
