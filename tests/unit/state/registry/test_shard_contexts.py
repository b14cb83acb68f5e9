"""Contexts of the registry, and compatibility with older nodes."""

import json
from pathlib import Path

import pytest

from penstock.base.state_machine import Record
from penstock.state.registry import limits, requests
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.subject_names import (
    check_scope,
    check_subject,
    plain_subject,
    read_context,
)
from tests.unit.state.registry.driver import ONE, OTHER, TWO, Driver, contents

REFERRING = '{"type":"array","items":"R"}'


def refused(driver: Driver, call: requests.RegistryCall) -> RegistryErrorCode:
    with pytest.raises(Rejected) as caught:
        driver.ask(call)
    return caught.value.number


def gone(driver: Driver, subject: str) -> None:
    for permanent in (False, True):
        driver.ask(requests.DeleteSubject(subject, permanent))


def test_each_context_numbers_its_schemas() -> None:
    driver = Driver()
    assert driver.register(":.a:s", ONE) == 1
    assert driver.register(":.a:s", TWO) == 2
    assert driver.register(":.b:s", OTHER) == 1
    assert driver.register("s", TWO) == 1
    assert driver.register(":.a:t", TWO) == 2
    assert driver.ask(requests.GetByIdThere(1, ":.a:"))["schema"] == ONE
    assert driver.ask(requests.GetByIdThere(1, ":.b:"))["schema"] == OTHER
    assert driver.ask(requests.GetById(1))["schema"] == TWO
    assert driver.ask(requests.GetByIdThere(2, ":.a:", with_highest_id=True))["maxId"] == 2
    assert refused(driver, requests.GetById(2)) is RegistryErrorCode.SCHEMA_NOT_FOUND
    assert driver.ask(requests.ListContexts()) == [".", ".a", ".b"]
    assert driver.ask(requests.ListContexts(prefix=".b")) == [".b"]
    assert driver.ask(requests.ListContexts(1, 1)) == [".a"]
    assert contents(driver.replayed()) == contents(driver.state)


def test_guid_has_an_id_in_each_context() -> None:
    driver = Driver()
    driver.register("other", OTHER)
    driver.register("s", ONE)
    driver.register(":.a:s", ONE)
    guid = driver.ask(requests.GetById(2))["guid"]
    assert driver.ask(requests.ListIdsOfGuid(guid)) == [
        {"context": ".", "id": 2},
        {"context": ".a", "id": 1},
    ]
    gone(driver, "s")
    assert driver.ask(requests.ListIdsOfGuid(guid)) == [{"context": ".a", "id": 1}]
    assert driver.ask(requests.GetByGuid(guid))["schema"] == ONE


def test_id_is_looked_for_where_its_subject_is() -> None:
    driver = Driver()
    driver.register("s", ONE)
    driver.register(":.a:t", TWO)
    driver.register(":.b:t", OTHER)
    driver.register(":.b:t2", OTHER)
    found = driver.ask(requests.GetById(1, "t", anywhere=True))
    assert (found["schema"], found["subject"], found["version"]) == (TWO, ":.a:t", 1)
    assert driver.ask(requests.GetById(1, "t2", anywhere=True))["schema"] == OTHER
    assert driver.ask(requests.GetById(1, "nowhere", anywhere=True))["schema"] == ONE
    assert (
        refused(driver, requests.GetByIdThere(1, ":.a:nowhere"))
        is RegistryErrorCode.SCHEMA_NOT_FOUND
    )
    assert refused(driver, requests.GetByIdThere(1, ":.c:")) is RegistryErrorCode.SCHEMA_NOT_FOUND
    rows = driver.ask(requests.ListPlaces(id=1, subject=":.b:"))
    assert rows == [":.b:t", ":.b:t2"]
    assert driver.ask(requests.ListPlaces(id=1, subject=":.b:t2")) == [":.b:t2"]
    assert driver.ask(requests.ListPlaces(id=1)) == ["s"]
    assert driver.ask(requests.ListPlaces(id=1, found_by="t2")) == [":.b:t", ":.b:t2"]


