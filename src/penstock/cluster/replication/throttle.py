"""Replication throttles: how fast replicas that are not in sync may be copied (KIP-73).

A topic's `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` name
the replicas that are held back, as `partition:node` pairs or `*`; each node holds back those that
name it, to `leader.` or `follower.replication.throttled.rate` bytes a second for all together.
A replica in sync is never held back: producers wait for it.

The bucket holds one second's worth. What is sent or fetched is taken out afterwards, as it comes in
whole responses; then nothing more goes until it is filled again.
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache

from penstock.base.token_bucket import TokenBucket
from penstock.cluster.configs.configs import BrokerConfigs
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.replication.replica_follower import FollowedPartition, ReplicaFollower

UNLIMITED = 2**63 - 1
WAIT_SECONDS_MAX = 1.0
"""A rate may be changed at any time, so no wait is longer than that."""
ALL = None


class Throttle:
    """One side of replication on this node: `leader` or `follower`."""

    def __init__(
        self, side: str, node_id: int, configs: BrokerConfigs, follower: MetadataWatcher
    ) -> None:
        assert side in ("leader", "follower")
        self._rate_name = f"{side}.replication.throttled.rate"
        self._replicas_name = f"{side}.replication.throttled.replicas"
        self._node_id = node_id
        self._configs = configs
        self._follower = follower
        self._bucket = TokenBucket(0, 0)

    def names(self, topic: str, index: int) -> bool:
        """Whether this node's replica of the partition is one to be held back."""
        if self._configs.integer(self._rate_name) == UNLIMITED:
            return False
        known = self._follower.image.topics.get(topic)
        if known is None:
            return False
        text = known.configs.get(self._replicas_name)
        if not text:
            return False
        named = _parse(text, self._node_id)
        return named is ALL or index in named

    def wait_s(self) -> float:
        """How long those that are held back must wait; 0: not at all."""
        bucket, now_s = self._adjusted(), asyncio.get_running_loop().time()
        if bucket.available(now_s) > -1:
            return 0.0  # Less than a byte is no debt.
        return min(bucket.wait_s(now_s), WAIT_SECONDS_MAX)

    def record(self, count: int) -> None:
        """So many bytes of replicas that are held back were copied."""
        self._adjusted().take(count, asyncio.get_running_loop().time())

    def _adjusted(self) -> TokenBucket:
        """The bucket at the rate that is configured now."""
        rate = self._configs.integer(self._rate_name)
        self._bucket.adjust(rate, rate)
        return self._bucket


class FollowerThrottle:
    """Says which partitions this node must not ask for yet, and when it may."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._deferred: dict[
            FollowedPartition, tuple[ReplicaFollower, Callable[[ReplicaFollower], None]]
        ] = {}
        self._timer: asyncio.TimerHandle | None = None

    def defers(self, following: ReplicaFollower, go: Callable[[ReplicaFollower], None]) -> bool:
        """Whether it must wait; then `go` is called when it may be asked for."""
        if not self._holds_back(following):
            return False
        wait_s = self._throttle.wait_s()
        if wait_s <= 0:
            return False
        self._deferred[following.key] = following, go
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._let_go)
        return True

    def record(self, following: ReplicaFollower, count: int) -> None:
        if self._holds_back(following):
            self._throttle.record(count)

    def close(self) -> None:
        self._deferred.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _holds_back(self, following: ReplicaFollower) -> bool:
        partition = following.partition
        if not self._throttle.names(partition.topic, partition.index):
            return False
        return not following.is_in_sync

    def _let_go(self) -> None:
        self._timer = None
        deferred, self._deferred = self._deferred, {}
        for following, go in deferred.values():
            go(following)


@lru_cache(maxsize=1024)
def _parse(text: str, node_id: int) -> frozenset[int] | None:
    """The partitions that a list names for this node; ALL for `*`."""
    text = text.strip()
    if text == "*":
        return ALL
    pairs = (entry.strip().partition(":") for entry in text.split(",") if entry.strip())
    return frozenset(int(index) for index, _, node in pairs if int(node) == node_id)
