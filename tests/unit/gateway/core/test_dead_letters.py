"""Operations on dead letters, replays and copies: permissions, limits, owners, quotas."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.dead_letters.replay import Copier
from penstock.gateway.core.dead_letters import EACH_MAX, OPERATIONS_MAX
from penstock.security.quotas import QuotaKind
from tests.run_with import run_with
from tests.unit.gateway.http.granted_permissions import EVE, GrantedPermissions
from tests.unit.gateway.http.served_node import dead_letter, on_served
from tests.unit.gateway.http.web import Web

COPY = {"to_topic": "copy", "from_offset": "start"}


@run_with(on_served)
async def test_operation_without_permission_takes_no_slot_and_users_have_a_share(web: Web) -> None:
    places = web.gateway.dead_letters._places
    await dead_letter(web, "a")
    while places.take("User:ann"):
        pass
    web.who = "User:ann"
    assert (await web.get("/dlq/t.dlq")).code == "THROTTLING_QUOTA_EXCEEDED"
    web.who = "User:bob"
    assert (await web.get("/dlq/t.dlq")).status == 200
    web.who = None
    assert (await web.get("/dlq")).status == 200
    assert (places.held("User:ann"), places.taken) == (EACH_MAX, EACH_MAX)
    while any(places.take(f"User:{at}") for at in range(OPERATIONS_MAX)):
        pass
    web.node.ctx.authorizer = GrantedPermissions()
    web.who = EVE
    answers = [await web.get(path) for path in ("/dlq", "/dlq/t.dlq", "/dlq/t.dlq/stats")]
    assert [answer.status for answer in answers] == [200, 403, 403]
    assert answers[0].json == {"topics": []}


@pytest.mark.parametrize("rate", [0.00001, 0, -1])
@run_with(on_served)
async def test_rate_that_would_hold_a_slot_for_years_is_refused(web: Web, *, rate: float) -> None:
    await dead_letter(web, "a")
    body = {"background": True, "rate": rate}
    refused = await web.post("/dlq/t.dlq/redrive", body)
    assert (refused.status, refused.code) == (422, "INVALID_REQUEST")
    assert (await web.post("/topics/t/replay", {**COPY, "rate": rate})).status == 422


async def interrupted(web: Web, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts a copy that stops after it has committed its range."""

    async def dies(self: Copier, *args: object) -> None:
        raise Refused(ErrorCode.INVALID_REQUEST, "interrupted")

    with monkeypatch.context() as patched:
        patched.setattr(Copier, "_copy_one", dies)
        assert (await web.post("/topics/t/replay", {**COPY, "name": name})).status == 422


@run_with(on_served)
async def test_interrupted_copy_is_resumed_only_by_its_owner(
    web: Web, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await web.publish("a", "b")
    await web.publish("before", topic="copy")
    web.who = "User:ann"
    await interrupted(web, "mine", monkeypatch)
    web.who = "User:bob"
    others = await web.post("/topics/t/replay", {**COPY, "name": "mine", "dry_run": True})
    assert (others.json["resumed"], others.json["records"]) == (False, 2)
    web.who = "User:ann"
    own = await web.post("/topics/t/replay", {**COPY, "name": "mine"})
    assert (own.json["resumed"], own.json["records"]) == (True, 2)
    long = await web.post("/topics/t/replay", {**COPY, "name": "x" * 300})
    assert (long.status, long.code) == (422, "INVALID_REQUEST")


@run_with(on_served)
async def test_copies_and_redrives_are_charged_to_the_caller(
    web: Web, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dead_letter(web, "x" * 1000)
    await web.publish("y" * 1000, topic="source")
    await web.publish("before", topic="copy")
    charged: list[tuple[str, QuotaKind, float]] = []
    owed = [3.0, 0.0, 0.0, 0.0]
    quota = web.gateway.quota
    monkeypatch.setattr(
        quota, "charge", lambda who, kind, size: charged.append((who.name, kind, size))
    )
    monkeypatch.setattr(quota, "owed_s", lambda who, kind: owed.pop(0) if owed else 0.0)
    began = asyncio.get_running_loop().time()
    web.who = "User:ann"
    assert (await web.post("/topics/source/replay", COPY)).status == 200
    assert asyncio.get_running_loop().time() >= began + 3.0
    web.who = "User:bob"
    assert (await web.post("/dlq/t.dlq/redrive", {})).status == 200
    found = [(who, kind) for who, kind, size in charged if size >= 1000]
    both = [QuotaKind.FETCH, QuotaKind.PRODUCE]
    assert found == [("User:ann", kind) for kind in both] + [("User:bob", kind) for kind in both]