def test_version_is_found_in_another_context_when_the_default_one_has_no_such() -> None:
    driver = Driver()
    driver.register(":.a:t", TWO)
    assert driver.ask(requests.GetVersion("t", 1, anywhere=True))["subject"] == ":.a:t"
    assert driver.ask(requests.LookUp("t", TWO, "AVRO", anywhere=True))["subject"] == ":.a:t"
    assert (
        refused(driver, requests.LookUp("t", ONE, "AVRO", anywhere=True))
        is RegistryErrorCode.SUBJECT_NOT_FOUND
    )
    assert (
        refused(driver, requests.GetVersion(":.b:t", 1, anywhere=True))
        is RegistryErrorCode.SUBJECT_NOT_FOUND
    )
    assert (
        refused(driver, requests.ListVersions(subject="t")) is RegistryErrorCode.SUBJECT_NOT_FOUND
    )
    driver.register("t", ONE)
    assert driver.ask(requests.GetVersion("t", 1, anywhere=True))["subject"] == "t"


def test_nodes_that_know_no_contexts_are_shown_none() -> None:
    """Older nodes check permissions on the requested subject, not on the one found."""
    driver = Driver()
    driver.register("s", ONE)
    driver.register(":.a:t", TWO)
    assert driver.ask(requests.GetById(1, "t"))["schema"] == ONE
    assert refused(driver, requests.GetById(1, ":.a:")) is RegistryErrorCode.SCHEMA_NOT_FOUND
    assert refused(driver, requests.GetVersion("t", 1)) is RegistryErrorCode.SUBJECT_NOT_FOUND
    assert refused(driver, requests.LookUp("t", TWO, "AVRO")) is RegistryErrorCode.SUBJECT_NOT_FOUND


def test_references_stay_in_their_context() -> None:
    driver = Driver()
    driver.register("inner", OTHER)
    assert (
        refused(
            driver,
            requests.Register(
                ":.a:outer", REFERRING, "AVRO", (requests.NamedReference("R", "inner", 1),)
            ),
        )
        is RegistryErrorCode.INVALID_SCHEMA
    )
    driver.register(":.a:inner", ONE)
    driver.register(":.a:outer", REFERRING, ("R", "inner", 1))
    shown = driver.ask(requests.GetVersion(":.a:outer", 1))
    assert shown["references"] == [{"name": "R", "subject": "inner", "version": 1}]
    assert driver.ask(requests.GetReferrers(":.a:inner", 1)) == [2]
    assert driver.ask(requests.GetReferrers("inner", 1)) == []
    assert (
        refused(driver, requests.DeleteSubject(":.a:inner")) is RegistryErrorCode.REFERENCE_EXISTS
    )
    # Written out it is the same schema, and the other context has another one of the same text.
    written_out = requests.NamedReference("R", ":.a:inner", 1)
    again = requests.Register(":.a:outer", REFERRING, "AVRO", (written_out,))
    assert driver.ask(again)["version"] == 1
    driver.register(":.b:outer", REFERRING, ("R", ":.a:inner", 1))
    shown = driver.ask(requests.GetVersion(":.b:outer", 1))
    assert shown["references"] == [{"name": "R", "subject": ":.a:inner", "version": 1}]
    assert driver.ask(requests.GetReferrers(":.a:inner", 1)) == [1, 2]
    assert contents(driver.replayed()) == contents(driver.state)


@pytest.mark.parametrize("subject", ["outer", ":.a:outer"])
def test_form_is_made_of_the_references_of_its_own_context(subject: str) -> None:
    driver = Driver()
    for context, inner in (("", ONE), (":.a:", OTHER)):
        driver.register(f"{context}inner", inner)
        driver.register(f"{context}outer", REFERRING, ("R", "inner", 1))
    kind = '"int"' if subject.startswith(":.a:") else '"string"'
    shown = driver.ask(requests.GetVersion(subject, 1, form="resolved"))
    assert kind in shown["schema"]
    assert len(driver.ask(requests.ListIdsOfGuid(shown["guid"]))) == 2, "they say the same"
    there = requests.GetByIdThere(2, subject.removesuffix("outer"), "resolved")
    assert kind in driver.ask(there)["schema"]


