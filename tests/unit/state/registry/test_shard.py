"""Registry shard: ids, versions, deletion, state of a new leader."""

import pytest

from penstock.state.registry import limits, requests
from penstock.state.registry.compatibility_check import SubjectMode, judge
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.registration import Outdated
from tests.unit.state.registry.driver import ONE, OTHER, TWO, Driver, contents


def refused(driver: Driver, call: requests.RegistryCall) -> RegistryErrorCode:
    with pytest.raises(Rejected) as caught:
        driver.ask(call)
    return caught.value.number


def test_id_is_given_to_a_schema_and_not_to_its_place() -> None:
    driver = Driver()
    assert driver.register("a") == 1
    assert driver.register("a", TWO) == 2
    assert driver.register("b", TWO) == 2
    assert driver.ask(requests.ListPlaces(id=2, with_versions=True)) == [
        {"subject": "a", "version": 2},
        {"subject": "b", "version": 1},
    ]


def test_id_is_not_given_again_even_after_its_schema_is_gone_and_forgotten() -> None:
    driver = Driver()
    driver.register("a")
    driver.register("b", TWO)
    for permanent in (False, True):
        driver.ask(requests.DeleteSubject("b", permanent))
    assert contents(driver.replayed()) == contents(driver.state)
    driver.shard.state = driver.replayed()
    assert driver.register("b", OTHER) == 3


def test_id_whose_version_an_import_replaced_is_not_given_again_after_a_restart() -> None:
    driver = Driver()
    driver.ask(requests.PutMode("IMPORT"))
    driver.ask(requests.Register("a", ONE, "AVRO", id=7, version=1))
    driver.ask(requests.Register("a", TWO, "AVRO", id=3, version=1))
    assert driver.ask(requests.GetVersion("a", 1))["id"] == 3
    driver.shard.state = driver.replayed()
    driver.ask(requests.PutMode("READWRITE"))
    assert driver.register("b", OTHER) == 8


def test_import_mode_removes_soft_deleted_schemas() -> None:
    driver = Driver()
    driver.register("inner")
    driver.register("outer", '{"type":"array","items":"R"}', ("R", "inner", 1))
    driver.ask(requests.DeleteSubject("outer"))
    driver.ask(requests.DeleteSubject("inner"))
    assert (
        refused(driver, requests.PutMode("IMPORT", "inner")) is RegistryErrorCode.REFERENCE_EXISTS
    )
    driver.ask(requests.PutMode("IMPORT"))
    assert not driver.state.subjects
    assert contents(driver.replayed()) == contents(driver.state)
    # Its id may come again with another registry's schema, and is not given by ourselves.
    assert driver.ask(requests.Register("new", TWO, "AVRO", id=1, version=1))["id"] == 1
    driver.ask(requests.PutMode("READWRITE"))
    assert driver.register("other", OTHER) == 3


def test_import_accepts_existing_ids_with_the_same_schema_only() -> None:
    driver = Driver()
    driver.register("a")
    driver.ask(requests.PutMode("IMPORT", force=True))
    again = requests.Register("a", ONE, "AVRO", id=1, version=1)
    assert driver.ask(again)["version"] == 1
    assert driver.ask(requests.Register("b", ONE, "AVRO", id=1, version=4))["version"] == 4
    assert (
        refused(driver, requests.Register("c", TWO, "AVRO", id=1))
        is RegistryErrorCode.NOT_PERMITTED
    )


def test_normalized_references_have_one_order() -> None:
    driver = Driver()
    driver.register("one", '{"type":"record","name":"A","fields":[]}')
    driver.register("two", '{"type":"record","name":"B","fields":[]}')
    text = '{"type":"record","name":"C","fields":[{"name":"a","type":"A"},{"name":"b","type":"B"}]}'
    there = [requests.NamedReference("A", "one", 1), requests.NamedReference("B", "two", 1)]
    for subject, normalize, ids in (("c", True, 1), ("d", False, 2)):
        found = {
            driver.ask(requests.Register(subject, text, "AVRO", tuple(order), normalize))["id"]
            for order in (there, there[::-1])
        }
        assert len(found) == ids


