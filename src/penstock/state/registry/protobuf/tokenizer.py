"""Tokens of a .proto text, without comments and blanks."""

import re
from typing import Final, NamedTuple

from penstock.state.registry.errors import invalid

TOKENS_MAX: Final = 300_000
_TOKEN: Final = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9A-Fa-f]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[{}()\[\]<>;,=.:/+-])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    rb"\\([abfnrtv\\'\"?]|[0-7]{1,3}|[xX][0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
)
_PLAIN: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


class Word(NamedTuple):
    """A token: its kind, text and line."""

    kind: str
    text: str
    line: int


END: Final = "end"


def split_words(text: str) -> list[Word]:
    words: list[Word] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise invalid(f"line {line}: unexpected {text[at : at + 20]!r}")
        kind = match.lastgroup or ""
        if kind != "skip":
            words.append(Word(kind, match.group(), line))
            if len(words) > TOKENS_MAX:
                raise invalid(f"more than {TOKENS_MAX} tokens")
        line += match.group().count("\n")
        at = match.end()
    words.append(Word(END, "the end", line))
    return words


def read_quoted(quoted: str) -> bytes:
    """Decodes a quoted string with its escapes."""
    return _ESCAPE.sub(_unescape, quoted[1:-1].encode())


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match.group(1)
    if code in _PLAIN:
        return _PLAIN[code]
    if code[:1] in b"xX" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[:1] in b"uU" and len(code) > 1:
        number = int(code[1:], 16)
        is_character = number < 0xD800 or 0xDFFF < number < 0x110000
        return chr(number).encode() if is_character else b"?"
    if code[:1].isdigit():
        return bytes([int(code, 8) & 0xFF])
    return code
