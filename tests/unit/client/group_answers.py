"""Answers about groups and transactions for the model broker, with the state they speak of."""

from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.wire.messages.classic_groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.unit.client.model import HOST, PORT, ModelBroker


@dataclass
class Committing:
    """Committed offsets of groups, kept by a model broker that coordinates everything."""

    broker: ModelBroker
    offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    not_coordinator_times: int = 0
    """Number of answers that are NOT_COORDINATOR first."""
    commit_code: ErrorCode = ErrorCode.NONE

    def __post_init__(self) -> None:
        self.broker.answers[FindCoordinatorRequest] = self.find
        self.broker.answers[OffsetFetchRequest] = self.fetch
        self.broker.answers[OffsetCommitRequest] = self.commit

    def find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        node_id = self.broker.node_id
        if request.coordinator_keys:
            (key,) = request.coordinator_keys
            row = Coordinator(
                key=key, node_id=node_id, host=HOST, port=PORT, error_code=0, error_message=None
            )
            return FindCoordinatorResponse(coordinators=[row])
        return FindCoordinatorResponse(node_id=node_id, host=HOST, port=PORT)

    def fetch(self, request: OffsetFetchRequest) -> Any:
        code = int(self._not_coordinator())
        if not request.groups:
            assert request.topics is None
            topics = [
                OffsetFetchResponseTopic(
                    name=name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=offset,
                            metadata="",
                            error_code=0,
                        )
                    ],
                )
                for (name, index), offset in self.offsets.get(request.group_id, {}).items()
            ]
            return OffsetFetchResponse(topics=topics, error_code=code)
        (group,) = request.groups
        assert group.topics is None
        rows = [
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=offset,
                        metadata="",
                        error_code=0,
                    )
                ],
            )
            for (name, index), offset in self.offsets.get(group.group_id, {}).items()
        ]
        answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=rows, error_code=code)
        return OffsetFetchResponse(groups=[answer])

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = self._not_coordinator() or self.commit_code
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                if not code:
                    kept = self.offsets.setdefault(request.group_id, {})
                    kept[topic.name, row.partition_index] = row.committed_offset
                rows.append(
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=int(code)
                    )
                )
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=rows))
        return OffsetCommitResponse(topics=topics)

    def _not_coordinator(self) -> ErrorCode:
        if self.not_coordinator_times == 0:
            return ErrorCode.NONE
        self.not_coordinator_times -= 1
        return ErrorCode.NOT_COORDINATOR
