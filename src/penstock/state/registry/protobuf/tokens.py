"""Tokens of a .proto text, without comments and blanks, and their sequential reading."""

import re
from typing import Final, NamedTuple

from penstock.state.registry.errors import Rejected, invalid

INTEGER_CHARS_MAX: Final = 20
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


class Token(NamedTuple):
    """A token: its kind, text and line."""

    kind: str
    text: str
    line: int


END: Final = "end"


def tokenize(text: str) -> list[Token]:
    tokens: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise invalid(f"line {line}: unexpected {text[at : at + 20]!r}")
        kind = match.lastgroup or ""
        if kind != "skip":
            tokens.append(Token(kind, match.group(), line))
            if len(tokens) > TOKENS_MAX:
                raise invalid(f"more than {TOKENS_MAX} tokens")
        line += match.group().count("\n")
        at = match.end()
    tokens.append(Token(END, "the end", line))
    return tokens


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


class TokenReader:
    """Sequential reader of the tokens of a text."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._tokens[self._at].kind == END

    def wrong(self, why: str) -> Rejected:
        return invalid(f"line {self._tokens[self._at].line}: {why}")

    def _token(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def peek(self, ahead: int = 0) -> str:
        return self._token(ahead).text

    def kind(self, ahead: int = 0) -> str:
        return self._token(ahead).kind

    def skip(self) -> Token:
        token = self._token()
        if token.kind == END:
            raise self.wrong("unexpected end of the text")
        self._at += 1
        return token

    def take_if(self, text: str) -> bool:
        token = self._token()
        if token.text == text and token.kind in ("name", "sign"):
            self._at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take_if(text):
            raise self.wrong(f"expected {text!r}, found {self.peek()[:40]!r}")

    def name(self) -> str:
        if self.kind() != "name":
            raise self.wrong(f"expected a name, found {self.peek()[:40]!r}")
        return self.skip().text

    def full_name(self, *, absolute: bool = False) -> str:
        """Reads a dotted name; with `absolute`, it may begin with a dot."""
        parts = "." if absolute and self.take_if(".") else ""
        parts += self.name()
        while self.take_if("."):
            parts += f".{self.name()}"
        return parts

    def text(self) -> str:
        """Reads one or more quoted strings, joined."""
        try:
            return self.quoted().decode()
        except UnicodeDecodeError:
            raise self.wrong("a string is not valid UTF-8") from None

    def quoted(self) -> bytes:
        if self.kind() != "text":
            raise self.wrong(f"expected a quoted string, found {self.peek()[:40]!r}")
        parts = read_quoted(self.skip().text)
        while self.kind() == "text":
            parts += read_quoted(self.skip().text)
        return parts

    def integer(self) -> int:
        is_negative = self.take_if("-")
        written = self.peek()
        if self.kind() != "number" or len(written) > INTEGER_CHARS_MAX:
            raise self.wrong(f"expected a number, found {written[:40]!r}")
        is_octal = len(written) > 1 and written.startswith("0") and written.isdigit()
        try:
            value = int(written, 8) if is_octal else int(written, 0)
        except ValueError:
            raise self.wrong(f"expected a whole number, found {written[:40]!r}") from None
        self.skip()
        return -value if is_negative else value
