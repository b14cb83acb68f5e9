"""Overview, topics and messages, in a real Chromium."""

import base64
import csv
import json
from pathlib import Path

import pytest

from tests.console.browser import Browser
from tests.console.scene import HOSTILE, ORDERS, Scene
from tests.waiting import eventually

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module", autouse=True)
def _orders(scene: Scene) -> None:
    scene.orders()


def test_overview_shows_health_groups_and_charts(browser: Browser, scene: Scene) -> None:
    browser.go(scene.console)
    browser.shows("Overview", "h1")
    browser.shows("No problems")
    browser.shows("billing")
    browser.until(
        lambda: browser.run("document.querySelectorAll('.plot .line').length") >= 4, "lines"
    )
    assert all(
        url.startswith((scene.http, "data:")) for url in browser.requested if "about:" not in url
    )


def test_topics_are_listed_filtered_and_opened(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/topics")
    browser.shows(ORDERS, "table")
    browser.press("/")
    browser.call("Input.insertText", text="no such topic")
    browser.shows("No matches")
    browser.fill("[data-search]", "ord")
    browser.click("table a", ORDERS)
    browser.shows("30", ".stats")
    browser.click("[role=tab]", "Configs")
    browser.shows("retention.ms", "table")
    browser.shows("604800000", "table")
    browser.click("[role=tab]", "Readers")
    browser.shows("billing", "table")


def test_produced_message_appears_in_the_live_tail(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/topics/{ORDERS}/messages?mode=tail")
    browser.shows("live", ".toolbar")
    browser.click("button", "Produce")
    browser.fill("dialog textarea[name=value]", '{"tailed": "hello from the tail"}')
    browser.click("dialog button[name=send]")
    browser.shows("Written to orders", "#toasts")
    browser.shows("hello from the tail", "table")


def test_hostile_payloads_are_shown_as_text(browser: Browser, scene: Scene) -> None:
    scene.publish(
        "hostile",
        *({"payload": text, "key": text, "headers": {"h": text}} for text in HOSTILE.values()),
        {"payload_base64": "AP8BAgME/v79"},
        {"payload": "x" * 900_000},
    )
    browser.go(f"{scene.console}#/topics/hostile/messages")
    for text in (HOSTILE["image"], HOSTILE["script"], "\\u202e001 DEK", "00 ff 01 02"):
        browser.shows(text, "table")
    browser.click("tr.pick", HOSTILE["image"])
    browser.shows(HOSTILE["image"], ".drawer")
    browser.click(".drawer [role=tab]", "Headers")
    browser.shows(HOSTILE["image"], ".drawer")
    browser.press("Escape")
    browser.click("tr.pick", "xxxx")
    browser.shows("879 KiB", ".drawer")
    assert browser.run("window.broken") is None
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    refused = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'taken'; } catch (e) { return e.name; } })()"  # noqa: E501
    assert browser.run(refused) == "TypeError"
    browser.errors.clear()  # The browser logs this attempt.


