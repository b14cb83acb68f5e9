"""Registration of a schema as a version of a subject: plan, verdict, decision.

`plan_for` collects what a worker needs to check the schema. With its verdict, `register`,
`look_up` and `check` decide on the registry's current state. A plan made from an older state is
rejected and made again: see `Outdated`.

Metadata and rules of a schema: its own, the previous version's, and the config's. A schema
without any inherits those of the last version of its subject. The config's defaults are then
merged below them and its overrides above. So the same text with and without them is one schema,
as in Confluent's registry.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Record
from penstock.state.registry import limits, requests
from penstock.state.registry.compatibility_check import (
    CheckPlan,
    CompatibilityVerdict,
    Level,
    SubjectMode,
)
from penstock.state.registry.config_changes import ChangeOutcome, require_writable
from penstock.state.registry.errors import RegistryErrorCode, Rejected, invalid
from penstock.state.registry.json_text import write_sorted_json
from penstock.state.registry.parsed_schemas import SCHEMA_TYPES, Dependency, Reference, SchemaSource
from penstock.state.registry.queries import (
    elsewhere,
    metadata_properties,
    no_schema,
    no_version,
    require_subject,
    show_version,
)
from penstock.state.registry.records import (
    KeptConfig,
    KeptReference,
    KeptSchema,
    context_record,
    forgotten_schema,
    id_record,
    schema_record,
)
from penstock.state.registry.state import RegistryState
from penstock.state.registry.subject_names import check_subject, context_of, seen_from, short_for

Table = dict[str, Any]
RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")


def merged_metadata(below: Table | None, above: Table | None) -> Table | None:
    """Merges tags and properties by name; `above` wins."""
    if below is None or above is None:
        return above if below is None else below
    merged: Table = {}
    for name in ("tags", "properties"):
        table = _table(below.get(name)) | _table(above.get(name))
        if table:
            merged[name] = table
    sensitive = {*_list(below.get("sensitive")), *_list(above.get("sensitive"))}
    return merged | ({"sensitive": sorted(sensitive)} if sensitive else {})


def merged_rules(below: Table | None, above: Table | None) -> Table | None:
    """Merges rules by name; `above` wins."""
    if below is None or above is None:
        return above if below is None else below
    merged = {**below, **above}
    for name in RULE_LISTS:
        uppermost = _list(above.get(name))
        names = {rule.get("name") for rule in uppermost if isinstance(rule, dict)}
        kept = [
            rule
            for rule in _list(below.get(name))
            if not (isinstance(rule, dict) and rule.get("name") in names)
        ]
        if kept or uppermost:
            merged[name] = [*kept, *uppermost]
    return merged


def described(
    own: tuple[Table | None, Table | None],
    before: tuple[Table | None, Table | None],
    config: KeptConfig | None,
) -> tuple[Table | None, Table | None]:
    """Metadata and rules with which a schema is registered."""
    metadata = own[0] if own[0] is not None else before[0]
    rules = own[1] if own[1] is not None else before[1]
    if config is None:
        return metadata, rules
    return (
        merged_metadata(merged_metadata(config.defaultMetadata, metadata), config.overrideMetadata),
        merged_rules(merged_rules(config.defaultRuleSet, rules), config.overrideRuleSet),
    )


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


ID_MAX = 2**31 - 1


class Outdated(Refused):
    """The registry has changed since the plan was made."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.INVALID_UPDATE_VERSION)


# -- planning -----------------------------------------------------------------------------------


def plan_for(state: RegistryState, call: requests.Proposal) -> CheckPlan:
    """Makes a plan; raises Rejected for errors that can be found without parsing the schema."""
    _check_proposal(call)
    subject = state.named(call.subject)
    if isinstance(call, requests.LookUp) and call.anywhere:
        subject = _first_known(state, subject)
    previous: list[KeptSchema] = []
    level = state.level_of(subject)
    own = (call.metadata, call.rules)
    full = _described(state, call, subject)
    extras = own
    if isinstance(call, requests.Register):
        if _check_mode(state, call, subject) is not SubjectMode.IMPORT:
            extras = full
            previous = _previous(state, subject, level, full[0])
    elif isinstance(call, requests.CheckProposal):
        previous = _checked_against(state, call, subject, level, full[0])
    normalizes = call.normalize or state.normalizes(subject)
    context = context_of(subject)
    references = _references(state, context, call.references)
    if normalizes:
        references = tuple(sorted(references))
    source = source_of(state, call.type, call.schema, references)
    return CheckPlan(
        state.revision,
        source,
        extras,
        normalizes,
        level,
        tuple((kept.version, kept_source(state, kept)) for kept in previous),
        frozenset(kept.guid for kept in state.versions(subject))
        if isinstance(call, requests.Register)
        else frozenset(),
        full if full != extras else None,
        context,
    )


