"""The schema registry: records of its topic, and the calls that nodes pass on to each other."""

import typing
from collections.abc import Iterator
from typing import Any, Final

import pytest

from penstock.state.registry import records, requests
from penstock.state.registry.compatibility_check import Level, SubjectMode
from penstock.state.registry.records import (
    KeptConfig,
    KeptContext,
    KeptId,
    KeptMode,
    KeptReference,
    KeptSchema,
    RegistryKey,
)
from penstock.state.registry.subject_names import Strategy
from tests.golden.book import Book, Sample
from tests.golden.filling import full, minimal
from tests.golden.structs import structs_of

CALLS: Final[dict[str, type[Any]]] = {
    "register": requests.Register,
    "look up": requests.LookUp,
    "check": requests.CheckProposal,
    "list subjects": requests.ListSubjects,
    "list versions": requests.ListVersions,
    "list schemas": requests.ListSchemas,
    "list contexts": requests.ListContexts,
    "get version": requests.GetVersion,
    "get by metadata": requests.GetByMetadata,
    "get referrers": requests.GetReferrers,
    "get by id": requests.GetById,
    "get by id in a context": requests.GetByIdThere,
    "get by guid": requests.GetByGuid,
    "list ids of a guid": requests.ListIdsOfGuid,
    "list places": requests.ListPlaces,
    "delete version": requests.DeleteVersion,
    "delete subject": requests.DeleteSubject,
    "delete context": requests.DeleteContext,
    "get config": requests.GetConfig,
    "put config": requests.PutConfig,
    "delete config": requests.DeleteConfig,
    "get mode": requests.GetMode,
    "put mode": requests.PutMode,
    "delete mode": requests.DeleteMode,
    "vouch": requests.Vouch,
}
BASES: Final = {requests.RegistryCall, requests.ListPage, requests.Proposal}
PARTS: Final = {requests.NamedReference}
VALUES: Final = {KeptSchema, KeptConfig, KeptMode, KeptId, KeptContext}


def _samples() -> Iterator[Sample]:
    for name, kind in CALLS.items():
        for size, call in (("full", full(kind)), ("minimal", minimal(kind))):
            data = requests.encode_call(call)
            yield Sample(f"call: {name} {size}", data, call, requests.decode_call)
    for name, (key, value) in _records().items():
        yield Sample(f"record: {name}, key", key)
        if value is not None:
            yield Sample(f"record: {name}, value", value)
    yield Sample("names of levels", " ".join(Level).encode())
    yield Sample("names of modes", " ".join(SubjectMode).encode())
    yield Sample("names of strategies", " ".join(Strategy).encode())


def _records() -> dict[str, tuple[bytes, bytes | None]]:
    return {
        "schema": records.schema_record(full(KeptSchema)),
        "schema, minimal": records.schema_record(minimal(KeptSchema)),
        "schema in a context": records.schema_record(KeptSchema(":.eu:orders", 1, 2, "s", "g")),
        "forgotten schema": records.forgotten_schema("orders", 3),
        "config": records.config_record("orders", full(KeptConfig)),
        "config, minimal": records.config_record(None, minimal(KeptConfig)),
        "no config": records.config_record("orders", None),
        "mode": records.mode_record("orders", "READONLY"),
        "no mode": records.mode_record("orders", None),
        "highest id": records.id_record(".", 77),
        "highest id in a context": records.id_record(".eu", 77),
        "context": records.context_record(".eu"),
        "forgotten context": records.forgotten_context(".eu"),
    }


BOOK: Final = Book("registry", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_sample_is_lost() -> None:
    BOOK.check_names()


def test_stored_records_are_read() -> None:
    stored = BOOK.stored()

    def read(name: str) -> Any:
        found = records.read_record(
            stored[f"record: {name}, key"], stored[f"record: {name}, value"]
        )
        assert found is not None
        return found[1]

    assert read("schema") == full(KeptSchema)
    assert read("config") == full(KeptConfig)
    assert read("mode") == KeptMode("READONLY")
    assert read("highest id") == KeptId(77)
    assert read("highest id in a context") == KeptContext(".eu", "default", 77)
    assert read("schema in a context").place == (":.eu:orders", 1)


def test_every_call_has_a_sample() -> None:
    assert set(CALLS.values()) == set(typing.get_args(requests.AnyCall))
    assert structs_of(requests.__name__) == {*CALLS.values(), *BASES, *PARTS}


def test_every_record_has_a_sample() -> None:
    assert set(typing.get_args(records.Kept)) == VALUES
    assert structs_of(records.__name__) == {*VALUES, KeptReference, RegistryKey}
