"""The registry as a machine: calls in, records and answers out.

There is one of it in a cluster, on the one partition of the registry's topic. A call that shows a
schema takes two steps: `plan` before the schema is judged, `conclude` after; all others take one.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.base.machine import NOTHING, Decision, Token
from penstock.registry import calls, changing, finding, registering
from penstock.registry.judging import Plan, Verdict
from penstock.registry.parsed import Source
from penstock.registry.state import RegistryState

LOOKS: Final[dict[type[calls.Call], Callable[[RegistryState, Any], Any]]] = {
    calls.ListSubjects: finding.list_subjects,
    calls.ListVersions: finding.list_versions,
    calls.ListSchemas: finding.list_schemas,
    calls.ListContexts: finding.list_contexts,
    calls.GetVersion: finding.get_version,
    calls.GetByMetadata: finding.get_by_metadata,
    calls.GetReferrers: finding.get_referrers,
    calls.GetById: finding.get_by_id,
    calls.GetByIdThere: finding.get_by_id,
    calls.GetByGuid: finding.get_by_guid,
    calls.ListIdsOfGuid: finding.list_ids_of_guid,
    calls.ListPlaces: finding.list_places,
    calls.GetConfig: finding.get_config,
    calls.GetMode: finding.get_mode,
    calls.Vouch: finding.vouch,
}
CHANGES: Final[dict[type[calls.Call], Callable[[RegistryState, Any], changing.Outcome]]] = {
    calls.DeleteVersion: changing.delete_version,
    calls.DeleteSubject: changing.delete_subject,
    calls.DeleteContext: changing.delete_context,
    calls.PutConfig: changing.put_config,
    calls.DeleteConfig: changing.delete_config,
    calls.PutMode: changing.put_mode,
    calls.DeleteMode: changing.delete_mode,
}


class Unformed(NamedTuple):
    """An answer whose schema is asked for in another form, which takes a worker to make."""

    shown: dict[str, Any]
    source: Source
    form: str


class RegistryShard:
    """The machine; `penstock.base.machine` says how it is run."""

    def __init__(self) -> None:
        self.state = RegistryState()

    def apply(self, key: bytes, value: bytes | None) -> None:
        self.state.apply(key, value)

    def loaded(self, now_ms: int) -> None:
        pass

    def deadline(self) -> int | None:
        return None

    def tick(self, now_ms: int) -> Decision:
        return NOTHING

    def dropped(self, token: Token) -> None:
        pass

    # -- calls ------------------------------------------------------------------------------

    def answer(self, call: calls.Call, token: Token) -> Decision:
        """Of every call that shows no schema."""
        look = LOOKS.get(type(call))
        if look is not None:
            shown = self._shown(call, look(self.state, call))
            return Decision(replies=((token, shown),))
        records, reply = CHANGES[type(call)](self.state, call)
        return Decision(tuple(records), ((token, reply),))

    def plan(self, call: calls.Proposal) -> Plan:
        plan = registering.plan_for(self.state, call)
        registering.check_amount(plan)
        return plan

    def conclude(
        self, call: calls.Proposal, plan: Plan, verdict: Verdict, token: Token
    ) -> Decision:
        """Raises `Outdated` when a new plan must be made."""
        if isinstance(call, calls.Register):
            records, reply = registering.register(self.state, call, plan, verdict)
            return Decision(tuple(records), ((token, reply),))
        if isinstance(call, calls.LookUp):
            found = self._shown(call, registering.look_up(self.state, call, verdict))
            return Decision(replies=((token, found),))
        assert isinstance(call, calls.CheckProposal)
        return Decision(replies=((token, registering.check(call, verdict)),))

    def _shown(self, call: calls.Call, shown: Any) -> Any:
        form = getattr(call, "form", "")
        if not form:
            return shown
        kept = finding.what_is_shown(self.state, call, shown)
        return Unformed(shown, registering.kept_source(self.state, kept), form)
