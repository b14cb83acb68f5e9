"""Tools that read: topics, messages, groups, queues, dead letters, schemas and the cluster.

None of them changes anything, not even a committed offset or a delivery count.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.cli.mcp.command_runner import CommandRunner, Options
from penstock.cli.mcp.schema_registry import SchemaRegistry

Topic = Annotated[str, Field(description="Name of the topic.", min_length=1, max_length=249)]
DeadLetterTopic = Annotated[
    str, Field(description="Name of the dead-letter topic, such as orders.dlq.", min_length=1)
]
Group = Annotated[str, Field(description="Name of the consumer or share group.", min_length=1)]
Position = Annotated[
    str,
    Field(
        description="start, end, an offset (5), the last ten (-10), a range (5:9) or a time "
        "(@-1h, @2026-11-01)."
    ),
]
Limit = Annotated[int, Field(description="At most this many.", ge=1, le=500)]
ErrorClass = Annotated[
    str | None, Field(description="Only this error class; * and ? are wildcards.")
]
ErrorText = Annotated[str | None, Field(description="Only error messages that contain this text.")]
Partition = Annotated[int | None, Field(description="Only this partition.", ge=0)]


class ReadingTools:
    """Tools that every server has."""

    def __init__(self, run: CommandRunner, schemas: SchemaRegistry) -> None:
        self._run = run
        self._schemas = schemas

    async def list_topics(
        self,
        pattern: Annotated[str | None, Field(description="Only names like this: orders*")] = None,
        internal: bool = False,
    ) -> Any:
        """List topics with partitions, replicas, records and bytes."""
        return await self._run.json(
            "topic list", [pattern] if pattern else (), {"internal": internal}
        )

    async def describe_topic(self, topic: Topic) -> Any:
        """Describe a topic: partitions, leaders, in-sync replicas, offsets and configs."""
        return await self._run.json("topic describe", [topic])

    async def read_messages(
        self,
        topic: Topic,
        position: Position = "-10",
        limit: Limit = 10,
        partition: Partition = None,
        keys_only: Annotated[bool, Field(description="Leave out the values.")] = False,
    ) -> Any:
        """Read messages of a topic without a group: nothing is committed or leased."""
        options: Options = {
            "offset": position,
            "num": limit,
            "partition": partition,
            "no_follow": True,
            "meta_only": keys_only,
        }
        return await self._run.json_lines("consume", [topic], options)

    async def list_groups(self) -> Any:
        """List consumer groups and share groups with their states."""
        return await self._run.json("group list")

    async def describe_group(self, group: Group) -> Any:
        """Describe a group: members, and for each partition committed offset and lag."""
        return await self._run.json("group describe", [group])

    async def advise_group(
        self,
        group: Group,
        seconds: Annotated[float, Field(description="Time to measure.", ge=1, le=30)] = 5,
    ) -> Any:
        """Measure why a group is behind: few consumers, stuck or uneven partitions, hot keys."""
        return await self._run.json("group advise", [group], {"seconds": seconds})

    async def list_queues(self) -> Any:
        """List queues (a topic and a share group) with ready, leased and delayed messages."""
        return await self._run.json("queue list")

    async def describe_queue(self, topic: Topic, group: Group | None = None) -> Any:
        """Describe a queue: its counts for each partition, and its oldest message."""
        return await self._run.json("queue describe", [topic], {"group": group})

    async def peek_queue(self, topic: Topic, group: Group | None = None, limit: Limit = 10) -> Any:
        """Show waiting messages of a queue without leasing them."""
        return await self._run.json("queue peek", [topic], {"group": group, "num": limit})

    async def list_dead_letter_topics(self) -> Any:
        """List dead-letter topics with the number and age of their open messages."""
        return await self._run.json("dlq list")

    async def list_dead_letters(
        self,
        topic: DeadLetterTopic,
        error: ErrorClass = None,
        message: ErrorText = None,
        limit: Limit = 20,
    ) -> Any:
        """List open dead-lettered messages with source, error, deliveries and time."""
        options = {"error": error, "message": message, "limit": limit}
        return await self._run.json("dlq list", [topic], options)

    async def count_dead_letters(
        self,
        topic: DeadLetterTopic,
        by: Literal[
            "template", "error", "class", "key", "group", "source", "redrives"
        ] = "template",
    ) -> Any:
        """Count dead-lettered messages by cause; `template` unites errors that differ in values."""
        return await self._run.json("dlq stats", [topic], {"by": by})

    async def show_dead_letter(
        self,
        topic: DeadLetterTopic,
        message: Annotated[str, Field(description="Its id, PARTITION:OFFSET, from the list.")],
    ) -> Any:
        """Show a dead-lettered message: payload, headers, error and traceback."""
        return await self._run.json("dlq show", [topic, message])

    async def plan_redrive(
        self,
        topic: DeadLetterTopic,
        error: ErrorClass = None,
        message: ErrorText = None,
        to: Annotated[str | None, Field(description="Target instead of the source topics.")] = None,
    ) -> Any:
        """Show which dead-lettered messages a redrive would send where; sends nothing."""
        options = {"error": error, "message": message, "to": to, "dry_run": True}
        return await self._run.json("dlq redrive", [topic], options)

    async def list_redrives(self) -> Any:
        """List past redrives and purges, with who asked for them and what became of them."""
        return await self._run.json("dlq history")

    async def list_schemas(self) -> Any:
        """List the subjects of the schema registry with their versions."""
        return await self._schemas.subjects()

    async def show_schema(
        self,
        subject: Annotated[str, Field(description="Such as orders-value.", min_length=1)],
        version: Annotated[str, Field(description="A number, or latest.")] = "latest",
    ) -> Any:
        """Show a version of a schema."""
        return await self._schemas.version(subject, version)

    async def list_transactions(
        self,
        hanging: Annotated[bool, Field(description="Only those that nothing will end.")] = False,
    ) -> Any:
        """List transactional producers and their open transactions."""
        return await self._run.json("txn list", (), {"hanging": hanging})

    async def list_configs(
        self, topic: str | None = None, group: str | None = None, changed_only: bool = True
    ) -> Any:
        """List configs of a topic, a group or the brokers, with the source of each value."""
        options = {"topic": topic, "group": group, "changed": changed_only}
        return await self._run.json("config list", (), options)

    async def describe_cluster(self) -> Any:
        """Describe the cluster: nodes, controller, leaders, replicas that are out of sync."""
        return await self._run.json("cluster describe")

    async def run_doctor(self) -> Any:
        """Check the cluster and say what is wrong, why, and the command that mends it."""
        return await self._run.json("doctor")

    async def list_users(self) -> Any:
        """List users that can log in."""
        return await self._run.json("user list")

    async def list_acls(
        self, principal: Annotated[str | None, Field(description="Such as User:alice.")] = None
    ) -> Any:
        """List permissions (ACLs)."""
        return await self._run.json("acl list", (), {"principal": principal})

    async def list_quotas(self) -> Any:
        """List quotas of users, clients and addresses."""
        return await self._run.json("quota list")

    async def read_audit_log(
        self,
        principal: str | None = None,
        action: str | None = None,
        since: Annotated[str, Field(description="How recent: 15m, 24h, 7d.")] = "24h",
        limit: Limit = 50,
    ) -> Any:
        """Read the audit log: who did what, and what was denied."""
        options = {"principal": principal, "action": action, "since": since, "last": limit}
        return await self._run.json("audit", (), options)
