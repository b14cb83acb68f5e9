"""Simulated run with a topic that is deleted and recreated again and again, and its group.

A `coordinator_run` with another workload (`workloads.topic_recreator`) and another checker
(`checkers.offset_topic_ids`). Other faults happen meanwhile, as in every run.
"""

from simulation.coordinator_run import REPLICAS_MAX, SETTLE_S, Options, Run
from simulation.workloads.topic_recreator import Recreator
from simulation.world import World


class RecreationRun(Run):
    """Recreation run of one seed."""

    def __init__(self, world: World, options: Options) -> None:
        super().__init__(world, options)
        self.recreator = Recreator(world, min(REPLICAS_MAX, len(options.node_ids)))

    def _start(self) -> None:
        super()._start()
        task = self.world.loop.create_task(self.recreator.live())
        task.add_done_callback(self._ended)
        self.tasks.append(task)

    def _heal(self) -> None:
        self.recreator.calm()
        super()._heal()

    async def _settle(self) -> None:
        await super()._settle()
        recreating = self.tasks[-1]
        await self.world.until("nothing is created any more", SETTLE_S, recreating.done)

    async def _check(self) -> None:
        await self.world.until("the committed offset is read", SETTLE_S, self.recreator.read)
