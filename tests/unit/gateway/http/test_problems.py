"""Problems: status, code and detail."""

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.http.problems import HINTS, STATUSES, entry_of
from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web


def test_refusal_without_message_gets_the_hint_of_its_code() -> None:
    for code, hint in HINTS.items():
        assert entry_of(Refused(code))["detail"] == hint
    own = entry_of(Refused(ErrorCode.MESSAGE_TOO_LARGE, "by far"))
    assert own == {"status": 413, "code": "MESSAGE_TOO_LARGE", "detail": "by far"}


def test_unmapped_code_is_an_internal_error() -> None:
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in STATUSES
    assert entry_of(Refused(ErrorCode.UNKNOWN_SERVER_ERROR))["status"] == 500


@run_with(on_web)
async def test_unknown_paths_and_methods_are_problems(web: Web) -> None:
    assert (await web.get("/nowhere")).code == "NOT_FOUND"
    assert (await web.ask("PUT", "/ack", {})).code == "METHOD_NOT_ALLOWED"
    assert (await web.get("/topics/a/b/c/d")).status == 404
