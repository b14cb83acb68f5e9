"""Replication throttles: rate limits for copying replicas that are not in sync (KIP-73).

A topic's `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` name
the throttled replicas, as `partition:node` pairs or `*`. Each node limits its own, to `leader.` or
`follower.replication.throttled.rate` bytes a second for all together. A replica in sync is never
throttled: producers wait for it.

The bucket holds the tokens of one second. Bytes are charged after a whole response was sent or
fetched; then nothing more is copied until the bucket has refilled.
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache

from penstock.base.token_bucket import TokenBucket
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.replication.replica_follower import FollowedPartition, ReplicaFollower

UNLIMITED = 2**63 - 1
WAIT_SECONDS_MAX = 1.0
"""Longest wait: the rate may be changed at any time."""
ALL = None


class Throttle:
    """One side of replication on this node: `leader` or `follower`."""

    def __init__(
        self, side: str, node_id: int, configs: BrokerConfigs, watcher: MetadataWatcher
    ) -> None:
        assert side in ("leader", "follower")
        self._rate_name = f"{side}.replication.throttled.rate"
        self._replicas_name = f"{side}.replication.throttled.replicas"
        self._node_id = node_id
        self._configs = configs
        self._watcher = watcher
        self._bucket = TokenBucket(0, 0)

    def names(self, topic: str, index: int) -> bool:
        """True if this node's replica of the partition is throttled."""
        if self._configs.integer(self._rate_name) == UNLIMITED:
            return False
        known = self._watcher.image.topics.get(topic)
        if known is None:
            return False
        text = known.configs.get(self._replicas_name)
        if not text:
            return False
        named = _parse(text, self._node_id)
        return named is ALL or index in named

    def wait_s(self) -> float:
        """Seconds that throttled replicas must wait; 0: none."""
        bucket, now_s = self._adjusted(), asyncio.get_running_loop().time()
        if bucket.available(now_s) > -1:
            return 0.0  # Less than one byte is not a debt.
        return min(bucket.wait_s(now_s), WAIT_SECONDS_MAX)

    def record(self, count: int) -> None:
        """Charges the bytes of throttled replicas that were copied."""
        self._adjusted().take(count, asyncio.get_running_loop().time())

    def _adjusted(self) -> TokenBucket:
        """The bucket at the configured rate."""
        rate = self._configs.integer(self._rate_name)
        self._bucket.adjust(rate, rate)
        return self._bucket


class FollowerThrottle:
    """Defers this node's fetches of throttled partitions."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._deferred: dict[
            FollowedPartition, tuple[ReplicaFollower, Callable[[ReplicaFollower], None]]
        ] = {}
        self._timer: asyncio.TimerHandle | None = None

    def defers(self, replica: ReplicaFollower, go: Callable[[ReplicaFollower], None]) -> bool:
        """True if the partition must wait; `go` is called when it may be fetched."""
        if not self._holds_back(replica):
            return False
        wait_s = self._throttle.wait_s()
        if wait_s <= 0:
            return False
        self._deferred[replica.key] = replica, go
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._release)
        return True

    def record(self, replica: ReplicaFollower, count: int) -> None:
        if self._holds_back(replica):
            self._throttle.record(count)

    def close(self) -> None:
        self._deferred.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _holds_back(self, replica: ReplicaFollower) -> bool:
        partition = replica.partition
        if not self._throttle.names(partition.topic, partition.index):
            return False
        return not replica.is_in_sync

    def _release(self) -> None:
        self._timer = None
        deferred, self._deferred = self._deferred, {}
        for replica, go in deferred.values():
            go(replica)


@lru_cache(maxsize=1024)
def _parse(text: str, node_id: int) -> frozenset[int] | None:
    """Partitions that a list names for this node; ALL for `*`."""
    text = text.strip()
    if text == "*":
        return ALL
    pairs = (entry.strip().partition(":") for entry in text.split(",") if entry.strip())
    return frozenset(int(index) for index, _, node in pairs if int(node) == node_id)
