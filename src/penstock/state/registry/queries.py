"""Read-only calls: subjects, versions, ids, references, configs, modes.

Results are what the REST API returns. A missing object is a `Rejected` with the code of what is
missing.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, TypeVar

from penstock.state.registry import requests
from penstock.state.registry.compatibility_check import DEFAULT_LEVEL, DEFAULT_MODE
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.parsed_schemas import AVRO
from penstock.state.registry.records import KeptConfig, KeptSchema
from penstock.state.registry.state import RegistryState, SubjectVersion
from penstock.state.registry.subject_names import (
    DEFAULT_CONTEXT,
    EVERYWHERE,
    context_of,
    join_subject,
    split_subject,
    strategy_of,
    subject_of,
)

T = TypeVar("T")
LISTED_BYTES_MAX = 16 << 20
"""Maximum size of all texts in one listing of schemas."""


def no_subject(subject: str) -> Rejected:
    return Rejected(RegistryErrorCode.SUBJECT_NOT_FOUND, f"Subject '{subject[:200]}' not found.")


def no_version(version: int) -> Rejected:
    return Rejected(RegistryErrorCode.VERSION_NOT_FOUND, f"Version {version} not found.")


def no_schema(what: object = None) -> Rejected:
    said = "Schema not found" if what is None else f"Schema {str(what)[:80]} not found"
    return Rejected(RegistryErrorCode.SCHEMA_NOT_FOUND, said)


def require_subject(state: RegistryState, subject: str, *, deleted: bool) -> None:
    if not state.versions(subject, deleted=deleted):
        raise no_subject(subject)


def require_version(
    state: RegistryState, subject: str, version: int, *, deleted: bool
) -> KeptSchema:
    subject = state.named(subject)
    found = state.get(subject, version, deleted=deleted)
    if found is None:
        require_subject(state, subject, deleted=deleted)
        raise no_version(version)
    return found


def metadata_properties(metadata: dict[str, Any] | None) -> dict[str, Any]:
    properties = (metadata or {}).get("properties")
    return properties if isinstance(properties, dict) else {}


# -- representation of schemas ------------------------------------------------------------------


def show_text(kept: KeptSchema, *, qualified: bool = False) -> dict[str, Any]:
    """Schema without subject and version: what an id stands for."""
    shown: dict[str, Any] = {}
    if kept.schemaType != AVRO:
        shown["schemaType"] = kept.schemaType
    shown["schema"] = kept.schema
    if kept.references:
        shown["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in (kept.referred if qualified else kept.references)
        ]
    if kept.metadata is not None:
        shown["metadata"] = kept.metadata
    if kept.ruleSet is not None:
        shown["ruleSet"] = kept.ruleSet
    shown["guid"] = kept.guid
    return shown


def show_version(kept: KeptSchema, *, qualified: bool = False) -> dict[str, Any]:
    shown: dict[str, Any] = {"subject": kept.subject, "version": kept.version, "id": kept.id}
    shown |= show_text(kept, qualified=qualified)
    if kept.deleted:
        shown["deleted"] = True
    return shown


def show_config(config: KeptConfig, level: str = "compatibilityLevel") -> dict[str, Any]:
    said = {
        level: config.compatibilityLevel,
        "normalize": config.normalize,
        "alias": config.alias,
        "compatibilityGroup": config.compatibilityGroup,
        "defaultMetadata": config.defaultMetadata,
        "overrideMetadata": config.overrideMetadata,
        "defaultRuleSet": config.defaultRuleSet,
        "overrideRuleSet": config.overrideRuleSet,
    }
    return {name: value for name, value in said.items() if value is not None}


# -- listings -----------------------------------------------------------------------------------


def _page(rows: Iterable[T], page: requests.ListPage) -> list[T]:
    start = max(0, page.offset)
    limit = page.limit if 0 <= page.limit <= requests.LIMIT_MAX else requests.LIMIT_MAX
    return list(islice(rows, start, start + limit))


def _subjects(state: RegistryState, prefix: str, everywhere: bool) -> Iterator[str]:
    """Subjects of the context that the prefix names, or of every one."""
    context, beginning = split_subject(prefix)
    for subject in sorted(state.subjects):
        own, name = split_subject(subject)
        if (everywhere or own == context) and name.startswith(beginning):
            yield subject


def list_subjects(state: RegistryState, call: requests.ListSubjects) -> list[str]:
    def wanted() -> Iterator[str]:
        for subject in _subjects(state, call.prefix, call.everywhere):
            is_deleted = all(kept.deleted for kept in state.versions(subject, deleted=True))
            if is_deleted if call.deleted_only else call.deleted or not is_deleted:
                yield subject

    return _page(wanted(), call)


def list_versions(state: RegistryState, call: requests.ListVersions) -> list[int]:
    shows_deleted = call.deleted or call.deleted_only
    subject = state.named(call.subject)
    require_subject(state, subject, deleted=shows_deleted)
    rows = state.versions(subject, deleted=shows_deleted)
    if not any(row.deleted or not call.deleted_only for row in rows):
        raise no_subject(subject)
    return _page((row.version for row in rows if row.deleted or not call.deleted_only), call)


def list_schemas(state: RegistryState, call: requests.ListSchemas) -> list[dict[str, Any]]:
    def wanted() -> Iterator[KeptSchema]:
        for subject in _subjects(state, call.prefix, call.everywhere):
            rows = state.versions(subject, deleted=call.deleted)
            yield from rows[-1:] if call.latest_only else rows

    page = _page(wanted(), call)
    if sum(len(kept.schema) for kept in page) > LISTED_BYTES_MAX:
        raise Rejected(
            RegistryErrorCode.SCHEMA_TOO_LARGE,
            f"the listing exceeds {LISTED_BYTES_MAX} bytes: request a smaller limit",
        )
    return [show_version(kept) for kept in page]


def list_contexts(state: RegistryState, call: requests.ListContexts) -> list[str]:
    known = [DEFAULT_CONTEXT, *state.others()]
    return _page((one for one in known if one.startswith(call.prefix)), call)


def elsewhere(state: RegistryState, subject: str) -> Iterator[str]:
    """Subjects that a subject of the default context may mean if that context lacks it."""
    if context_of(subject) == DEFAULT_CONTEXT:
        yield from (join_subject(context, subject) for context in state.others())


# -- single schemas -----------------------------------------------------------------------------


def get_version(state: RegistryState, call: requests.GetVersion) -> dict[str, Any]:
    found = state.get(state.named(call.subject), call.version, deleted=call.deleted)
    others = elsewhere(state, call.subject) if call.anywhere else iter(())
    while found is None and (subject := next(others, None)) is not None:
        found = state.get(subject, call.version, deleted=call.deleted)
    if found is None:
        found = require_version(state, call.subject, call.version, deleted=call.deleted)
    return show_version(found, qualified=call.qualified)


def get_by_metadata(state: RegistryState, call: requests.GetByMetadata) -> dict[str, Any]:
    subject = state.named(call.subject)
    require_subject(state, subject, deleted=call.deleted)
    for kept in reversed(state.versions(subject, deleted=call.deleted)):
        properties = metadata_properties(kept.metadata)
        if all(properties.get(name) == value for name, value in call.properties.items()):
            return show_version(kept)
    raise no_schema()


def get_referrers(state: RegistryState, call: requests.GetReferrers) -> list[int]:
    kept = require_version(state, call.subject, call.version, deleted=True)
    ids = {one.id for one in state.referred_by(kept.place, deleted=call.deleted)}
    return sorted(ids)


def find_by_id(
    state: RegistryState, schema_id: int, subject: str | None, *, anywhere: bool
) -> tuple[dict[SubjectVersion, KeptSchema], KeptSchema | None]:
    """Versions that have an id, and the subject's last version among them.

    The subject selects the context; it may be a context alone (`:.sales:`). With `anywhere` a
    subject of the default context that lacks the id is searched for in the other contexts, before
    the id gets its meaning in the default context.
    """
    named = state.named(subject or "")
    name = split_subject(named)[1]
    for one in chain([named], elsewhere(state, named) if name and anywhere else ()):
        places = state.numbering(context_of(one)).by_id.get(schema_id, {})
        mine = [kept for kept in places.values() if kept.subject == one]
        if places and (mine or not name):
            return places, mine[-1] if mine else None
    places = state.numbering(context_of(named)).by_id.get(schema_id, {})
    if not places or context_of(named) != DEFAULT_CONTEXT:
        raise no_schema(schema_id)
    return places, None


def get_by_id(state: RegistryState, call: requests.GetById) -> dict[str, Any]:
    if context_of(call.subject) != DEFAULT_CONTEXT and not isinstance(call, requests.GetByIdThere):
        raise no_schema(call.id)  # Sent by a node that does not know contexts.
    places, mine = find_by_id(state, call.id, call.subject, anywhere=call.anywhere)
    kept = mine or next(iter(places.values()))
    shown = show_text(kept, qualified=call.qualified)
    if mine is not None:
        shown |= {"subject": mine.subject, "version": mine.version}
    if call.with_highest_id:
        shown["maxId"] = state.numbering(kept.context).highest_id
    return shown


def _of_guid(state: RegistryState, guid: str) -> list[KeptSchema]:
    """One version per context, the default one first."""
    known = (state.contexts[one].by_guid.get(guid.lower(), {}) for one in sorted(state.contexts))
    rows = [next(iter(places.values())) for places in known if places]
    if not rows:
        raise no_schema(guid)
    return rows


def get_by_guid(state: RegistryState, call: requests.GetByGuid) -> dict[str, Any]:
    return show_text(_of_guid(state, call.guid)[0])


def list_ids_of_guid(state: RegistryState, call: requests.ListIdsOfGuid) -> list[dict[str, Any]]:
    return [
        {"context": context, "id": one}
        for context in sorted({kept.context for kept in _of_guid(state, call.guid)})
        for one in dict.fromkeys(
            kept.id for kept in state.contexts[context].by_guid[call.guid.lower()].values()
        )
    ]


def version_shown(
    state: RegistryState, call: requests.RegistryCall, shown: dict[str, Any]
) -> KeptSchema:
    """Version whose schema a response shows."""
    if "subject" in shown:
        kept = state.get(shown["subject"], shown["version"], deleted=True)
        assert kept is not None, "this call has just found it"
        return kept
    if isinstance(call, requests.GetById):
        places, _ = find_by_id(state, call.id, call.subject, anywhere=call.anywhere)
        return next(iter(places.values()))
    return _of_guid(state, shown["guid"])[0]


def list_places(state: RegistryState, call: requests.ListPlaces) -> list[Any]:
    places, _ = find_by_id(state, call.id, call.found_by or call.subject, anywhere=True)
    name = split_subject(call.subject or "")[1]
    rows = [
        kept
        for _, kept in sorted(places.items())
        if (call.deleted or not kept.deleted)
        and (not name or split_subject(kept.subject)[1] == name)
    ]
    if call.with_versions:
        return _page(({"subject": row.subject, "version": row.version} for row in rows), call)
    return _page(dict.fromkeys(row.subject for row in rows), call)


# -- settings -----------------------------------------------------------------------------------


def get_config(state: RegistryState, call: requests.GetConfig) -> dict[str, Any]:
    config = state.configs.get(call.subject)
    has_default = call.default_to_global or call.subject in (None, EVERYWHERE)
    if config is None and not has_default:
        raise Rejected(
            RegistryErrorCode.SUBJECT_HAS_NO_LEVEL,
            f"Subject '{(call.subject or '')[:200]}' does not have subject-level compatibility "
            "configured",
        )
    known = list(state.configs_of(call.subject)) if call.default_to_global else [config]
    shown: dict[str, Any] = {}
    for one in reversed(known):
        shown |= show_config(one) if one is not None else {}
    if has_default:
        shown.setdefault("compatibilityLevel", DEFAULT_LEVEL.value)
    return shown


def get_mode(state: RegistryState, call: requests.GetMode) -> dict[str, str]:
    mode = state.modes.get(call.subject)
    if mode is None and call.default_to_global:
        mode = next(state.modes_of(call.subject), DEFAULT_MODE)
    if mode is None and call.subject in (None, EVERYWHERE):
        mode = DEFAULT_MODE
    if mode is None:
        raise Rejected(
            RegistryErrorCode.SUBJECT_HAS_NO_MODE,
            f"Subject '{(call.subject or '')[:200]}' does not have subject-level mode configured",
        )
    return {"mode": mode.value}


# -- records of topics --------------------------------------------------------------------------


def vouch(state: RegistryState, call: requests.Vouch) -> dict[str, Any]:
    """The ids and guids with which a record of the topic may be written.

    Records carry no context, so the default one applies.
    """
    strategy = strategy_of(call.strategy)
    assert strategy is not None, "configs hold only known strategies"
    here = state.numbering(DEFAULT_CONTEXT)

    def is_known(places: Iterable[KeptSchema]) -> bool:
        return any(
            kept.subject == subject_of(strategy, call.topic, kept.recordName, is_key=call.is_key)
            for kept in places
            if not kept.deleted
        )

    return {
        "ids": [one for one in call.ids if is_known(here.by_id.get(one, {}).values())],
        "guids": [one for one in call.guids if is_known(here.by_guid.get(one, {}).values())],
    }
