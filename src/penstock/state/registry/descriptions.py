"""Metadata and rules of a schema: its own, the previous version's, and the config's.

A schema without any inherits those of the last version of its subject. The config's defaults are
then merged below them and its overrides above. So the same text with and without them is one
schema, as in Confluent's registry.
"""

from typing import Any

from penstock.state.registry.records import KeptConfig

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
