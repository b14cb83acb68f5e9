"""Sequential reading of the tokens of a .proto text."""

from penstock.state.registry.errors import Rejected, invalid
from penstock.state.registry.protobuf.tokenizer import END, Word, read_quoted

INTEGER_CHARS_MAX = 20


class Words:
    """Tokens of a text, with the current position."""

    def __init__(self, words: list[Word]) -> None:
        self._words = words
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._words[self._at].kind == END

    def wrong(self, why: str) -> Rejected:
        return invalid(f"line {self._words[self._at].line}: {why}")

    def _word(self, ahead: int = 0) -> Word:
        return self._words[min(self._at + ahead, len(self._words) - 1)]

    def peek(self, ahead: int = 0) -> str:
        return self._word(ahead).text

    def kind(self, ahead: int = 0) -> str:
        return self._word(ahead).kind

    def skip(self) -> Word:
        word = self._word()
        if word.kind == END:
            raise self.wrong("unexpected end of the text")
        self._at += 1
        return word

    def take_if(self, text: str) -> bool:
        word = self._word()
        if word.text == text and word.kind in ("name", "sign"):
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
