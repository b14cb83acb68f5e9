"""Route table of the registry: method, path, and the call made from a request."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.gateway.registry.request import (
    ModeBody,
    RegistryRequest,
    SchemaBody,
    plain,
    read_body,
    read_config,
)
from penstock.state.registry import requests
from penstock.state.registry.parsed_schemas import AVRO
from penstock.state.registry.subject_names import DEFAULT_CONTEXT, EVERY_CONTEXT, context_of


class RegistryRow(NamedTuple):
    """Route of the registry."""

    method: str
    path: str
    summary: str
    call: Callable[[RegistryRequest], requests.AnyCall]
    is_raw: bool = False
    """True if the response is only the schema text."""


def _register(parsed: RegistryRequest) -> requests.Register:
    body = read_body(parsed.body, SchemaBody)
    return requests.Register(
        parsed.subject,
        body.schema or "",
        body.schema_type or AVRO,
        _references(body),
        parsed.flag("normalize"),
        body.about,
        body.rule_set,
        body.id if body.id is not None and body.id >= 0 else None,
        body.version,
    )


def _look_up(parsed: RegistryRequest) -> requests.LookUp:
    body = read_body(parsed.body, SchemaBody)
    return requests.LookUp(
        parsed.subject,
        body.schema or "",
        body.schema_type or AVRO,
        _references(body),
        parsed.flag("normalize"),
        body.about,
        body.rule_set,
        deleted=parsed.flag("deleted"),
        form=parsed.text("format"),
        anywhere=True,
    )


def _check(parsed: RegistryRequest) -> requests.CheckProposal:
    body = read_body(parsed.body, SchemaBody)
    return requests.CheckProposal(
        parsed.subject,
        body.schema or "",
        body.schema_type or AVRO,
        _references(body),
        parsed.flag("normalize"),
        body.about,
        body.rule_set,
        version=parsed.version if "version" in parsed.path else None,
        verbose=parsed.flag("verbose"),
    )


def _references(body: SchemaBody) -> tuple[requests.NamedReference, ...]:
    return tuple(
        requests.NamedReference(one.name, one.subject, one.version) for one in body.references or ()
    )


def _list_subjects(parsed: RegistryRequest) -> requests.ListSubjects:
    prefix, everywhere = parsed.prefix(EVERY_CONTEXT)
    return requests.ListSubjects(
        parsed.offset,
        parsed.limit,
        prefix,
        parsed.flag("deleted"),
        parsed.flag("deletedOnly"),
        everywhere,
    )


def _list_versions(parsed: RegistryRequest) -> requests.ListVersions:
    return requests.ListVersions(
        parsed.offset,
        parsed.limit,
        parsed.subject,
        parsed.flag("deleted"),
        parsed.flag("deletedOnly"),
    )


def _list_schemas(parsed: RegistryRequest) -> requests.ListSchemas:
    prefix, everywhere = parsed.prefix("")
    return requests.ListSchemas(
        parsed.offset,
        parsed.limit,
        prefix,
        parsed.flag("deleted"),
        parsed.flag("latestOnly"),
        everywhere,
    )


def _list_contexts(parsed: RegistryRequest) -> requests.ListContexts:
    return requests.ListContexts(parsed.offset, parsed.limit, parsed.text("contextPrefix"))


def _get_version(parsed: RegistryRequest) -> requests.GetVersion:
    deleted = parsed.flag("deleted")
    return requests.GetVersion(
        parsed.subject,
        parsed.version,
        deleted,
        parsed.text("format"),
        parsed.is_qualified,
        anywhere=True,
    )


def _get_by_metadata(parsed: RegistryRequest) -> requests.GetByMetadata:
    names, values = parsed.query.getlist("key"), parsed.query.getlist("value")
    return requests.GetByMetadata(
        parsed.subject,
        dict(zip(names, values, strict=False)),
        parsed.flag("deleted"),
        parsed.text("format"),
    )


def _get_by_id(parsed: RegistryRequest) -> requests.GetById:
    there = parsed.found_by
    kind = requests.GetById if context_of(there) == DEFAULT_CONTEXT else requests.GetByIdThere
    return kind(
        parsed.id,
        there,
        parsed.text("format"),
        parsed.flag("fetchMaxId"),
        parsed.is_qualified,
        anywhere=True,
    )


def _list_places(with_versions: bool) -> Callable[[RegistryRequest], requests.ListPlaces]:
    def call(parsed: RegistryRequest) -> requests.ListPlaces:
        return requests.ListPlaces(
            parsed.offset,
            parsed.limit,
            parsed.id,
            parsed.found_by,
            parsed.flag("deleted"),
            with_versions,
        )

    return call


def _put_config(parsed: RegistryRequest) -> requests.PutConfig:
    body = read_config(parsed.body)
    level = body.compatibility if body.compatibility is not None else body.compatibility_level
    return requests.PutConfig(
        parsed.scope,
        level,
        body.normalize,
        body.alias,
        body.compatibility_group,
        plain(body.default_metadata),
        plain(body.override_metadata),
        body.default_rule_set,
        body.override_rule_set,
    )


def _get_config(parsed: RegistryRequest) -> requests.GetConfig:
    return requests.GetConfig(parsed.scope, parsed.flag("defaultToGlobal"))


def _get_mode(parsed: RegistryRequest) -> requests.GetMode:
    return requests.GetMode(parsed.scope, parsed.flag("defaultToGlobal"))


def _put_mode(parsed: RegistryRequest) -> requests.PutMode:
    body = read_body(parsed.body, ModeBody)
    return requests.PutMode(body.mode, parsed.scope, parsed.flag("force"))


def _delete_mode(parsed: RegistryRequest) -> requests.DeleteMode:
    return requests.DeleteMode(parsed.scope, parsed.flag("recursive"))


def _delete_version(parsed: RegistryRequest) -> requests.DeleteVersion:
    return requests.DeleteVersion(parsed.subject, parsed.version, parsed.flag("permanent"))


VERSION = "/subjects/{subject}/versions/{version}"
ROWS: tuple[RegistryRow, ...] = (
    RegistryRow("GET", "/subjects", "list subjects", _list_subjects),
    RegistryRow("POST", "/subjects/{subject}", "look up a schema in a subject", _look_up),
    RegistryRow(
        "DELETE",
        "/subjects/{subject}",
        "delete a subject",
        lambda parsed: requests.DeleteSubject(parsed.subject, parsed.flag("permanent")),
    ),
    RegistryRow(
        "GET",
        "/subjects/{subject}/metadata",
        "get the latest version with given metadata",
        _get_by_metadata,
    ),
    RegistryRow("GET", "/subjects/{subject}/versions", "list a subject's versions", _list_versions),
    RegistryRow("POST", "/subjects/{subject}/versions", "register a schema", _register),
    RegistryRow("GET", VERSION, "get a version", _get_version),
    RegistryRow("DELETE", VERSION, "delete a version", _delete_version),
    RegistryRow(
        "GET", f"{VERSION}/schema", "get a version's schema text", _get_version, is_raw=True
    ),
    RegistryRow(
        "GET",
        f"{VERSION}/referencedby",
        "list the ids of schemas that reference a version",
        lambda parsed: requests.GetReferrers(
            parsed.subject, parsed.version, parsed.flag("deleted")
        ),
    ),
    RegistryRow("GET", "/schemas", "list schemas", _list_schemas),
    RegistryRow("GET", "/schemas/ids/{id}", "get a schema by its id", _get_by_id),
    RegistryRow(
        "GET", "/schemas/ids/{id}/schema", "get a schema's text by its id", _get_by_id, is_raw=True
    ),
    RegistryRow(
        "GET",
        "/schemas/ids/{id}/subjects",
        "list subjects that have a schema id",
        _list_places(False),
    ),
    RegistryRow(
        "GET",
        "/schemas/ids/{id}/versions",
        "list versions that have a schema id",
        _list_places(True),
    ),
    RegistryRow(
        "GET",
        "/schemas/guids/{guid}",
        "get a schema by its GUID",
        lambda parsed: requests.GetByGuid(parsed.path["guid"], parsed.text("format")),
    ),
    RegistryRow(
        "GET",
        "/schemas/guids/{guid}/ids",
        "list the schema ids of a GUID",
        lambda parsed: requests.ListIdsOfGuid(parsed.path["guid"]),
    ),
    RegistryRow(
        "POST",
        "/compatibility/subjects/{subject}/versions",
        "check compatibility with all versions",
        _check,
    ),
    RegistryRow("POST", f"/compatibility{VERSION}", "check compatibility with a version", _check),
    RegistryRow("GET", "/contexts", "list contexts", _list_contexts),
    RegistryRow(
        "DELETE",
        "/contexts/{context}",
        "delete an empty context",
        lambda parsed: requests.DeleteContext(parsed.deleted_context),
    ),
    RegistryRow("GET", "/config", "get the compatibility level of the context", _get_config),
    RegistryRow("PUT", "/config", "set the compatibility level of the context", _put_config),
    RegistryRow(
        "DELETE",
        "/config",
        "reset the compatibility level of the context to BACKWARD",
        lambda parsed: requests.DeleteConfig(parsed.scope),
    ),
    RegistryRow("GET", "/config/{subject}", "get a subject's compatibility level", _get_config),
    RegistryRow("PUT", "/config/{subject}", "set a subject's compatibility level", _put_config),
    RegistryRow(
        "DELETE",
        "/config/{subject}",
        "reset a subject's compatibility level to the context's",
        lambda parsed: requests.DeleteConfig(parsed.scope),
    ),
    RegistryRow("GET", "/mode", "get the mode of the context", _get_mode),
    RegistryRow("PUT", "/mode", "set the mode of the context", _put_mode),
    RegistryRow("DELETE", "/mode", "reset the mode of the context to READWRITE", _delete_mode),
    RegistryRow("GET", "/mode/{subject}", "get a subject's mode", _get_mode),
    RegistryRow("PUT", "/mode/{subject}", "set a subject's mode", _put_mode),
    RegistryRow(
        "DELETE", "/mode/{subject}", "reset a subject's mode to the context's", _delete_mode
    ),
)


PAGES = {
    "/schemas/types": "list the supported schema types",
    "/v1/metadata/id": "get the cluster's id",
    "/v1/metadata/version": "get the version",
}
"""Static pages with their descriptions."""


def find_row(method: str, parts: list[str]) -> tuple[RegistryRow | None, dict[str, str], bool]:
    """Returns the row of a request with its path parameters; and True if the path has a row for
    any method."""
    is_known = False
    for row in ROWS:
        wanted = row.path.strip("/").split("/")
        if len(wanted) != len(parts):
            continue
        values: dict[str, str] = {}
        for name, part in zip(wanted, parts, strict=True):
            if name.startswith("{"):
                values[name[1:-1]] = part
            elif name != part:
                break
        else:
            is_known = True
            if row.method == method:
                return row, values, True
    return None, {}, is_known