def test_search_finds_by_value_and_shows_its_extent(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/topics/{ORDERS}/messages?mode=search")
    browser.fill("input[name=text]", '"order": 17,')
    browser.press("Enter")
    browser.shows("1 found in", ".scan")
    browser.shows("all records searched", ".scan")
    browser.shows("127.5", "table")


def test_message_is_shown_in_hex_copied_and_produced_again(browser: Browser, scene: Scene) -> None:
    scene.publish("again", {"payload": {"n": 1}, "key": "k"})
    browser.go(f"{scene.console}#/topics/again/messages?from=offset&offset=0")
    browser.click("tr.pick")
    browser.shows('"n": 1', ".drawer")
    browser.click(".drawer [role=tab]", "Hex")
    browser.shows("7b 22 6e 22", ".drawer")
    browser.click(".drawer [role=tab]", "Copy as")
    for word in ("curl http", "kcat -b", "penstock.Client("):
        browser.shows(word, ".drawer")
    browser.click(".drawer button", "Produce again")
    browser.fill("dialog textarea[name=value]", '{"n": 2}')
    browser.click("dialog button[name=send]")
    browser.shows("offset 1", "#toasts")
    topic = scene.ask("GET", "/topics/again")
    assert sum(row["end_offset"] for row in topic["partitions"]) == 2


def test_more_messages_are_added_to_the_list(browser: Browser, scene: Scene) -> None:
    scene.publish("many", *({"payload": {"at": at}, "partition": 0} for at in range(120)))
    browser.go(f"{scene.console}#/topics/many/messages")
    rows = "document.querySelectorAll('tbody tr').length"
    browser.until(lambda: browser.run(rows) == 50, "the first page")
    browser.run("window.first = document.querySelector('tbody tr')")
    browser.click("button", "Load more")
    browser.until(lambda: browser.run(rows) == 100, "the second page")
    browser.click("button", "Load more")
    browser.until(lambda: browser.run(rows) == 120, "the third page")
    assert browser.run("window.first.isConnected")
    places = "[...document.querySelectorAll('tbody tr')].map((e) => e.dataset.place)"
    assert browser.run(places) == [f"0:{at}" for at in reversed(range(120))]
    browser.go(f"{scene.console}#/topics/many/messages?from=offset&offset=60&partition=0")
    browser.until(lambda: browser.run(rows) == 50, "a page from an offset")
    browser.click("button", "Load earlier")
    browser.until(lambda: browser.run(rows) == 100, "an earlier page")
    assert browser.run(places) == [f"0:{at}" for at in range(10, 110)]


def test_message_search_and_filter_are_opened_by_their_address(
    browser: Browser, scene: Scene
) -> None:
    browser.go(f"{scene.console}#/topics/{ORDERS}/messages?mode=search")
    browser.fill("input[name=text]", '"order": 12,')
    browser.click("input[name=headers]")
    browser.press("Enter")
    browser.shows("1 found in", ".scan")
    browser.click("tr.pick")
    browser.shows('"order": 12', ".drawer")
    address = browser.run("location.href")
    browser.go("about:blank")
    browser.go(address)
    browser.shows('"order": 12', ".drawer")
    browser.shows("1 found in", ".scan")
    assert browser.run("document.querySelector('input[name=headers]').checked") is False
    browser.press("Escape")
    browser.lacks(".drawer")
    assert "message=" not in browser.run("location.hash")
    browser.go(f"{scene.console}#/topics?find=no-such-name")
    browser.shows("No matches")


@pytest.mark.parametrize("form", ["JSON", "CSV"])
def test_listed_messages_are_downloaded_whole(
    browser: Browser, scene: Scene, tmp_path: Path, form: str
) -> None:
    long = "long " * 1_000
    topic = f"saved-{form.lower()}"
    scene.publish(
        topic,
        {"payload_base64": base64.b64encode(b'{"big": 12345678901234567890}').decode(), "key": "k"},
        {"payload": f'{long}"quoted", and more', "headers": {"trace": "a"}},
        {"payload_base64": "AP8B"},
    )
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.go(f"{scene.console}#/topics/{topic}/messages?from=earliest")
    browser.shows("long long", "table")
    browser.click("button", form)
    path = tmp_path / f"{topic}.{form.lower()}"
    scene.wait(path.exists, "the download does not arrive")
    text = path.read_text()
    if form == "JSON":
        rows = json.loads(text)
        values = {row.get("value_base64") or json.dumps(row["value"]) for row in rows}
        keys = {row["key"] for row in rows}
    else:
        rows = list(csv.DictReader(text.splitlines()))
        values = {
            row["value"] if row["value_form"] in ("binary", "json") else json.dumps(row["value"])
            for row in rows
        }
        keys = {row["key"] or None for row in rows}
    assert values == {
        '{"big": 12345678901234567890}',
        json.dumps(f'{long}"quoted", and more'),
        "AP8B",
    }
    assert keys == {"k", None}


def test_json_is_coloured_and_keeps_all_digits(browser: Browser, scene: Scene) -> None:
    value = '{"id": 12345678901234567890, "name": "a \\" b", "tags": [], "on": true}'
    scene.publish("coloured", {"payload_base64": base64.b64encode(value.encode()).decode()})
    browser.go(f"{scene.console}#/topics/coloured/messages")
    browser.click("tr.pick")
    browser.shows("12345678901234567890", ".drawer pre")
    parts = """['key', 'number', 'string', 'word'].map((kind) =>
      [...document.querySelectorAll(`.drawer .json-${kind}`)].map((e) => e.innerText))"""
    assert browser.run(parts) == [
        ['"id"', '"name"', '"tags"', '"on"'],
        ["12345678901234567890"],
        ['"a \\" b"'],
        ["true"],
    ]
    shown = browser.text(".drawer pre")
    assert json.loads(shown) == json.loads(value)
    assert shown.splitlines()[1] == '  "id": 12345678901234567890,'
    colours = "new Set([...document.querySelectorAll('.drawer pre span')].map((e) => getComputedStyle(e).color)).size"  # noqa: E501
    assert browser.run(colours) == 4


def test_overview_shows_the_last_hour_and_day_by_their_address(
    browser: Browser, scene: Scene
) -> None:
    browser.go(f"{scene.console}#/?period=day")
    browser.shows("No problems")
    assert browser.run("document.querySelector('select[name=period]').value") == "day"
    browser.shows("collecting…", ".chart")  # A day has a point every five minutes.
    browser.choose("select[name=period]", "hour")
    browser.until(lambda: browser.run("location.hash") == "#/?period=hour", "the address")
    # Two samples of the node, 30 s apart, and then at most 30 s until the page asks again.
    eventually(
        lambda: browser.run("document.querySelectorAll('.plot .line').length") == 6,
        "the charts of the last hour",
        90,
    )
    assert browser.run("document.querySelector('.chart-wait').hidden")
    browser.choose("select[name=period]", "")
    browser.until(lambda: browser.run("location.hash") == "#/", "the address")