def test_deleted_version_keeps_its_number_until_it_is_gone_for_good() -> None:
    driver = Driver()
    driver.register("a")
    driver.register("a", TWO)
    driver.ask(requests.DeleteVersion("a", 2))
    assert driver.ask(requests.Register("a", TWO, "AVRO"))["version"] == 3
    # The deleted version of the same schema no longer counts.
    assert driver.ask(requests.ListVersions(subject="a", deleted=True)) == [1, 3]
    driver.ask(requests.DeleteSubject("a"))
    driver.ask(requests.DeleteSubject("a", permanent=True))
    assert driver.ask(requests.Register("a", TWO, "AVRO"))["version"] == 1


def test_plan_from_before_a_change_does_not_count() -> None:
    driver = Driver()
    call = requests.Register("a", ONE, "AVRO")
    plan = driver.shard.plan(call)
    verdict = judge(plan)
    driver.register("a", OTHER)
    with pytest.raises(Outdated):
        driver.shard.conclude(call, plan, verdict, "token")


def test_deleted_versions_are_not_compared_with() -> None:
    driver = Driver()
    driver.register("a")
    assert (
        refused(driver, requests.Register("a", OTHER, "AVRO"))
        is RegistryErrorCode.INCOMPATIBLE_SCHEMA
    )
    driver.ask(requests.DeleteVersion("a", 1))
    assert driver.register("a", OTHER) == 2


def test_referenced_schema_cannot_be_deleted() -> None:
    driver = Driver()
    driver.register("inner")
    driver.register("outer", '{"type":"array","items":"R"}', ("R", "inner", 1))
    assert refused(driver, requests.DeleteVersion("inner", 1)) is RegistryErrorCode.REFERENCE_EXISTS
    assert refused(driver, requests.DeleteSubject("inner")) is RegistryErrorCode.REFERENCE_EXISTS
    driver.ask(requests.DeleteSubject("outer"))
    driver.ask(requests.DeleteSubject("inner"))
    # Hidden referrers may come back, so they count against the second step.
    assert (
        refused(driver, requests.DeleteSubject("inner", True)) is RegistryErrorCode.REFERENCE_EXISTS
    )
    driver.ask(requests.DeleteSubject("outer", True))
    assert driver.ask(requests.DeleteSubject("inner", True)) == [1]


def test_reference_to_the_latest_is_kept_as_a_number() -> None:
    driver = Driver()
    driver.register("inner")
    driver.register("outer", '{"type":"array","items":"R"}', ("R", "inner", -1))
    shown = driver.ask(requests.GetVersion("outer", -1))
    assert shown["references"] == [{"name": "R", "subject": "inner", "version": 1}]


def test_references_go_only_so_deep_and_so_wide() -> None:
    driver = Driver()
    driver.register("s0", '{"type":"record","name":"R0","fields":[]}')

    def chained(level: int) -> requests.Register:
        text = (
            f'{{"type":"record","name":"R{level}","fields":[{{"name":"f","type":"R{level - 1}"}}]}}'
        )
        before = requests.NamedReference(f"R{level - 1}", f"s{level - 1}", 1)
        return requests.Register(f"s{level}", text, "AVRO", (before,))

    for level in range(1, limits.REFERENCE_DEPTH_MAX + 1):
        driver.ask(chained(level))
    assert (
        refused(driver, chained(limits.REFERENCE_DEPTH_MAX + 1)) is RegistryErrorCode.INVALID_SCHEMA
    )
    many = tuple(
        requests.NamedReference(f"n{n}", "s0", 1) for n in range(limits.REFERENCES_MAX + 1)
    )
    wide = requests.Register("wide", ONE, "AVRO", many)
    assert refused(driver, wide) is RegistryErrorCode.INVALID_SCHEMA


def test_full_registry_refuses_registrations() -> None:
    driver = Driver()
    driver.register("a")
    driver.state.count = limits.SCHEMAS_MAX
    assert refused(driver, requests.Register("b", ONE, "AVRO")) is RegistryErrorCode.NOT_PERMITTED
    assert driver.register("a") == 1


