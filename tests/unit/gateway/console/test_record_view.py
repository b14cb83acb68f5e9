"""Formatting of bytes for the console: text, JSON or hex, in full or truncated."""

from penstock.gateway.console.record_view import BINARY, JSON, NULL, TEXT, WHOLE_BYTES_MAX, plain


def test_bytes_are_shown_in_their_form() -> None:
    assert plain(None, 10).form == NULL
    assert plain(b'{"a": 1}', 100).form == JSON
    assert plain(b"{not json", 100).form == TEXT
    assert (plain(b"\xff\x00", 100).form, plain(b"\xff\x00", 100).text) == (BINARY, "ff 00")
    assert plain(b"", 100).text == ""


def test_markup_is_not_changed() -> None:
    assert plain(b"<script>alert(1)</script>", 100).text == "<script>alert(1)</script>"


def test_long_text_is_truncated_between_characters() -> None:
    shown = plain("ä".encode() * 1000, 10)
    assert (shown.text, shown.is_cut, shown.size) == ("ä" * 10, True, 2000)
    # With four bytes per character, the byte limit falls into the middle of one.
    odd = plain(b"x" + "\N{WATER WAVE}".encode() * 1000, 10)
    assert odd.form == TEXT
    assert odd.is_cut


def test_single_message_has_its_bytes_unless_it_is_too_large() -> None:
    assert plain(b"\xff", 1, whole=True).base64 == "/w=="
    assert plain(b"x" * (WHOLE_BYTES_MAX + 1), 1, whole=True).base64 is None
