"""The registry as a state machine: calls in, records and replies out.

A cluster has one, on the single partition of the registry's topic. A call with a schema takes two
steps: `plan` before the schema is checked, `conclude` after; all others take one.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.base.state_machine import NOTHING, Decision, Token
from penstock.state.registry import config_changes, queries, registration, requests
from penstock.state.registry.compatibility_check import CheckPlan, CompatibilityVerdict
from penstock.state.registry.parsed_schemas import SchemaSource
from penstock.state.registry.state import RegistryState

QUERIES: Final[dict[type[requests.RegistryCall], Callable[[RegistryState, Any], Any]]] = {
    requests.ListSubjects: queries.list_subjects,
    requests.ListVersions: queries.list_versions,
    requests.ListSchemas: queries.list_schemas,
    requests.ListContexts: queries.list_contexts,
    requests.GetVersion: queries.get_version,
    requests.GetByMetadata: queries.get_by_metadata,
    requests.GetReferrers: queries.get_referrers,
    requests.GetById: queries.get_by_id,
    requests.GetByIdThere: queries.get_by_id,
    requests.GetByGuid: queries.get_by_guid,
    requests.ListIdsOfGuid: queries.list_ids_of_guid,
    requests.ListPlaces: queries.list_places,
    requests.GetConfig: queries.get_config,
    requests.GetMode: queries.get_mode,
    requests.Vouch: queries.vouch,
}
CHANGES: Final[
    dict[type[requests.RegistryCall], Callable[[RegistryState, Any], config_changes.ChangeOutcome]]
] = {
    requests.DeleteVersion: config_changes.delete_version,
    requests.DeleteSubject: config_changes.delete_subject,
    requests.DeleteContext: config_changes.delete_context,
    requests.PutConfig: config_changes.put_config,
    requests.DeleteConfig: config_changes.delete_config,
    requests.PutMode: config_changes.put_mode,
    requests.DeleteMode: config_changes.delete_mode,
}


class Unformed(NamedTuple):
    """A result whose schema was requested in another form, which a worker must produce."""

    shown: dict[str, Any]
    source: SchemaSource
    form: str


class RegistryShard:
    """State machine of the registry; see `penstock.base.state_machine` for how it is run."""

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

    def answer(self, call: requests.RegistryCall, token: Token) -> Decision:
        """Handles a call that brings no schema."""
        query = QUERIES.get(type(call))
        if query is not None:
            shown = self._shown(call, query(self.state, call))
            return Decision(replies=((token, shown),))
        records, reply = CHANGES[type(call)](self.state, call)
        return Decision(tuple(records), ((token, reply),))

    def plan(self, call: requests.Proposal) -> CheckPlan:
        plan = registration.plan_for(self.state, call)
        registration.check_amount(plan)
        return plan

    def conclude(
        self, call: requests.Proposal, plan: CheckPlan, verdict: CompatibilityVerdict, token: Token
    ) -> Decision:
        """Decides on the verdict; raises `Outdated` when a new plan must be made."""
        if isinstance(call, requests.Register):
            records, reply = registration.register(self.state, call, plan, verdict)
            return Decision(tuple(records), ((token, reply),))
        if isinstance(call, requests.LookUp):
            found = self._shown(call, registration.look_up(self.state, call, verdict))
            return Decision(replies=((token, found),))
        assert isinstance(call, requests.CheckProposal)
        return Decision(replies=((token, registration.check(call, verdict)),))

    def _shown(self, call: requests.RegistryCall, shown: Any) -> Any:
        form = getattr(call, "form", "")
        if not form:
            return shown
        kept = queries.version_shown(self.state, call, shown)
        return Unformed(shown, registration.kept_source(self.state, kept), form)
