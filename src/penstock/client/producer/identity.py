"""Who an idempotent producer is to the broker (KIP-98)."""

from typing import NamedTuple


class ProducerIdentity(NamedTuple):
    """Given by InitProducerId; a newer epoch fences an older one."""

    producer_id: int
    producer_epoch: int


NOBODY = ProducerIdentity(-1, -1)