def test_settings_are_a_subjects_or_its_contexts_or_everybodys() -> None:
    driver = Driver()
    state = driver.state
    driver.ask(requests.PutConfig(None, "NONE"))
    assert state.level_of("s") == "NONE"
    assert state.level_of(":.a:s") == "BACKWARD"
    driver.ask(requests.PutConfig(":.__GLOBAL:", "FORWARD"))
    assert state.level_of(":.a:s") == "FORWARD"
    assert state.level_of("s") == "NONE"
    driver.ask(requests.PutConfig(":.a:", "FULL"))
    assert state.level_of(":.a:s") == "FULL"
    driver.ask(requests.PutConfig(":.a:s", "BACKWARD"))
    assert state.level_of(":.a:s") == "BACKWARD"
    assert driver.ask(requests.GetConfig(":.a:")) == {"compatibilityLevel": "FULL"}
    assert driver.ask(requests.GetConfig(":.a:t", True)) == {"compatibilityLevel": "FULL"}
    assert driver.ask(requests.GetConfig(":.b:t", True)) == {"compatibilityLevel": "FORWARD"}
    assert refused(driver, requests.GetConfig(":.b:")) is RegistryErrorCode.SUBJECT_HAS_NO_LEVEL
    driver.ask(requests.PutMode("READONLY", ":.a:"))
    assert (
        refused(driver, requests.Register(":.a:s", ONE, "AVRO")) is RegistryErrorCode.NOT_PERMITTED
    )
    assert driver.register(":.b:s") == 1
    assert driver.register("s") == 1
    assert driver.ask(requests.GetMode(":.a:s", True)) == {"mode": "READONLY"}
    driver.ask(requests.PutMode("READWRITE", ":.a:s"))
    driver.ask(requests.PutMode("READONLY", "s"))
    driver.ask(requests.DeleteMode(":.a:", recursive=True))
    assert set(state.modes) == {"s"}
    assert contents(driver.replayed()) == contents(state)


def test_alias_is_of_its_own_context() -> None:
    driver = Driver()
    driver.register("real", OTHER)
    driver.register(":.a:real", ONE)
    driver.ask(requests.PutConfig(":.a:other", alias="real"))
    assert driver.ask(requests.GetVersion(":.a:other", 1))["schema"] == ONE


def test_import_clears_its_own_context() -> None:
    driver = Driver()
    driver.register("s", ONE)
    driver.register(":.a:s", ONE)
    assert refused(driver, requests.PutMode("IMPORT", ":.a:")) is RegistryErrorCode.NOT_PERMITTED
    driver.ask(requests.DeleteSubject(":.a:s"))
    driver.ask(requests.PutMode("IMPORT", ":.a:"))
    assert list(driver.state.subjects) == ["s"]
    assert driver.ask(requests.Register(":.a:s", TWO, "AVRO", id=1, version=4))["version"] == 4
    assert (
        refused(driver, requests.Register("s", TWO, "AVRO", id=9))
        is RegistryErrorCode.NOT_PERMITTED
    )


def test_empty_context_is_deleted_and_takes_its_numbers_with_it() -> None:
    driver = Driver()
    driver.register("s", ONE)
    driver.register(":.a:s", ONE)
    driver.register(":.a:t", TWO)
    delete = requests.DeleteContext(":.a:")
    assert refused(driver, delete) is RegistryErrorCode.CONTEXT_NOT_EMPTY
    gone(driver, ":.a:s")
    driver.ask(requests.DeleteSubject(":.a:t"))
    assert refused(driver, delete) is RegistryErrorCode.CONTEXT_NOT_EMPTY
    driver.ask(requests.DeleteSubject(":.a:t", True))
    assert driver.ask(requests.ListContexts()) == [".", ".a"]
    assert contents(driver.replayed()) == contents(driver.state)
    driver.shard.state = driver.replayed()
    assert driver.register(":.a:t", OTHER) == 3
    gone(driver, ":.a:t")
    driver.ask(delete)
    assert driver.ask(requests.ListContexts()) == ["."]
    assert contents(driver.replayed()) == contents(driver.state)
    assert refused(driver, delete) is RegistryErrorCode.SUBJECT_NOT_FOUND
    assert refused(driver, requests.DeleteContext(":.:")) is RegistryErrorCode.NOT_PERMITTED
    assert driver.register(":.a:t", OTHER) == 1


