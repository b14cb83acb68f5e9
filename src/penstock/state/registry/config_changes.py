"""Calls that change settings or delete schemas: each returns records and its response.

Deletion has two steps, as in Confluent's registry. First a version is soft deleted and can still
be found by its id; a second call with `permanent` removes it. Referenced versions stay.
"""

from typing import Any

import msgspec

from penstock.base.state_machine import Record
from penstock.state.registry import limits, requests
from penstock.state.registry.compatibility_check import (
    DEFAULT_LEVEL,
    DEFAULT_MODE,
    Level,
    SubjectMode,
)
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.json_text import write_sorted_json
from penstock.state.registry.queries import no_subject, no_version, require_subject, show_config
from penstock.state.registry.records import (
    KeptConfig,
    KeptSchema,
    config_record,
    forgotten_context,
    forgotten_schema,
    id_record,
    mode_record,
    schema_record,
)
from penstock.state.registry.state import RegistryState
from penstock.state.registry.subject_names import (
    DEFAULT_CONTEXT,
    EVERYWHERE,
    check_scope,
    check_subject,
    context_of,
    seen_from,
    split_subject,
)

ChangeOutcome = tuple[list[Record], Any]
"""Records to persist, and the response."""
LEVELS = ", ".join(Level)
SETTABLE = ", ".join(SubjectMode)


def require_writable(state: RegistryState, subject: str) -> SubjectMode:
    mode = state.mode_of(subject)
    if mode is SubjectMode.READONLY:
        raise Rejected(
            RegistryErrorCode.NOT_PERMITTED,
            f"Subject {subject[:200]} in context {context_of(subject)} is in read-only mode",
        )
    return mode


# -- deleting -----------------------------------------------------------------------------------


def delete_version(state: RegistryState, call: requests.DeleteVersion) -> ChangeOutcome:
    subject, version = call.subject, call.version
    require_subject(state, subject, deleted=True)
    kept = state.get(subject, version, deleted=call.permanent)
    if kept is None:
        hidden = state.get(subject, version, deleted=True)
        if hidden is not None and version != requests.LATEST:
            raise Rejected(
                RegistryErrorCode.VERSION_SOFT_DELETED,
                f"Subject '{subject[:200]}' Version {version} was soft deleted. "
                "Set permanent=true to delete permanently",
            )
        require_subject(state, subject, deleted=call.permanent)
        raise no_version(version)
    require_writable(state, subject)
    _require_unreferenced(state, [kept], permanent=call.permanent)
    if not call.permanent:
        return [schema_record(_hidden(kept))], kept.version
    if not kept.deleted:
        raise Rejected(
            RegistryErrorCode.VERSION_NOT_SOFT_DELETED,
            f"Subject '{subject[:200]}' Version {kept.version} was not deleted first before "
            "being permanently deleted",
        )
    records = _version_tombstones(state, [kept])
    if len(state.subjects[subject]) == 1:
        records += _settings_tombstones(state, subject)
    return records, kept.version


def delete_subject(state: RegistryState, call: requests.DeleteSubject) -> ChangeOutcome:
    subject = call.subject
    require_subject(state, subject, deleted=True)
    rows = state.versions(subject, deleted=call.permanent)
    if not rows:
        raise Rejected(
            RegistryErrorCode.SUBJECT_SOFT_DELETED,
            f"Subject '{subject[:200]}' was soft deleted. Set permanent=true to delete permanently",
        )
    require_writable(state, subject)
    _require_unreferenced(state, rows, permanent=call.permanent)
    numbers = [kept.version for kept in rows]
    if not call.permanent:
        return [schema_record(_hidden(kept)) for kept in rows], numbers
    if not all(kept.deleted for kept in rows):
        raise Rejected(
            RegistryErrorCode.SUBJECT_NOT_SOFT_DELETED,
            f"Subject '{subject[:200]}' was not deleted first before being permanently deleted",
        )
    return [*_version_tombstones(state, rows), *_settings_tombstones(state, subject)], numbers


def _hidden(kept: KeptSchema) -> KeptSchema:
    return msgspec.structs.replace(kept, deleted=True)


def _version_tombstones(state: RegistryState, rows: list[KeptSchema]) -> list[Record]:
    """Tombstones; the highest id is recorded first, so that a deleted id is never reused."""
    records = [forgotten_schema(*kept.place) for kept in rows]
    for context in sorted({kept.context for kept in rows}):
        highest = state.numbering(context).highest_id
        if any(kept.id == highest for kept in rows if kept.context == context):
            records.insert(0, id_record(context, highest))
    return records


def delete_context(state: RegistryState, call: requests.DeleteContext) -> ChangeOutcome:
    """Deletes an empty context with its ids: if it is created again, they begin with 1."""
    context = context_of(call.subject)
    if context == DEFAULT_CONTEXT:
        raise Rejected(RegistryErrorCode.NOT_PERMITTED, "The default context cannot be deleted.")
    if context not in state.contexts:
        raise Rejected(RegistryErrorCode.SUBJECT_NOT_FOUND, f"Context '{context[:200]}' not found.")
    if state.contexts[context].by_id:
        raise Rejected(
            RegistryErrorCode.CONTEXT_NOT_EMPTY,
            f"The specified context '{call.subject[:300]}' is not empty. Delete its subjects with "
            "permanent=true first.",
        )
    return [forgotten_context(context)], None


def _settings_tombstones(state: RegistryState, subject: str) -> list[Record]:
    records: list[Record] = []
    if subject in state.modes:
        records.append(mode_record(subject, None))
    if subject in state.configs:
        records.append(config_record(subject, None))
    return records


