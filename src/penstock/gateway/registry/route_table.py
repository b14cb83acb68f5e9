"""The table of the registry's routes: method, path, and the call that a request comes to."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.gateway.registry.request import RegistryRequest
from penstock.gateway.registry.request_bodies import (
    ModeBody,
    SchemaBody,
    plain,
    read_body,
    read_config,
)
from penstock.state.registry import requests
from penstock.state.registry.parsed_schemas import AVRO
from penstock.state.registry.subject_names import DEFAULT_CONTEXT, EVERY_CONTEXT, context_of


class RegistryRow(NamedTuple):
    """One route."""

    method: str
    path: str
    summary: str
    call: Callable[[RegistryRequest], requests.AnyCall]
    is_raw: bool = False
    """The schema alone is answered, not what it is in."""


def _register(asked: RegistryRequest) -> requests.Register:
    body = read_body(asked.body, SchemaBody)
    return requests.Register(
        asked.subject,
        body.schema or "",
        body.schema_type or AVRO,
        _references(body),
        asked.flag("normalize"),
        body.about,
        body.rule_set,
        body.id if body.id is not None and body.id >= 0 else None,
        body.version,
    )


def _look_up(asked: RegistryRequest) -> requests.LookUp:
    body = read_body(asked.body, SchemaBody)
    return requests.LookUp(
        asked.subject,
        body.schema or "",
        body.schema_type or AVRO,
        _references(body),
        asked.flag("normalize"),
        body.about,
        body.rule_set,
        deleted=asked.flag("deleted"),
        form=asked.text("format"),
        anywhere=True,
    )


def _check(asked: RegistryRequest) -> requests.CheckProposal:
    body = read_body(asked.body, SchemaBody)
    return requests.CheckProposal(
        asked.subject,
        body.schema or "",
        body.schema_type or AVRO,
        _references(body),
        asked.flag("normalize"),
        body.about,
        body.rule_set,
        version=asked.version if "version" in asked.path else None,
        verbose=asked.flag("verbose"),
    )


def _references(body: SchemaBody) -> tuple[requests.NamedReference, ...]:
    return tuple(
        requests.NamedReference(one.name, one.subject, one.version) for one in body.references or ()
    )


def _list_subjects(asked: RegistryRequest) -> requests.ListSubjects:
    prefix, everywhere = asked.prefix(EVERY_CONTEXT)
    return requests.ListSubjects(
        asked.offset,
        asked.limit,
        prefix,
        asked.flag("deleted"),
        asked.flag("deletedOnly"),
        everywhere,
    )


def _list_versions(asked: RegistryRequest) -> requests.ListVersions:
    return requests.ListVersions(
        asked.offset, asked.limit, asked.subject, asked.flag("deleted"), asked.flag("deletedOnly")
    )


def _list_schemas(asked: RegistryRequest) -> requests.ListSchemas:
    prefix, everywhere = asked.prefix("")
    return requests.ListSchemas(
        asked.offset,
        asked.limit,
        prefix,
        asked.flag("deleted"),
        asked.flag("latestOnly"),
        everywhere,
    )


def _list_contexts(asked: RegistryRequest) -> requests.ListContexts:
    return requests.ListContexts(asked.offset, asked.limit, asked.text("contextPrefix"))


def _get_version(asked: RegistryRequest) -> requests.GetVersion:
    deleted = asked.flag("deleted")
    return requests.GetVersion(
        asked.subject,
        asked.version,
        deleted,
        asked.text("format"),
        asked.is_qualified,
        anywhere=True,
    )


def _get_by_metadata(asked: RegistryRequest) -> requests.GetByMetadata:
    names, values = asked.query.getlist("key"), asked.query.getlist("value")
    return requests.GetByMetadata(
        asked.subject,
        dict(zip(names, values, strict=False)),
        asked.flag("deleted"),
        asked.text("format"),
    )


def _get_by_id(asked: RegistryRequest) -> requests.GetById:
    there = asked.found_by
    kind = requests.GetById if context_of(there) == DEFAULT_CONTEXT else requests.GetByIdThere
    return kind(
        asked.id,
        there,
        asked.text("format"),
        asked.flag("fetchMaxId"),
        asked.is_qualified,
        anywhere=True,
    )


def _list_places(with_versions: bool) -> Callable[[RegistryRequest], requests.ListPlaces]:
    def call(asked: RegistryRequest) -> requests.ListPlaces:
        return requests.ListPlaces(
            asked.offset,
            asked.limit,
            asked.id,
            asked.found_by,
            asked.flag("deleted"),
            with_versions,
        )

    return call


def _put_config(asked: RegistryRequest) -> requests.PutConfig:
    body = read_config(asked.body)
    level = body.compatibility if body.compatibility is not None else body.compatibility_level
    return requests.PutConfig(
        asked.scope,
        level,
        body.normalize,
        body.alias,
        body.compatibility_group,
        plain(body.default_metadata),
        plain(body.override_metadata),
        body.default_rule_set,
        body.override_rule_set,
    )


def _get_config(asked: RegistryRequest) -> requests.GetConfig:
    return requests.GetConfig(asked.scope, asked.flag("defaultToGlobal"))


def _get_mode(asked: RegistryRequest) -> requests.GetMode:
    return requests.GetMode(asked.scope, asked.flag("defaultToGlobal"))


def _put_mode(asked: RegistryRequest) -> requests.PutMode:
    body = read_body(asked.body, ModeBody)
    return requests.PutMode(body.mode, asked.scope, asked.flag("force"))


def _delete_mode(asked: RegistryRequest) -> requests.DeleteMode:
    return requests.DeleteMode(asked.scope, asked.flag("recursive"))


def _delete_version(asked: RegistryRequest) -> requests.DeleteVersion:
    return requests.DeleteVersion(asked.subject, asked.version, asked.flag("permanent"))


VERSION = "/subjects/{subject}/versions/{version}"
ROWS: tuple[RegistryRow, ...] = (
    RegistryRow("GET", "/subjects", "all subjects", _list_subjects),
    RegistryRow(
        "POST", "/subjects/{subject}", "the version that a schema is of a subject", _look_up
    ),
    RegistryRow(
        "DELETE",
        "/subjects/{subject}",
        "deletes a subject",
        lambda asked: requests.DeleteSubject(asked.subject, asked.flag("permanent")),
    ),
    RegistryRow(
        "GET", "/subjects/{subject}/metadata", "the last with such metadata", _get_by_metadata
    ),
    RegistryRow("GET", "/subjects/{subject}/versions", "a subject's versions", _list_versions),
    RegistryRow("POST", "/subjects/{subject}/versions", "registers a schema", _register),
    RegistryRow("GET", VERSION, "one version", _get_version),
    RegistryRow("DELETE", VERSION, "deletes a version", _delete_version),
    RegistryRow(
        "GET", f"{VERSION}/schema", "one version's schema alone", _get_version, is_raw=True
    ),
    RegistryRow(
        "GET",
        f"{VERSION}/referencedby",
        "ids of schemas that refer to a version",
        lambda asked: requests.GetReferrers(asked.subject, asked.version, asked.flag("deleted")),
    ),
    RegistryRow("GET", "/schemas", "all schemas", _list_schemas),
    RegistryRow("GET", "/schemas/ids/{id}", "a schema by its id", _get_by_id),
    RegistryRow("GET", "/schemas/ids/{id}/schema", "a schema alone", _get_by_id, is_raw=True),
    RegistryRow(
        "GET", "/schemas/ids/{id}/subjects", "subjects that have an id", _list_places(False)
    ),
    RegistryRow(
        "GET", "/schemas/ids/{id}/versions", "versions that have an id", _list_places(True)
    ),
    RegistryRow(
        "GET",
        "/schemas/guids/{guid}",
        "a schema by its guid",
        lambda asked: requests.GetByGuid(asked.path["guid"], asked.text("format")),
    ),
    RegistryRow(
        "GET",
        "/schemas/guids/{guid}/ids",
        "the ids of a guid",
        lambda asked: requests.ListIdsOfGuid(asked.path["guid"]),
    ),
    RegistryRow("POST", "/compatibility/subjects/{subject}/versions", "checks against all", _check),
    RegistryRow("POST", f"/compatibility{VERSION}", "checks against one version", _check),
    RegistryRow("GET", "/contexts", "the contexts there are", _list_contexts),
    RegistryRow(
        "DELETE",
        "/contexts/{context}",
        "deletes a context that is empty",
        lambda asked: requests.DeleteContext(asked.deleted_context),
    ),
    RegistryRow("GET", "/config", "the level for all subjects of the context", _get_config),
    RegistryRow("PUT", "/config", "sets the level for all subjects of the context", _put_config),
    RegistryRow(
        "DELETE", "/config", "back to BACKWARD", lambda asked: requests.DeleteConfig(asked.scope)
    ),
    RegistryRow("GET", "/config/{subject}", "a subject's level", _get_config),
    RegistryRow("PUT", "/config/{subject}", "sets a subject's level", _put_config),
    RegistryRow(
        "DELETE",
        "/config/{subject}",
        "back to the level for all",
        lambda asked: requests.DeleteConfig(asked.scope),
    ),
    RegistryRow("GET", "/mode", "the mode for all subjects of the context", _get_mode),
    RegistryRow("PUT", "/mode", "sets the mode for all subjects of the context", _put_mode),
    RegistryRow("DELETE", "/mode", "back to READWRITE", _delete_mode),
    RegistryRow("GET", "/mode/{subject}", "a subject's mode", _get_mode),
    RegistryRow("PUT", "/mode/{subject}", "sets a subject's mode", _put_mode),
    RegistryRow("DELETE", "/mode/{subject}", "back to the mode for all", _delete_mode),
)


PAGES = {
    "/schemas/types": "the types of schemas that are understood",
    "/v1/metadata/id": "the cluster's id",
    "/v1/metadata/version": "the version that runs here",
}
"""Answers that are always the same."""


def find_row(method: str, parts: list[str]) -> tuple[RegistryRow | None, dict[str, str], bool]:
    """The row of a request with what its path says; and whether the path has any row at all."""
    is_known = False
    for row in ROWS:
        wanted = row.path.strip("/").split("/")
        if len(wanted) != len(parts):
            continue
        said: dict[str, str] = {}
        for name, part in zip(wanted, parts, strict=True):
            if name.startswith("{"):
                said[name[1:-1]] = part
            elif name != part:
                break
        else:
            is_known = True
            if row.method == method:
                return row, said, True
    return None, {}, is_known
