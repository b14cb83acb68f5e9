"""Tools that change something; a server has them only with `--allow-writes`.

Each takes `apply`. Without it the tool only shows what would happen, from the command's own dry run
or from the state that it would change.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.cli.mcp.command_runner import CommandRunner
from penstock.cli.mcp.reading import (
    DeadLetterTopic,
    ErrorClass,
    ErrorText,
    Group,
    Partition,
    Position,
    Topic,
)

Apply = Annotated[
    bool, Field(description="False only shows what would happen; ask the user before true.")
]
Ids = Annotated[
    list[str] | None,
    Field(description="Only these messages, each PARTITION:OFFSET.", max_length=500),
]


class WritingTools:
    """Tools that change topics, messages, groups and dead letters."""

    def __init__(self, run: CommandRunner) -> None:
        self._run = run

    async def publish(
        self,
        topic: Topic,
        payload: str,
        key: str | None = None,
        headers: Annotated[list[str] | None, Field(description="Each NAME:VALUE.")] = None,
        delay: Annotated[str | None, Field(description="Queues: 500ms, 30s, 1h30m.")] = None,
        priority: Annotated[
            int | None, Field(description="Queues: 9 is first.", ge=0, le=9)
        ] = None,
        apply: Apply = False,
    ) -> Any:
        """Publish one message."""
        options = {"key": key, "header": headers or (), "delay": delay, "priority": priority}
        if not apply:
            target = await self._run.json("topic describe", [topic])
            return {"would_publish": {"payload": payload, **options}, "to": target}
        return await self._run.json("produce", [topic, payload], options)

    async def create_topic(
        self,
        topic: Topic,
        partitions: Annotated[int | None, Field(ge=1, le=10_000)] = None,
        configs: Annotated[list[str] | None, Field(description="Each NAME=VALUE.")] = None,
        apply: Apply = False,
    ) -> str:
        """Create a topic."""
        options = {"partitions": partitions, "config": configs or (), "dry_run": not apply}
        return await self._run.text("topic create", [topic], options)

    async def delete_topic(self, topic: Topic, apply: Apply = False) -> Any:
        """Delete a topic with all its records."""
        if not apply:
            return {"would_delete": await self._run.json("topic describe", [topic])}
        return await self._run.text("topic delete", [topic], {"yes": True})

    async def truncate_topic(
        self, topic: Topic, before: Position, partition: Partition = None, apply: Apply = False
    ) -> Any:
        """Delete the records of a topic before an offset or a time."""
        if not apply:
            found = await self._run.json("topic describe", [topic])
            return {"would_delete_before": before, "partition": partition, "topic": found}
        options = {"before": before, "partition": partition, "yes": True}
        return await self._run.json("topic truncate", [topic], options)

    async def alter_topic(
        self,
        topic: Topic,
        configs: Annotated[list[str], Field(description="Each NAME=VALUE.", min_length=1)],
        apply: Apply = False,
    ) -> Any:
        """Set configs of a topic."""
        if not apply:
            now = await self._run.json("config list", (), {"topic": topic, "changed": True})
            return {"would_set": configs, "now": now}
        return await self._run.text("topic alter", [topic], {"config": configs})

    async def seek_group(
        self, group: Group, to: Position, topics: list[str] | None = None, apply: Apply = False
    ) -> Any:
        """Move a group's committed offsets; its consumers must be stopped."""
        options = {"to": to, "topics": topics or (), "yes": apply}
        return await self._run.json("group seek", [group], options)

    async def delete_group(self, group: Group, apply: Apply = False) -> Any:
        """Delete a group without members, and its committed offsets."""
        if not apply:
            return {"would_delete": await self._run.json("group describe", [group])}
        return await self._run.text("group delete", [group], {"yes": True})

    async def redrive_dead_letters(
        self,
        topic: DeadLetterTopic,
        ids: Ids = None,
        error: ErrorClass = None,
        message: ErrorText = None,
        to: Annotated[str | None, Field(description="Target instead of the source topics.")] = None,
        apply: Apply = False,
    ) -> Any:
        """Send dead-lettered messages back to their sources, each exactly once."""
        options = {"id": ids or (), "error": error, "message": message, "to": to}
        mode = {"yes": True} if apply else {"dry_run": True}
        return await self._run.json("dlq redrive", [topic], {**options, **mode})

    async def purge_dead_letters(
        self,
        topic: DeadLetterTopic,
        ids: Ids = None,
        error: ErrorClass = None,
        message: ErrorText = None,
        apply: Apply = False,
    ) -> Any:
        """Settle dead-lettered messages without sending them back."""
        is_all = not (ids or error or message)
        options = {"id": ids or (), "error": error, "message": message, "all": is_all}
        mode = {"yes": True} if apply else {"dry_run": True}
        return await self._run.json("dlq purge", [topic], {**options, **mode})

    async def replay_topic(
        self,
        topic: Topic,
        group: Group,
        from_kind: Literal["offset", "time"],
        start: Annotated[
            str, Field(description="An offset (5, start) or a time (-1h, 2026-11-01).")
        ],
        apply: Apply = False,
    ) -> Any:
        """Deliver a range of a topic again to one group."""
        mode = {"yes": True} if apply else {"dry_run": True}
        options = {"group": group, f"from_{from_kind}": start}
        return await self._run.json("replay", [topic], {**options, **mode})
