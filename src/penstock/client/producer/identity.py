"""Identity of an idempotent producer at the broker (KIP-98)."""

from typing import NamedTuple


class ProducerIdentity(NamedTuple):
    """Producer id and epoch from InitProducerId; a newer epoch fences an older one."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)
