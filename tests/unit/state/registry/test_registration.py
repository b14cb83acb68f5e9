"""Metadata and rules of a schema: its own, those of the version before, defaults and overrides."""

from penstock.state.registry.records import KeptConfig
from penstock.state.registry.registration import described, merged_metadata, merged_rules


def test_upper_metadata_overrides_lower() -> None:
    below = {
        "tags": {"f": ["PII"], "g": ["A"]},
        "properties": {"a": "1"},
        "sensitive": ["a"],
    }
    above = {"tags": {"f": ["B"]}, "properties": {"a": "2", "b": "3"}, "sensitive": ["b"]}
    assert merged_metadata(below, above) == {
        "tags": {"f": ["B"], "g": ["A"]},
        "properties": {"a": "2", "b": "3"},
        "sensitive": ["a", "b"],
    }
    assert merged_metadata(None, above) == above
    assert merged_metadata(below, None) == below
    assert merged_metadata({"properties": ["odd"]}, {}) == {}


def test_rules_are_merged_by_name() -> None:
    below = {"domainRules": [{"name": "a", "expr": "1"}, {"name": "b"}], "migrationRules": []}
    above = {"domainRules": [{"name": "a", "expr": "2"}, {"name": "c"}]}
    assert merged_rules(below, above) == {
        "domainRules": [{"name": "b"}, {"name": "a", "expr": "2"}, {"name": "c"}],
        "migrationRules": [],
    }


def test_its_own_goes_before_that_of_the_version_before() -> None:
    old = {"properties": {"owner": "old"}}
    new = {"properties": {"owner": "new"}}
    assert described((None, None), (old, None), None) == (old, None)
    assert described((new, None), (old, None), None) == (new, None)
    config = KeptConfig(defaultMetadata=old, overrideMetadata={"properties": {"x": "y"}})
    metadata, _ = described((new, None), (None, None), config)
    assert metadata == {"properties": {"owner": "new", "x": "y"}}