def test_group_keeps_major_versions_apart() -> None:
    driver = Driver()
    driver.ask(requests.PutConfig("a", group="major"))

    def of_major(number: str, schema: str) -> requests.Register:
        metadata = {"properties": {"major": number}}
        return requests.Register("a", schema, "AVRO", metadata=metadata)

    driver.ask(of_major("1", ONE))
    assert refused(driver, of_major("1", OTHER)) is RegistryErrorCode.INCOMPATIBLE_SCHEMA
    assert driver.ask(of_major("2", OTHER))["version"] == 2
    assert driver.ask(of_major("1", TWO))["version"] == 3


def test_alias_leads_to_another_subject() -> None:
    driver = Driver()
    driver.register("real")
    driver.ask(requests.PutConfig("alias", alias="real"))
    assert driver.ask(requests.GetVersion("alias", -1))["subject"] == "real"
    assert driver.ask(requests.ListVersions(subject="alias")) == [1]


def test_normalized_schemas_are_the_same_whatever_their_order() -> None:
    driver = Driver()
    first = '{"type":"object","title":"T","properties":{"a":{"type":"string"}}}'
    second = '{"properties":{"a":{"type":"string"}},"title":"T","type":"object"}'
    assert driver.ask(requests.Register("a", first, "JSON"))["id"] == 1
    assert driver.ask(requests.Register("b", second, "JSON"))["id"] == 2
    driver.ask(requests.PutConfig("c", normalize=True))
    for subject in ("c", "d"):
        texts = (first, second)
        ids = {
            driver.ask(requests.Register(subject, text, "JSON", normalize=subject == "d"))["id"]
            for text in texts
        }
        assert ids == {2} or ids == {3}


def test_read_only_everywhere_overrules_single_subjects() -> None:
    driver = Driver()
    driver.ask(requests.PutMode("READWRITE", "a"))
    driver.ask(requests.PutMode("READONLY_OVERRIDE"))
    assert refused(driver, requests.Register("a", ONE, "AVRO")) is RegistryErrorCode.NOT_PERMITTED
    driver.ask(requests.DeleteMode())
    assert driver.register("a") == 1
    driver.ask(requests.PutMode("READONLY", "a"))
    for call in (requests.DeleteSubject("a"), requests.DeleteVersion("a", 1)):
        assert refused(driver, call) is RegistryErrorCode.NOT_PERMITTED


def test_records_are_vouched_for_by_each_strategy() -> None:
    driver = Driver()
    driver.register("t-value")
    driver.register("R", TWO)
    driver.ask(requests.PutConfig(None, "NONE"))
    driver.register("t-R", OTHER)

    def known(strategy: str, *, is_key: bool = False) -> list[int]:
        ids: list[int] = driver.ask(requests.Vouch("t", is_key, strategy, (1, 2, 3, 4)))["ids"]
        return ids

    assert known("TopicNameStrategy") == [1]
    assert known("TopicNameStrategy", is_key=True) == []
    assert known("RecordNameStrategy") == [2]
    assert known("TopicRecordNameStrategy") == [3]
    driver.ask(requests.DeleteSubject("t-value"))
    assert known("TopicNameStrategy") == []


def test_records_of_kinds_that_are_not_known_are_passed_over() -> None:
    driver = Driver()
    driver.register("a")
    before = contents(driver.state)
    driver.shard.apply(b'{"keytype":"NOOP","magic":0}', b"{}")
    assert contents(driver.state) == before


def test_settings_of_subjects_have_a_limit() -> None:
    driver = Driver()
    driver.ask(requests.PutConfig("known", "NONE"))
    for number in range(limits.SETTINGS_MAX - 1):
        driver.state.modes[f"s{number}"] = SubjectMode.READONLY
    for call in (requests.PutConfig("more", "NONE"), requests.PutMode("READONLY", "more")):
        assert refused(driver, call) is RegistryErrorCode.NOT_PERMITTED
    assert driver.ask(requests.PutConfig("known", "FULL")) == {"compatibility": "FULL"}


def test_metadata_of_another_shape_is_not_found_and_not_choked_on() -> None:
    driver = Driver()
    driver.ask(requests.Register("s", ONE, "AVRO", metadata={"properties": ["a"]}))
    assert (
        refused(driver, requests.GetByMetadata("s", {"a": "b"}))
        is RegistryErrorCode.SCHEMA_NOT_FOUND
    )
