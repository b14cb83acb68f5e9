"""Groups, queues and dead letters, in a real Chromium."""

import pytest

from tests.console.browser import Browser
from tests.console.scene import JOBS, WORKERS, Scene

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module", autouse=True)
def _readers(scene: Scene) -> None:
    scene.orders()
    scene.letters()


def test_a_group_is_reset_after_a_look_at_what_that_does(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/groups")
    browser.click("table a", "billing")
    browser.shows("Behind", ".stats")
    browser.click("button", "Reset")
    browser.shows("will be read again", "dialog")
    browser.choose("dialog select[name=to]", "end")
    browser.shows("will be passed over", "dialog")
    browser.click("dialog button", "Move the group")
    browser.shows("billing was moved", "#toasts")
    positions = scene.ask("GET", "/offsets?group=billing&topic=orders")
    assert sum(row["lag"] for row in positions["partitions"]) == 0


def test_queues_show_what_waits_and_by_priority(browser: Browser, scene: Scene) -> None:
    scene.publish("mail", *({"payload": at, "priority": at % 4} for at in range(8)))
    scene.ask("GET", f"/topics/mail/poll?group={WORKERS}&max=1")
    browser.go(f"{scene.console}#/queues")
    browser.shows("mail", "table")
    browser.click("table button.linkish", "mail")
    browser.shows("priority 3", ".drawer")
    browser.shows("priority 0", ".drawer")


def test_letters_are_grouped_inspected_redriven_and_taken_back(
    browser: Browser, scene: Scene
) -> None:
    browser.go(f"{scene.console}#/dlq")
    browser.click("table a", f"{JOBS}.dlq")
    browser.shows("PaymentTimeout", ".pick-list")
    browser.click(".pick-list button", "BadAddress")
    browser.until(lambda: browser.run("document.querySelectorAll('tbody tr').length") == 2, "two")
    browser.click("tbody button.linkish")
    browser.shows("Given up by", ".drawer")
    browser.shows(WORKERS, ".drawer")
    browser.press("Escape")
    browser.click("button", "Send back…")
    browser.shows("2 letters will be sent back", "dialog")
    browser.click("dialog button[name=redrive]")
    browser.shows("2 of 2 letters sent back", ".runs")
    scene.wait(lambda: scene.dead() == 4, "two letters are settled")
    browser.click(".runs button", "Undo")
    browser.shows("2 letters taken back of 2 sent", ".runs")
    assert scene.dead() == 6
    assert scene.ask("GET", f"/topics/{JOBS}/poll?group={WORKERS}&wait_ms=0")["messages"] == []


def test_a_letter_is_edited_and_what_was_delivered_cannot_be_undone(
    browser: Browser, scene: Scene
) -> None:
    browser.go(f"{scene.console}#/dlq/{JOBS}.dlq")
    browser.click("tbody button.linkish")
    browser.fill(".drawer textarea[name=payload]", '{"job": "mended"}')
    browser.click(".drawer button", "Send back edited")
    browser.shows("1 of 1 letter sent back", ".runs")
    path = f"/topics/{JOBS}/poll?group={WORKERS}&wait_ms=5000"
    (message,) = scene.ask("GET", path)["messages"]
    assert message["payload"] == {"job": "mended"}
    browser.click(".runs button", "Undo")
    browser.shows("0 letters taken back of 1 sent", ".runs")
    assert scene.dead() == 5
