"""Groups, queues and dead letters, in a real Chromium."""

import pytest

from tests.console.browser import Browser
from tests.console.scene import JOBS, WORKERS, Scene

pytestmark = pytest.mark.clients


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
    browser.until(lambda: browser.run("document.querySelectorAll('tbody tr').length") == 2, "two")
    browser.click("tbody button.linkish")
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
    browser.fill(".drawer textarea[name=payload]", '{"job": "mended"}')
    browser.click(".drawer button", "Redrive edited")
    browser.shows("1 of 1 dead letter redriven", ".runs")
    path = f"/topics/{JOBS}/poll?group={WORKERS}&wait_ms=5000"
    (message,) = scene.ask("GET", path)["messages"]
    assert message["payload"] == {"job": "mended"}
    browser.click(".runs button", "Undo")
    browser.shows("0 dead letters taken back of 1 redriven", ".runs")
    assert scene.dead() == 5
