"""YAML output of commands through PyYAML: block style, string keys, no aliases.

Strings with control characters are in double quotes, where YAML escapes them. This module is
imported only for YAML output.
"""

import json
from typing import Any

import yaml

TEXT = "tag:yaml.org,2002:str"


class _Blocks(yaml.SafeDumper):
    """Dumper that indents the items of a list below its key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: _Blocks, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(TEXT, text, style=None if text.isprintable() else '"')


_Blocks.add_representer(str, _text)


def dumped(value: Any) -> str:
    """Dumps a JSON-compatible value as one document that ends in a newline."""
    document = json.loads(json.dumps(value))
    text: str = yaml.dump(
        document, Dumper=_Blocks, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    if text.endswith("\n...\n"):  # the end mark that PyYAML puts after a lone scalar
        text = text[: -len("...\n")]
    return text if text.isascii() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    # PyYAML escapes control characters; other characters that do not print are escaped here.
    if character.isprintable() or character == "\n":
        return character
    return f"\\U{ord(character):08x}"