def test_number_of_contexts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONTEXTS_MAX", 2)
    driver = Driver()
    driver.register(":.a:s")
    driver.register(":.b:s")
    assert (
        refused(driver, requests.Register(":.c:s", ONE, "AVRO")) is RegistryErrorCode.NOT_PERMITTED
    )
    assert driver.register(":.b:t", TWO) == 2
    assert driver.register("s") == 1


def test_listings_are_of_one_context_or_of_all() -> None:
    driver = Driver()
    for subject in ("s1", "t1", ":.a:s1", ":.a:t1", ":.b:s2"):
        driver.register(subject)
    assert driver.ask(requests.ListSubjects()) == ["s1", "t1"]
    assert driver.ask(requests.ListSubjects(prefix=":.a:")) == [":.a:s1", ":.a:t1"]
    assert driver.ask(requests.ListSubjects(prefix=":.a:t")) == [":.a:t1"]
    everywhere = requests.ListSubjects(prefix="s", everywhere=True)
    assert driver.ask(everywhere) == [":.a:s1", ":.b:s2", "s1"]
    rows = driver.ask(requests.ListSchemas(prefix="s", everywhere=True))
    assert [row["subject"] for row in rows] == [":.a:s1", ":.b:s2", "s1"]


def test_records_of_a_topic_have_schemas_of_the_default_context() -> None:
    driver = Driver()
    driver.register("x", TWO)
    driver.register("t-value", ONE)
    driver.register(":.a:t-value", ONE)
    asked = requests.Vouch("t", False, "TopicNameStrategy", (1, 2))
    assert driver.ask(asked)["ids"] == [2]


def test_node_that_knows_no_contexts_sees_only_the_default_one() -> None:
    driver, plain = Driver(), Driver()
    for one in (driver, plain):
        one.register("s", ONE)
        one.register("t", TWO)
    for subject, schema in ((":.a:s", OTHER), (":.a:t", ONE), (":.b:u", '"bytes"')):
        driver.register(subject, schema)
    gone(driver, ":.a:t")
    driver.ask(requests.DeleteSubject(":.a:s"))
    assert contents(driver.read_before()) == contents(plain.state)


def written_before() -> list[Record]:
    """Records that the version before contexts (540ad2c) kept of the calls below."""
    lines = (Path(__file__).parent / "topic_before_contexts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [(key.encode(), value.encode() if value is not None else None) for key, value in rows]


def test_topic_of_the_version_before_is_read_and_would_be_written_the_same() -> None:
    driver = Driver()
    driver.register("a", ONE)
    driver.register("a", TWO)
    driver.register("b-value", OTHER)
    driver.register("list", REFERRING, ("R", "a", 1))
    driver.ask(requests.PutConfig("a", "FULL"))
    driver.ask(requests.PutConfig(None, "NONE"))
    driver.ask(requests.PutMode("READONLY", "b-value"))
    driver.register("gone", '"bytes"')
    gone(driver, "gone")
    driver.ask(requests.DeleteVersion("a", 2))
    driver.ask(requests.DeleteConfig())
    assert driver.log == written_before()
    again = Driver()
    for key, value in written_before():
        again.shard.apply(key, value)
    assert contents(again.state) == contents(driver.state)
    assert again.register("new", '"long"') == 6
    assert again.register(":.a:new", '"long"') == 1


def test_subjects_and_contexts_have_one_way_to_be_written() -> None:
    for written in (":.:s", "s"):
        assert plain_subject(written) == "s"
    assert plain_subject(":.a:s") == ":.a:s"
    assert plain_subject(":.a") == ":.a:"
    assert check_subject(":plain") == ":plain"
    for written in ("sales", ".sales", ":.sales:", ":sales:"):
        assert read_context(written) == ".sales"
    assert read_context(":.:") == "."
    assert check_scope(":.a") == ":.a:"
    for bad in ("a:b", "a\nb", "x" * 255):
        with pytest.raises(Rejected):
            read_context(bad)
    for bad in (
        *("", ":.:", ":.a:", ":.a:__GLOBAL", "__EMPTY", ":*:s", ":.__GLOBAL:s", "a\nb"),
        *(":.a:" + "x" * 513, f":.{'x' * 255}:s", ":.:" + ":.a:s", ":.a::.b:s", ":.a\t:s"),
    ):
        with pytest.raises(Rejected) as caught:
            check_subject(bad)
        assert caught.value.number is RegistryErrorCode.INVALID_SUBJECT
