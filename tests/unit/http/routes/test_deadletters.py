"""Dead letters over HTTP: listed, shown, counted, sent back, purged."""

from penstock.api.route import Operation, ResourceType
from tests.unit.api.harness import Rights
from tests.unit.http.asking import Web
from tests.unit.http.served import bury, depth, on_served


def test_letters_are_listed_shown_and_counted() -> None:
    async def test(web: Web) -> None:
        await bury(web, "a", "b", "c")
        await bury(web, "d", error="ValueError")
        (box,) = (await web.get("/dlq")).json["topics"]
        assert (box["topic"], box["letters"]) == ("t.dlq", 4)
        answer = (await web.get("/dlq/t.dlq", error_class="Time*", limit=2)).json
        assert answer["has_more"]
        assert [one["message"]["payload"] for one in answer["letters"]] == ["a", "b"]
        letter = (await web.get("/dlq/t.dlq/letters/0:3")).json
        assert (letter["error_class"], letter["group"]) == ("ValueError", "g")
        assert letter["source"] == {"topic": "t", "partition": 0, "offset": 3}
        kinds = (await web.get("/dlq/t.dlq/stats", by="class")).json
        counted = {kind["name"]["error"]: kind["count"] for kind in kinds["kinds"]}
        assert counted == {"Timeout": 3, "ValueError": 1}

    on_served(test)


def test_letters_are_sent_back_once() -> None:
    async def test(web: Web) -> None:
        await bury(web, "a", "b", "c")
        dry = (await web.post("/dlq/t.dlq/redrive", {"dry_run": True})).json
        assert (dry["executed"], dry["letters"], len(dry["first"])) == (False, 3, 3)
        done = (await web.post("/dlq/t.dlq/redrive", {"letters": ["0:1", "0:2"]})).json
        assert (done["executed"], done["letters"]) == (True, 2)
        assert done["targets"] == [{"topic": "t", "partition": 0, "letters": 2}]
        assert [one["payload"] for one in await web.poll(max=10)] == ["b", "c"]
        assert (await web.post("/dlq/t.dlq/redrive", {"letters": ["0:1"]})).json["letters"] == 0
        assert await depth(web, "t.dlq") == 1

    on_served(test)


def test_one_letter_is_sent_back_with_another_payload() -> None:
    async def test(web: Web) -> None:
        await bury(web, "wrong")
        body = {"letters": ["0:0"], "payload": {"right": True}}
        assert (await web.post("/dlq/t.dlq/redrive", body)).json["letters"] == 1
        assert [one["payload"] for one in await web.poll()] == [{"right": True}]
        refused = await web.post("/dlq/t.dlq/redrive", {"payload": "for all?"})
        assert (refused.status, refused.code) == (422, "INVALID_REQUEST")

    on_served(test)


def test_letters_are_purged_only_when_that_is_said() -> None:
    async def test(web: Web) -> None:
        await bury(web, "a", "b")
        assert (await web.post("/dlq/t.dlq/purge", {})).code == "INVALID_REQUEST"
        assert (await web.post("/dlq/t.dlq/purge", {"all": True})).json["letters"] == 2
        assert await depth(web, "t.dlq") == 0

    on_served(test)


def test_what_makes_no_sense_is_refused() -> None:
    async def test(web: Web) -> None:
        await bury(web, "a")
        assert (await web.get("/dlq/nowhere")).status == 404
        assert (await web.get("/dlq/t.dlq/letters/0:99")).status == 404
        assert (await web.get("/dlq/t.dlq/letters/x")).code == "INVALID_REQUEST"
        assert (await web.get("/dlq/t.dlq", source_partition="x")).code == "INVALID_REQUEST"
        assert (await web.post("/dlq/t.dlq/redrive", {"rate": 0})).code == "INVALID_REQUEST"
        assert (await web.post("/dlq/t.dlq/redrive", {"limit": 0})).code == "INVALID_REQUEST"
        assert (await web.post("/dlq/t.dlq/redrive", {"erorr": "x"})).status == 422

    on_served(test)


def test_nothing_is_sent_to_a_topic_that_the_caller_may_not_write_to() -> None:
    async def test(web: Web) -> None:
        await bury(web, "a")
        answer = await web.post("/dlq/t.dlq/redrive", {"to": "other"})
        # Not 403: nobody has said who it is.
        assert (answer.status, answer.code) == (401, "TOPIC_AUTHORIZATION_FAILED")
        assert await depth(web, "t.dlq") == 1

    rights = Rights()
    rights.deny(Operation.WRITE, ResourceType.TOPIC, "other")
    on_served(test, rights)
