"""Messages for people: what happened, once, in words."""

import errno

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.errors import check, code_of, reason, refusal


def test_unknown_code_is_an_unknown_error_with_its_number() -> None:
    assert code_of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "error code 9999" in str(refusal(9999))


def test_broker_message_is_preferred_and_not_repeated() -> None:
    assert str(refusal(36, "Topic 'a' already exists.", about="topic 'a'")) == (
        "Topic 'a' already exists"
    )
    assert str(refusal(36, None, about="topic 'a'")) == "topic 'a': it already exists"


def test_code_none_is_not_a_refusal() -> None:
    check(0, "fine")
    with pytest.raises(Refused):
        check(3)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (TimeoutError(), "no answer in time"),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 111] b"), "connection refused"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
    ],
)
def test_causes_are_short(error: OSError, text: str) -> None:
    assert reason(error) == text