def _first_known(state: RegistryState, subject: str) -> str:
    """The subject, or the first context's subject of this name that exists."""
    known = (one for one in chain([subject], elsewhere(state, subject)) if one in state.subjects)
    return next(known, subject)


def _described(
    state: RegistryState, call: requests.Proposal, subject: str
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    last = state.get(subject, requests.LATEST)
    before = (last.metadata, last.ruleSet) if last is not None else (None, None)
    return described((call.metadata, call.rules), before, state.config_of(subject))


def _check_proposal(call: requests.Proposal) -> None:
    if isinstance(call, requests.Register):
        check_subject(call.subject)
    if call.type not in SCHEMA_TYPES:
        raise Rejected(RegistryErrorCode.INVALID_SCHEMA, f"Invalid schema type {call.type[:80]}")
    limits.check_size(call.schema)
    if not call.schema.strip():
        raise Rejected(RegistryErrorCode.INVALID_SCHEMA, "Empty schema")
    if len(call.references) > limits.REFERENCES_MAX:
        raise invalid(f"more than {limits.REFERENCES_MAX} references")
    if any(len(one.name) > limits.REFERENCE_CHARS_MAX for one in call.references):
        raise invalid(f"a reference name has more than {limits.REFERENCE_CHARS_MAX} characters")
    extras = len(write_sorted_json((call.metadata, call.rules)))
    if extras > limits.EXTRAS_BYTES_MAX:
        raise Rejected(
            RegistryErrorCode.SCHEMA_TOO_LARGE,
            f"metadata and rules are too large: at most {limits.EXTRAS_BYTES_MAX} bytes",
        )


def _check_mode(state: RegistryState, call: requests.Register, subject: str) -> SubjectMode:
    mode = require_writable(state, subject)
    said = f"Subject {subject[:200]} in context {context_of(subject)} is"
    if call.id is not None and mode is not SubjectMode.IMPORT:
        raise Rejected(RegistryErrorCode.NOT_PERMITTED, f"{said} not in import mode")
    if call.id is None and mode is SubjectMode.IMPORT:
        raise Rejected(RegistryErrorCode.NOT_PERMITTED, f"{said} not in read-write mode")
    if call.id is not None and not 0 <= call.id <= ID_MAX:
        raise invalid(f"invalid id {call.id}: must be from 0 to {ID_MAX}")
    if call.version is not None and not -1 <= call.version <= ID_MAX:
        raise invalid(f"invalid version {call.version}: must be from 1 to {ID_MAX}, or -1")
    return mode


def _previous(
    state: RegistryState, subject: str, level: Level, metadata: dict[str, Any] | None
) -> list[KeptSchema]:
    """Versions that a new one must be compatible with, newest first."""
    if level is Level.NONE:
        return []
    rows = _of_same_group(state, subject, metadata)
    return rows[::-1] if level.is_transitive else rows[-1:]


def _of_same_group(
    state: RegistryState, subject: str, metadata: dict[str, Any] | None
) -> list[KeptSchema]:
    """Versions to compare with: given a compatibility group, those with the same value in it."""
    rows = state.versions(subject)
    config = state.config_of(subject)
    group = config.compatibilityGroup if config is not None else None
    if not group:
        return rows
    wanted = metadata_properties(metadata).get(group)
    return [kept for kept in rows if metadata_properties(kept.metadata).get(group) == wanted]


def _checked_against(
    state: RegistryState,
    call: requests.CheckProposal,
    subject: str,
    level: Level,
    metadata: dict[str, Any] | None,
) -> list[KeptSchema]:
    if call.version is None:
        return _previous(state, subject, level, metadata)
    kept = state.get(subject, call.version)
    if kept is None:
        if call.version == requests.LATEST:
            return []
        require_subject(state, subject, deleted=False)
        raise no_version(call.version)
    return [] if level is Level.NONE else [kept]


def _references(
    state: RegistryState, context: str, written: Iterable[requests.NamedReference]
) -> tuple[Reference, ...]:
    """References with contexts, and with numbers for `latest`; refuses missing versions."""
    found: list[Reference] = []
    names: set[str] = set()
    for one in written:
        subject = seen_from(context, one.subject)
        kept = state.get(subject, one.version, deleted=True)
        if kept is None:
            raise invalid(
                f'No schema reference found for subject "{subject[:200]}" and version {one.version}'
            )
        if one.name in names:
            raise invalid(f'duplicate reference name "{one.name[:200]}"')
        names.add(one.name)
        found.append(Reference(one.name, subject, kept.version))
    return tuple(found)


def kept_source(state: RegistryState, kept: KeptSchema) -> SchemaSource:
    return source_of(state, kept.schemaType, kept.schema, kept.referred)


def source_of(
    state: RegistryState, kind: str, text: str, references: tuple[Reference, ...]
) -> SchemaSource:
    """A schema and all that it needs, in dependency order."""
    closure: dict[tuple[str, int], Dependency] = {}

    def gather(wanted: tuple[Reference, ...], depth: int) -> None:
        if wanted and depth > limits.REFERENCE_DEPTH_MAX:
            raise invalid(f"references are nested deeper than {limits.REFERENCE_DEPTH_MAX} levels")
        for one in wanted:
            place = (one.subject, one.version)
            if place in closure:
                continue
            kept = state.get(*place, deleted=True)
            if kept is None:
                raise invalid(
                    f'No schema reference found for subject "{one.subject[:200]}" and version '
                    f"{one.version}"
                )
            gather(kept.referred, depth + 1)
            if len(closure) >= limits.REFERENCED_MAX:
                raise invalid(f"more than {limits.REFERENCED_MAX} schemas are needed")
            closure[place] = Dependency(*place, kept.schemaType, kept.schema, kept.referred)

    gather(references, 1)
    return SchemaSource(kind, text, references, tuple(closure.values()))


def check_amount(plan: CheckPlan) -> None:
    """Limits how much one comparison reads."""
    amount = sum(len(one.text) for _, one in plan.previous)
    if amount > limits.COMPARED_BYTES_MAX:
        raise Rejected(
            RegistryErrorCode.SCHEMA_TOO_LARGE,
            f"the versions to compare with exceed {limits.COMPARED_BYTES_MAX} bytes: delete old "
            "versions, or choose a level that is not transitive",
        )


# -- deciding -----------------------------------------------------------------------------------


def register(
    state: RegistryState, call: requests.Register, plan: CheckPlan, verdict: CompatibilityVerdict
) -> ChangeOutcome:
    if plan.revision != state.revision:
        raise Outdated
    subject = state.named(call.subject)
    for kept in reversed(state.versions(subject)):
        is_same = kept.guid == verdict.guid and call.id in (None, kept.id)
        if is_same and call.version in (None, 0, requests.LATEST, kept.version):
            return [], _registered(kept)
    if verdict.messages:
        raise Rejected(
            RegistryErrorCode.INCOMPATIBLE_SCHEMA,
            "Schema being registered is incompatible with an earlier schema for subject "
            f'"{subject[:200]}", details: [{"; ".join(verdict.messages)}]',
        )
    schema_id = _id_for(state, call, plan.context, verdict)
    kept = KeptSchema(
        subject,
        _version_for(state, call, subject),
        schema_id,
        verdict.text,
        verdict.guid,
        call.type,
        tuple(
            KeptReference(one.name, short_for(plan.context, one.subject), one.version)
            for one in plan.source.references
        ),
        *plan.extras,
        recordName=verdict.record_name,
    )
    _check_capacity(state, kept)
    records = [
        *_first_of_context(state, kept),
        *_replaced(state, kept),
        *_superseded(state, kept),
        schema_record(kept),
    ]
    return records, _registered(kept)


def _registered(kept: KeptSchema) -> dict[str, Any]:
    return {"id": kept.id, "version": kept.version, "guid": kept.guid}


def _id_for(
    state: RegistryState, call: requests.Register, context: str, verdict: CompatibilityVerdict
) -> int:
    """Id of the schema: equal schemas share one, in all subjects of a context."""
    numbering = state.numbering(context)
    known = numbering.by_guid.get(verdict.guid)
    if call.id is None:
        if known:
            return next(iter(known.values())).id
        if numbering.highest_id >= ID_MAX:
            raise Rejected(RegistryErrorCode.STORE, f"no ids left: {ID_MAX} is in use")
        return numbering.highest_id + 1
    others = numbering.by_id.get(call.id, {})
    if any(kept.guid != verdict.guid for kept in others.values()):
        raise Rejected(
            RegistryErrorCode.NOT_PERMITTED,
            f"Overwrite new schema with id {call.id} in context {context} is not permitted.",
        )
    return call.id


def _version_for(state: RegistryState, call: requests.Register, subject: str) -> int:
    rows = state.versions(subject, deleted=True)
    following = rows[-1].version + 1 if rows else 1
    if call.version in (None, 0, requests.LATEST):
        return following
    assert call.version is not None
    if call.id is None and call.version != following:
        raise invalid("Version is not one more than previous version")
    return call.version


def _replaced(state: RegistryState, kept: KeptSchema) -> list[Record]:
    """Record for an import that replaces a version's schema: the replaced id stays in use."""
    before = state.get(*kept.place, deleted=True)
    highest = state.numbering(kept.context).highest_id
    if before is None or before.id == kept.id or before.id < highest:
        return []
    return [id_record(kept.context, highest)]


def _first_of_context(state: RegistryState, kept: KeptSchema) -> list[Record]:
    if kept.context in state.contexts:
        return []
    if len(state.contexts) > limits.CONTEXTS_MAX:
        raise Rejected(
            RegistryErrorCode.NOT_PERMITTED,
            f"too many contexts: at most {limits.CONTEXTS_MAX} beside the default one; delete "
            "an empty one first",
        )
    return [context_record(kept.context)]


def _superseded(state: RegistryState, kept: KeptSchema) -> list[Record]:
    """Tombstones for deleted versions of the same schema, unless they are referenced."""
    return [
        forgotten_schema(*one.place)
        for one in state.versions(kept.subject, deleted=True)
        if one.deleted and one.id == kept.id and one.version < kept.version
        if not any(state.referred_by(one.place, deleted=True))
    ]


def _check_capacity(state: RegistryState, kept: KeptSchema) -> None:
    if len(state.subjects.get(kept.subject, {})) >= limits.VERSIONS_MAX:
        raise Rejected(
            RegistryErrorCode.NOT_PERMITTED,
            f"subject {kept.subject[:200]} has {limits.VERSIONS_MAX} versions, the maximum: "
            "delete old ones with permanent=true",
        )
    if state.count >= limits.SCHEMAS_MAX or state.text_bytes >= limits.TOTAL_BYTES_MAX:
        raise Rejected(
            RegistryErrorCode.NOT_PERMITTED,
            f"the registry is full: at most {limits.SCHEMAS_MAX} versions and "
            f"{limits.TOTAL_BYTES_MAX} bytes",
        )


def look_up(
    state: RegistryState, call: requests.LookUp, verdict: CompatibilityVerdict
) -> dict[str, Any]:
    subject = state.named(call.subject)
    for one in chain([subject], elsewhere(state, subject) if call.anywhere else ()):
        rows = state.versions(one, deleted=call.deleted)
        for guid in (verdict.guid, verdict.other_guid):
            for kept in reversed(rows):
                if kept.guid == guid:
                    return show_version(kept)
    require_subject(state, subject, deleted=call.deleted)
    raise no_schema()


def check(call: requests.CheckProposal, verdict: CompatibilityVerdict) -> dict[str, Any]:
    answer: dict[str, Any] = {"is_compatible": not verdict.messages}
    if call.verbose:
        answer["messages"] = list(verdict.messages)
    return answer
