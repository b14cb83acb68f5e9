"""Overview, topics and messages, in a real Chromium."""

import pytest

from tests.console.browser import Browser
from tests.console.scene import HOSTILE, ORDERS, Scene

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
