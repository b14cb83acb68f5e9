"""Problems: the right status, and words that help."""

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.http.problems import HINTS, STATUSES, entry_of
from tests.run_with import run_with
from tests.unit.gateway.http.asking import Web, on_web


def test_a_refusal_without_words_gets_those_of_its_code() -> None:
    for code, hint in HINTS.items():
        assert entry_of(Refused(code))["detail"] == hint
    own = entry_of(Refused(ErrorCode.MESSAGE_TOO_LARGE, "by far"))
    assert own == {"status": 413, "code": "MESSAGE_TOO_LARGE", "detail": "by far"}


def test_what_has_no_status_of_its_own_is_our_fault() -> None:
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in STATUSES
    assert entry_of(Refused(ErrorCode.UNKNOWN_SERVER_ERROR))["status"] == 500


@run_with(on_web)
async def test_unknown_pages_and_methods_are_problems_too(web: Web) -> None:
    assert (await web.get("/nowhere")).code == "NOT_FOUND"
    assert (await web.ask("PUT", "/ack", {})).code == "METHOD_NOT_ALLOWED"
    assert (await web.get("/topics/a/b/c/d")).status == 404
