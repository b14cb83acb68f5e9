"""WriteTxnMarkers (api 27), versions 1-2: a coordinator ends a transaction in the logs.

v2 has the transaction version of the marker (KIP-1228).

Nesting:

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
    """End of one transaction: `transaction_result` is true for commit."""

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
    """Result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class WritableTxnMarkerTopicResult:
    """Results of one topic."""

    name: str = string()
    partitions: Sequence[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct()
class WritableTxnMarkerResult:
    """Results of one producer."""

    producer_id: int = int64()
    topics: Sequence[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse:
    """Results of writing the markers."""

    markers: Sequence[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