def _require_unreferenced(state: RegistryState, rows: list[KeptSchema], *, permanent: bool) -> None:
    """Refuses to delete referenced versions; references between the rows do not count."""
    going = {kept.place for kept in rows}
    for kept in rows:
        for other in state.referred_by(kept.place, deleted=permanent):
            if other.place not in going:
                raise Rejected(
                    RegistryErrorCode.REFERENCE_EXISTS,
                    f"One or more references exist to the schema {{subject={kept.subject[:200]},"
                    f"version={kept.version}}}.",
                )


# -- settings -----------------------------------------------------------------------------------


def put_config(state: RegistryState, call: requests.PutConfig) -> ChangeOutcome:
    subject = check_scope(call.subject) if call.subject is not None else None
    if call.level is not None and call.level.upper() not in set(Level):
        raise Rejected(
            RegistryErrorCode.INVALID_LEVEL,
            f"Invalid compatibility level. Valid values are: {LEVELS}",
        )
    _check_capacity(state, subject)
    if call.alias:
        check_subject(seen_from(context_of(subject), call.alias))
    if call.group is not None and len(call.group) > limits.SUBJECT_CHARS_MAX:
        raise Rejected(
            RegistryErrorCode.NOT_PERMITTED,
            f"the name of the compatibility group has {len(call.group)} characters: "
            f"at most {limits.SUBJECT_CHARS_MAX}",
        )
    said = KeptConfig(
        call.level.upper() if call.level is not None else None,
        call.normalize,
        call.alias,
        call.group,
        call.default_metadata,
        call.override_metadata,
        call.default_rules,
        call.override_rules,
    )
    if len(write_sorted_json(msgspec.to_builtins(said))) > 2 * limits.EXTRAS_BYTES_MAX:
        raise Rejected(
            RegistryErrorCode.SCHEMA_TOO_LARGE,
            f"the config is too large: at most {2 * limits.EXTRAS_BYTES_MAX} bytes",
        )
    new = {name: value for name, value in msgspec.structs.asdict(said).items() if value is not None}
    after = msgspec.structs.replace(state.configs.get(subject) or KeptConfig(), **new)
    return [config_record(subject, after)], show_config(said, "compatibility")


def delete_config(state: RegistryState, call: requests.DeleteConfig) -> ChangeOutcome:
    config = state.configs.get(call.subject)
    if config is None:
        if call.subject is not None:
            raise no_subject(call.subject)
        return [], {"compatibilityLevel": DEFAULT_LEVEL.value}
    return [config_record(call.subject, None)], show_config(config)


def put_mode(state: RegistryState, call: requests.PutMode) -> ChangeOutcome:
    subject = check_scope(call.subject) if call.subject is not None else None
    written = call.mode.upper()
    if written not in set(SubjectMode) or (
        subject is not None and written == SubjectMode.READONLY_OVERRIDE
    ):
        raise Rejected(RegistryErrorCode.INVALID_MODE, f"Invalid mode. Valid values are {SETTABLE}")
    _check_capacity(state, subject)
    mode = SubjectMode(written)
    cleared: list[Record] = []
    if (
        mode is SubjectMode.IMPORT
        and not call.force
        and _current_mode(state, subject) is not SubjectMode.IMPORT
    ):
        in_the_way = sorted(one for one in state.subjects if _is_within(one, subject))
        if any(state.versions(one) for one in in_the_way):
            raise Rejected(
                RegistryErrorCode.NOT_PERMITTED,
                "Cannot import since found existing subjects; delete them first, or use force=true",
            )
        # Soft-deleted versions would conflict with imported ones.
        hidden = [kept for one in in_the_way for kept in state.versions(one, deleted=True)]
        if len(hidden) > limits.VERSIONS_MAX:
            raise Rejected(
                RegistryErrorCode.NOT_PERMITTED,
                f"more than {limits.VERSIONS_MAX} deleted versions would be removed permanently: "
                "delete some of them with permanent=true first",
            )
        _require_unreferenced(state, hidden, permanent=True)
        cleared = _version_tombstones(state, hidden)
    return [*cleared, mode_record(subject, mode.value)], {"mode": mode.value}


def delete_mode(state: RegistryState, call: requests.DeleteMode) -> ChangeOutcome:
    mode = state.modes.get(call.subject)
    records: list[Record] = []
    if mode is not None:
        records.append(mode_record(call.subject, None))
    if call.recursive:
        records += [
            mode_record(one, None)
            for one in state.modes
            if one != call.subject and _is_within(one, call.subject)
        ]
    if mode is None and call.subject is not None and not call.recursive:
        raise no_subject(call.subject)
    return records, {"mode": (mode or DEFAULT_MODE).value}


def _is_within(one: str | None, scope: str | None) -> bool:
    """True if a subject is the scope, or belongs to the context that the scope is."""
    context, name = split_subject(scope or "")
    return one == scope or scope == EVERYWHERE or (not name and context_of(one) == context)


def _check_capacity(state: RegistryState, subject: str | None) -> None:
    is_new = subject not in state.configs and subject not in state.modes
    if is_new and len(state.configs) + len(state.modes) >= limits.SETTINGS_MAX:
        raise Rejected(
            RegistryErrorCode.NOT_PERMITTED,
            f"too many subjects have settings: at most {limits.SETTINGS_MAX}, delete some first",
        )


def _current_mode(state: RegistryState, subject: str | None) -> SubjectMode:
    return state.modes.get(subject, DEFAULT_MODE)
