"""The table of the registry's routes: method, path, and the call that a request comes to."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.gateway.registry.request import Asked
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


class Row(NamedTuple):
    """One route."""

    method: str
    path: str
    summary: str
    call: Callable[[Asked], requests.AnyCall]
    is_raw: bool = False
    """The schema alone is answered, not what it is in."""


def _register(asked: Asked) -> requests.Register:
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


def _look_up(asked: Asked) -> requests.LookUp:
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


def _check(asked: Asked) -> requests.CheckProposal:
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


def _list_subjects(asked: Asked) -> requests.ListSubjects:
    prefix, everywhere = asked.prefix(EVERY_CONTEXT)
    return requests.ListSubjects(
        asked.offset,
        asked.limit,
        prefix,
        asked.flag("deleted"),
        asked.flag("deletedOnly"),
        everywhere,
    )


def _list_versions(asked: Asked) -> requests.ListVersions:
    return requests.ListVersions(
        asked.offset, asked.limit, asked.subject, asked.flag("deleted"), asked.flag("deletedOnly")
    )


def _list_schemas(asked: Asked) -> requests.ListSchemas:
    prefix, everywhere = asked.prefix("")
    return requests.ListSchemas(
        asked.offset,
        asked.limit,
        prefix,
        asked.flag("deleted"),
        asked.flag("latestOnly"),
        everywhere,
    )


def _list_contexts(asked: Asked) -> requests.ListContexts:
    return requests.ListContexts(asked.offset, asked.limit, asked.text("contextPrefix"))


def _get_version(asked: Asked) -> requests.GetVersion:
    deleted = asked.flag("deleted")
    return requests.GetVersion(
        asked.subject,
        asked.version,
        deleted,
        asked.text("format"),
        asked.is_qualified,
        anywhere=True,
    )


def _get_by_metadata(asked: Asked) -> requests.GetByMetadata:
    names, values = asked.query.getlist("key"), asked.query.getlist("value")
    return requests.GetByMetadata(
        asked.subject,
        dict(zip(names, values, strict=False)),
        asked.flag("deleted"),
        asked.text("format"),
    )


def _get_by_id(asked: Asked) -> requests.GetById:
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


def _list_places(with_versions: bool) -> Callable[[Asked], requests.ListPlaces]:
    def call(asked: Asked) -> requests.ListPlaces:
        return requests.ListPlaces(
            asked.offset,
            asked.limit,
            asked.id,
            asked.found_by,
            asked.flag("deleted"),
            with_versions,
        )

    return call


def _put_config(asked: Asked) -> requests.PutConfig:
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


def _get_config(asked: Asked) -> requests.GetConfig:
    return requests.GetConfig(asked.scope, asked.flag("defaultToGlobal"))


def _get_mode(asked: Asked) -> requests.GetMode:
    return requests.GetMode(asked.scope, asked.flag("defaultToGlobal"))


def _put_mode(asked: Asked) -> requests.PutMode:
    body = read_body(asked.body, ModeBody)
    return requests.PutMode(body.mode, asked.scope, asked.flag("force"))


def _delete_mode(asked: Asked) -> requests.DeleteMode:
    return requests.DeleteMode(asked.scope, asked.flag("recursive"))


def _delete_version(asked: Asked) -> requests.DeleteVersion:
    return requests.DeleteVersion(asked.subject, asked.version, asked.flag("permanent"))


VERSION = "/subjects/{subject}/versions/{version}"
ROWS: tuple[Row, ...] = (
    Row("GET", "/subjects", "all subjects", _list_subjects),
    Row("POST", "/subjects/{subject}", "the version that a schema is of a subject", _look_up),
    Row(
        "DELETE",
        "/subjects/{subject}",
        "deletes a subject",
        lambda asked: requests.DeleteSubject(asked.subject, asked.flag("permanent")),
    ),
    Row("GET", "/subjects/{subject}/metadata", "the last with such metadata", _get_by_metadata),
    Row("GET", "/subjects/{subject}/versions", "a subject's versions", _list_versions),
    Row("POST", "/subjects/{subject}/versions", "registers a schema", _register),
    Row("GET", VERSION, "one version", _get_version),
    Row("DELETE", VERSION, "deletes a version", _delete_version),
    Row("GET", f"{VERSION}/schema", "one version's schema alone", _get_version, is_raw=True),
    Row(
        "GET",
        f"{VERSION}/referencedby",
        "ids of schemas that refer to a version",
        lambda asked: requests.GetReferrers(asked.subject, asked.version, asked.flag("deleted")),
    ),
    Row("GET", "/schemas", "all schemas", _list_schemas),
    Row("GET", "/schemas/ids/{id}", "a schema by its id", _get_by_id),
    Row("GET", "/schemas/ids/{id}/schema", "a schema alone", _get_by_id, is_raw=True),
    Row("GET", "/schemas/ids/{id}/subjects", "subjects that have an id", _list_places(False)),
    Row("GET", "/schemas/ids/{id}/versions", "versions that have an id", _list_places(True)),
    Row(
        "GET",
        "/schemas/guids/{guid}",
        "a schema by its guid",
        lambda asked: requests.GetByGuid(asked.path["guid"], asked.text("format")),
    ),
    Row(
        "GET",
        "/schemas/guids/{guid}/ids",
        "the ids of a guid",
        lambda asked: requests.ListIdsOfGuid(asked.path["guid"]),
    ),
    Row("POST", "/compatibility/subjects/{subject}/versions", "checks against all", _check),
    Row("POST", f"/compatibility{VERSION}", "checks against one version", _check),
    Row("GET", "/contexts", "the contexts there are", _list_contexts),
    Row(
        "DELETE",
        "/contexts/{context}",
        "deletes a context that is empty",
        lambda asked: requests.DeleteContext(asked.deleted_context),
    ),
    Row("GET", "/config", "the level for all subjects of the context", _get_config),
    Row("PUT", "/config", "sets the level for all subjects of the context", _put_config),
    Row("DELETE", "/config", "back to BACKWARD", lambda asked: requests.DeleteConfig(asked.scope)),
    Row("GET", "/config/{subject}", "a subject's level", _get_config),
    Row("PUT", "/config/{subject}", "sets a subject's level", _put_config),
    Row(
        "DELETE",
        "/config/{subject}",
        "back to the level for all",
        lambda asked: requests.DeleteConfig(asked.scope),
    ),
    Row("GET", "/mode", "the mode for all subjects of the context", _get_mode),
    Row("PUT", "/mode", "sets the mode for all subjects of the context", _put_mode),
    Row("DELETE", "/mode", "back to READWRITE", _delete_mode),
    Row("GET", "/mode/{subject}", "a subject's mode", _get_mode),
    Row("PUT", "/mode/{subject}", "sets a subject's mode", _put_mode),
    Row("DELETE", "/mode/{subject}", "back to the mode for all", _delete_mode),
)


PAGES = {
    "/schemas/types": "the types of schemas that are understood",
    "/v1/metadata/id": "the cluster's id",
    "/v1/metadata/version": "the version that runs here",
}
"""Answers that are always the same."""


def find_row(method: str, parts: list[str]) -> tuple[Row | None, dict[str, str], bool]:
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
