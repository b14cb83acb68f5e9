"""Registry state machine without a host: calls are decided, applied and logged at once."""

from typing import Any

import msgspec

from penstock.base.state_machine import Decision, Record
from penstock.state.registry.compatibility_check import format_text, judge
from penstock.state.registry.requests import (
    AnyCall,
    NamedReference,
    Proposal,
    Register,
    RegistryCall,
)
from penstock.state.registry.shard import RegistryShard, Unformed
from penstock.state.registry.state import RegistryState

ONE = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
TWO = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"string"},'
    '{"name":"b","type":"int","default":0}]}'
)
OTHER = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
KNOWN_BEFORE = ("SCHEMA", "CONFIG", "MODE", "ID")
"""Kinds of records that such nodes read; they skip others."""


class Driver:
    """A state machine with its log."""

    def __init__(self) -> None:
        self.shard = RegistryShard()
        self.log: list[Record] = []

    @property
    def state(self) -> RegistryState:
        return self.shard.state

    def ask(self, call: RegistryCall) -> Any:
        if isinstance(call, Proposal):
            plan = self.shard.plan(call)
            return self._keep(self.shard.conclude(call, plan, judge(plan), "token"))
        return self._keep(self.shard.answer(call, "token"))

    def register(self, subject: str, schema: str = ONE, *references: tuple[str, str, int]) -> int:
        """The id."""
        named = tuple(NamedReference(*one) for one in references)
        registered: int = self.ask(Register(subject, schema, "AVRO", named))["id"]
        return registered

    def _keep(self, decision: Decision) -> Any:
        for key, value in decision.records:
            self.shard.apply(key, value)
            self.log.append((key, value))
        ((token, reply),) = decision.replies
        assert token == "token"
        if isinstance(reply, Unformed):
            return {**reply.shown, "schema": format_text(reply.source, reply.form)}
        return reply

    def replayed(self) -> RegistryState:
        """State of a new leader, from the compacted log."""
        last = dict(self.log)
        state = RegistryState()
        for key, value in last.items():
            if value is not None:
                state.apply(key, value)
        return state

    def read_before(self) -> RegistryState:
        """State that a node without knowledge of contexts would have."""
        state = RegistryState()
        for key, value in self.log:
            if msgspec.json.decode(key)["keytype"] in KNOWN_BEFORE:
                state.apply(key, value)
        return state


def contents(state: RegistryState) -> dict[str, Any]:
    """All of a state, for comparison."""
    return {
        "subjects": {name: dict(sorted(rows.items())) for name, rows in state.subjects.items()},
        "contexts": {
            context: (
                {number: dict(sorted(rows.items())) for number, rows in one.by_id.items()},
                {guid: dict(sorted(rows.items())) for guid, rows in one.by_guid.items()},
                one.highest_id,
            )
            for context, one in state.contexts.items()
        },
        "referrers": {place: sorted(rows) for place, rows in state.referrers.items()},
        "configs": state.configs,
        "modes": state.modes,
        "count": state.count,
        "text_bytes": state.text_bytes,
    }


__all__ = ["ONE", "OTHER", "TWO", "AnyCall", "Driver", "contents"]
