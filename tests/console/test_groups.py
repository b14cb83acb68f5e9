"""Groups, queues and dead letters, in a real Chromium."""

import pytest

from tests.console.browser import Browser
from tests.console.scene import JOBS, WORKERS, Scene

pytestmark = pytest.mark.clients
ROWS = "document.querySelectorAll('tbody tr').length"


@pytest.fixture(scope="module", autouse=True)
def _readers(scene: Scene) -> None:
    scene.orders()
    scene.dead_letters()


def test_group_offsets_are_reset_after_a_preview(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/groups")
    browser.click("table a", "billing")
    browser.shows("Lag", ".stats")
    browser.click("button", "Reset")
    browser.shows("will be read again", "dialog")
    browser.choose("dialog select[name=to]", "end")
    browser.shows("will be skipped", "dialog")
    browser.click("dialog button", "Reset offsets")
    browser.shows("Offsets of billing were reset", "#toasts")
    positions = scene.ask("GET", "/offsets?group=billing&topic=orders")
    assert sum(row["lag"] for row in positions["partitions"]) == 0


def test_queue_page_shows_ready_messages_by_priority(browser: Browser, scene: Scene) -> None:
    scene.publish("mail", *({"payload": at, "priority": at % 4} for at in range(8)))
    scene.ask("GET", f"/topics/mail/poll?group={WORKERS}&max=1")
    browser.go(f"{scene.console}#/queues")
    browser.shows("mail", "table")
    browser.click("table button.linkish", "mail")
    browser.shows("priority 3", ".drawer")
    browser.shows("priority 0", ".drawer")


def test_dead_letters_are_grouped_inspected_redriven_and_taken_back(
    browser: Browser, scene: Scene
) -> None:
    browser.go(f"{scene.console}#/dlq")
    browser.click("table a", f"{JOBS}.dlq")
    browser.shows("PaymentTimeout", ".pick-list")
    browser.click(".pick-list button", "BadAddress")
    browser.until(lambda: browser.run(ROWS) == 2, "two")
    browser.click("tbody tr")
    browser.shows("Dead-lettered by", ".drawer")
    browser.shows(WORKERS, ".drawer")
    browser.press("Escape")
    browser.click("button", "Redrive…")
    browser.shows("2 dead letters will be redriven", "dialog")
    browser.click("dialog button[name=redrive]")
    browser.shows("2 of 2 dead letters redriven", ".runs")
    scene.wait(lambda: scene.dead() == 4, "two dead letters are not settled")
    browser.click(".runs button", "Undo")
    browser.shows("2 dead letters taken back of 2 redriven", ".runs")
    assert scene.dead() == 6
    assert scene.ask("GET", f"/topics/{JOBS}/poll?group={WORKERS}&wait_ms=0")["messages"] == []


def test_edited_dead_letter_is_redriven_and_delivered_copy_is_not_undone(
    browser: Browser, scene: Scene
) -> None:
    browser.go(f"{scene.console}#/dlq/{JOBS}.dlq")
    browser.click("tbody button.linkish")
    browser.click(".drawer [role=tab]", "Edit and redrive")
    browser.fill(".drawer textarea[name=payload]", '{"job": 12345678901234567890}')
    browser.click(".drawer button", "Redrive edited")
    browser.shows("1 of 1 dead letter redriven", ".runs")
    path = f"/topics/{JOBS}/poll?group={WORKERS}&wait_ms=5000"
    (message,) = scene.ask("GET", path)["messages"]
    assert message["payload"] == {"job": 12345678901234567890}
    browser.click(".runs button", "Undo")
    browser.shows("0 dead letters taken back of 1 redriven", ".runs")
    assert scene.dead() == 5


def test_similar_errors_are_one_cause_with_an_address(browser: Browser, scene: Scene) -> None:
    cities = ("Graz", "Wien", "Wels", "Enns", "Steyr", "Krems")
    scene.reject("post", *(("UnknownPostcode", f"unknown postcode for {city}") for city in cities))
    scene.reject("post", ("Refused", "connection refused by peer"))
    browser.go(f"{scene.console}#/dlq/post.dlq")
    browser.shows("unknown postcode for …", ".pick-list")
    kinds = "[...document.querySelectorAll('.pick-list .count')].map((e) => e.innerText)"
    assert browser.run(kinds) == ["7", "6", "1"]
    browser.click(".pick-list button", "unknown postcode")
    browser.until(lambda: browser.run(ROWS) == 6, "six")
    address = browser.run("location.href")
    browser.go("about:blank")
    browser.go(address)
    browser.until(lambda: browser.run(ROWS) == 6, "six again")
    assert browser.run("document.querySelector('[aria-pressed=true] .count').innerText") == "6"


def test_dead_letters_are_selected_by_checkbox_and_stay_selected(
    browser: Browser, scene: Scene
) -> None:
    scene.reject("picked", *(("Broken", f"part {at}") for at in range(5)))
    browser.go(f"{scene.console}#/dlq/picked.dlq")
    browser.until(lambda: browser.run(ROWS) == 5, "five")
    boxes = "[...document.querySelectorAll('tbody input[type=checkbox]')]"
    browser.run(f"{boxes}[1].click(), {boxes}[3].click()")
    browser.shows("2 selected", ".selection")
    browser.lacks(".drawer")
    scene.reject("picked", ("Broken", "part 5"))
    browser.until(lambda: browser.run(ROWS) == 6, "six")
    browser.shows("2 selected", ".selection")
    chosen = browser.run(f"{boxes}.filter((e) => e.checked).map((e) => e.ariaLabel)")
    browser.click("button", "Redrive selected")
    browser.shows("2 dead letters will be redriven", "dialog")
    browser.click("dialog button[name=redrive]")
    browser.until(lambda: browser.run(ROWS) == 4, "four left")
    left = browser.run(f"{boxes}.map((e) => e.ariaLabel)")
    assert not set(chosen) & set(left)


def test_traceback_is_shown_first_and_by_its_address(browser: Browser, scene: Scene) -> None:
    trace = 'Traceback (most recent call last):\n  File "jobs.py", line 7, in pay\nKeyError: 1'
    scene.reject("traced", ("KeyError", "1"), traceback=trace)
    browser.go(f"{scene.console}#/dlq/traced.dlq")
    browser.click("tbody tr")
    browser.shows('File "jobs.py", line 7', ".drawer pre")
    address = browser.run("location.href")
    browser.go("about:blank")
    browser.go(address)
    browser.shows('File "jobs.py", line 7', ".drawer pre")


def test_dead_letter_page_fits_1440_pixels(browser: Browser, scene: Scene) -> None:
    scene.reject("wide", ("LongNamedError", "no such warehouse " * 40), key="k" * 200)
    with browser.screen(1440, 900):
        browser.go(f"{scene.console}#/dlq/wide.dlq")
        browser.until(lambda: browser.run(ROWS) == 1, "one")
        fits = """[...document.querySelectorAll('main, .table-box, .split > *')]
          .every((e) => e.scrollWidth <= e.clientWidth + 1)"""
        assert browser.run(fits)
        edges = (
            "[...document.querySelectorAll('tbody td')].map((e) => e.getBoundingClientRect().right)"
        )
        assert max(browser.run(edges)) <= 1440
