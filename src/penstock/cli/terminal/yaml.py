"""YAML output of commands, written by PyYAML: blocks, keys as strings, no aliases.

Texts with characters that a terminal could obey are in double quotes, where YAML has escapes for
them. Imported when YAML is asked for.
"""

import json
from typing import Any

import yaml

TEXT = "tag:yaml.org,2002:str"


class _Blocks(yaml.SafeDumper):
    """Indents the items of a list below its key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: _Blocks, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(TEXT, text, style=None if text.isprintable() else '"')


_Blocks.add_representer(str, _text)


def dumped(value: Any) -> str:
    """One document of what JSON can hold, with its last line ended."""
    document = json.loads(json.dumps(value))
    text: str = yaml.dump(
        document, Dumper=_Blocks, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    if text.endswith("\n...\n"):  # the end mark that PyYAML puts after a lone scalar
        text = text[: -len("...\n")]
    return text if text.isascii() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    # PyYAML escapes control characters; what else does not print is in double quotes here.
    if character.isprintable() or character == "\n":
        return character
    return f"\\U{ord(character):08x}"
