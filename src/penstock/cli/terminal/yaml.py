"""YAML for what JSON can hold: maps, lists, texts, numbers, truths and nothing.

Only writes, in blocks. A text that a reader of YAML could take for anything else is quoted as in
JSON, which YAML reads too.
"""

import json
import re
from typing import Any

# Words without anything that means something to YAML, at any place.
_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*(?: [\w./-]+)*", re.ASCII)
_TAKEN = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan"})


def dumped(value: Any) -> str:
    """One document, with its last line ended."""
    return "".join(line + "\n" for line in _lines(value))


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(_scalar(str(key)), item)]
    if isinstance(value, (list, tuple)) and value:
        return [line for item in value for line in _item(item)]
    return [_scalar(value)]


def _entry(key: str, item: Any) -> list[str]:
    lines = _lines(item)
    if not _is_nested(item):
        return [f"{key}: {lines[0]}"]
    return [f"{key}:", *("  " + line for line in lines)]


def _item(item: Any) -> list[str]:
    first, *rest = _lines(item)
    return [f"- {first}", *("  " + line for line in rest)]


def _is_nested(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple)) and bool(value)


def _scalar(value: Any) -> str:
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    if isinstance(value, float):
        text = json.dumps(value)
        # Without a point, readers of YAML 1.1 take it for a text.
        return text if "." in text else text.replace("e", ".0e")
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _TAKEN:
        return value
    return "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))


def _escaped(character: str) -> str:
    """As YAML writes what does not print; JSON has escaped the rest."""
    return character if character.isprintable() else f"\\U{ord(character):08x}"
