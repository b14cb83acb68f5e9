"""Bytes as people are shown them: text, JSON or hex, whole or cut, never anything else."""

from penstock.gateway.console.record_view import BINARY, JSON, NULL, TEXT, WHOLE_BYTES_MAX, plain


def test_each_kind_of_bytes_is_shown_as_what_it_is() -> None:
    assert plain(None, 10).form == NULL
    assert plain(b'{"a": 1}', 100).form == JSON
    assert plain(b"{not json", 100).form == TEXT
    assert (plain(b"\xff\x00", 100).form, plain(b"\xff\x00", 100).text) == (BINARY, "ff 00")
    assert plain(b"", 100).text == ""


def test_markup_stays_what_it_was() -> None:
    assert plain(b"<script>alert(1)</script>", 100).text == "<script>alert(1)</script>"


def test_long_text_is_cut_between_characters() -> None:
    shown = plain("ä".encode() * 1000, 10)
    assert (shown.text, shown.is_cut, shown.size) == ("ä" * 10, True, 2000)
    # Four bytes a character: the cut of the bytes falls into the middle of one.
    odd = plain(b"x" + "\N{WATER WAVE}".encode() * 1000, 10)
    assert odd.form == TEXT
    assert odd.is_cut


def test_one_message_has_its_bytes_beside_it_unless_it_is_huge() -> None:
    assert plain(b"\xff", 1, whole=True).base64 == "/w=="
    assert plain(b"x" * (WHOLE_BYTES_MAX + 1), 1, whole=True).base64 is None
