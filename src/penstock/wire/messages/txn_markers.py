"""WriteTxnMarkers (api 27), versions 1-2: how a coordinator ends a transaction in the logs.

v2 says which transaction version the marker belongs to (KIP-1228).

What holds what:

- WriteTxnMarkersRequest > WritableTxnMarker > WritableTxnMarkerTopic
- WriteTxnMarkersResponse > WritableTxnMarkerResult > WritableTxnMarkerTopicResult >
  WritableTxnMarkerPartitionResult
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int8, int16, int32, int64, message, string, struct


@struct()
class WritableTxnMarkerTopic:
    """Partitions of one topic that get the marker."""

    name: str = string()
    partition_indexes: Sequence[int] = array(int32, default=())


@struct()
class WritableTxnMarker:
    """The end of one transaction: `transaction_result` is true for commit."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: Sequence[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, default=0)


@message(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest:
    """Writes commit and abort markers into partitions."""

    markers: Sequence[WritableTxnMarker] = array(WritableTxnMarker)


@struct()
class WritableTxnMarkerPartitionResult:
    """Whether one partition got the marker."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class WritableTxnMarkerTopicResult:
    """A topic's part of the answer."""

    name: str = string()
    partitions: Sequence[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct()
class WritableTxnMarkerResult:
    """One producer's part of the answer."""

    producer_id: int = int64()
    topics: Sequence[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse:
    """Which partitions got their markers."""

    markers: Sequence[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
