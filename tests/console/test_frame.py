"""Frame of the pages: connection state, addresses, time zone, dialogs, in a real Chromium."""

import json
import signal
from collections.abc import Iterator

import pytest

from tests.brokers import PenstockProcess
from tests.console.browser import Browser
from tests.console.scene import ORDERS, Scene
from tests.ports import free_port

pytestmark = pytest.mark.clients
DETECTED_MS = 5_000
COLOUR = "getComputedStyle(document.getElementById('live')).backgroundColor"
RED = "rgb(190, 18, 60)"


@pytest.fixture(scope="module", autouse=True)
def _orders(scene: Scene) -> None:
    scene.orders()


@pytest.fixture
def lonely(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[PenstockProcess]:
    """Broker that a test may pause and kill."""
    process = PenstockProcess(tmp_path_factory.mktemp("lonely") / "data", http_port=free_port())
    yield process
    # A page that lost its node would log errors during the next test.
    browser.go("about:blank")
    browser.errors.clear()
    process.send(signal.SIGCONT)
    assert process.stop() == 0, process.log()


def watch_banner(browser: Browser) -> None:
    """Notes in the page when it last heard of the node, and when the banner appears."""
    browser.run("""(() => {
      const ask = window.fetch;
      window.fetch = async (...all) => { const answer = await ask(...all); window.heardMs = performance.now(); return answer; };
      new MutationObserver(() => { if (document.querySelector('.banner')) window.bannerMs ??= performance.now(); })
        .observe(document.getElementById('connection'), {childList: true, subtree: true});
    })()""")  # noqa: E501


@pytest.mark.parametrize("page", ["topics", "security"])
def test_banner_and_red_dot_appear_when_the_node_hangs_and_go_when_it_is_back(
    browser: Browser, lonely: PenstockProcess, page: str
) -> None:
    browser.go(f"{lonely.http}/console#/{page}")
    browser.shows(page.title(), "h1")
    watch_banner(browser)
    browser.until(lambda: browser.run("window.heardMs"), "the node is not asked")
    lonely.send(signal.SIGSTOP)
    browser.shows("The node does not respond", ".banner")
    assert browser.run(COLOUR) == RED
    # Both times are the page's own: how long the test itself waits does not matter.
    assert browser.run("window.bannerMs - window.heardMs") < DETECTED_MS + 500
    lonely.send(signal.SIGCONT)
    browser.lacks(".banner")
    assert browser.run(COLOUR) != RED
    assert not browser.text("#toasts")
    browser.errors.clear()  # The browser logs failed requests.


def test_banner_appears_when_the_node_is_killed(browser: Browser, lonely: PenstockProcess) -> None:
    browser.go(f"{lonely.http}/console")
    browser.shows("No problems")
    lonely.kill()
    browser.shows("The node does not respond", ".banner")
    lonely.start()
    browser.lacks(".banner")
    browser.errors.clear()


@pytest.mark.parametrize("path", ["nowhere", "topics/orders/nothing", "schemas/a/b", "groups/%E0"])
def test_unknown_address_shows_the_page_not_found(
    browser: Browser, scene: Scene, path: str
) -> None:
    browser.go(f"{scene.console}#/{path}")
    browser.shows("There is no such page", "main")
    assert browser.run("document.title").startswith("Not found")
    browser.click("main a", "Open the overview")
    browser.shows("Overview", "h1")


def test_times_are_shown_in_the_chosen_zone(browser: Browser, scene: Scene) -> None:
    browser.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    try:
        scene.publish("timed", {"payload": "now"})
        browser.go(f"{scene.console}#/topics/timed/messages")
        browser.shows("Time (UTC+05:30)", "thead")
        local = browser.text("td.time")
        browser.choose("#zone", "utc")
        browser.shows("Time (UTC)", "thead")
        shift = f"new Date({json.dumps(local)}) - new Date({json.dumps(browser.text('td.time'))})"
        assert browser.run(shift) == 5.5 * 3_600_000
    finally:
        browser.run("localStorage.clear()")
        browser.call("Emulation.setTimezoneOverride", timezoneId="")


def test_error_is_shown_inside_its_dialog(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/topics")
    browser.click("button", "New topic")
    browser.fill("dialog input[name=name]", ORDERS)
    browser.click("dialog button[type=submit]")
    browser.shows("already exists", "dialog [role=alert]")
    assert not browser.text("#toasts")
    browser.errors.clear()  # The browser logs the 409.
    browser.fill("dialog input[name=name]", "one-more")
    browser.click("dialog button[type=submit]")
    browser.shows("one-more", "table")


@pytest.mark.parametrize(("name", "is_valid"), [("a.b_c-9", True), ("no spaces", False)])
def test_topic_name_is_validated_by_the_browser(
    browser: Browser, scene: Scene, name: str, is_valid: bool
) -> None:
    browser.go(f"{scene.console}#/topics")
    browser.click("button", "New topic")
    browser.fill("dialog input[name=name]", name)
    valid = "document.querySelector('dialog input[name=name]').validity.patternMismatch === false"
    assert browser.run(valid) is is_valid
    browser.press("Escape")


def test_topic_is_deleted_once_its_name_was_typed(browser: Browser, scene: Scene) -> None:
    scene.publish("doomed", {"payload": 1})
    browser.go(f"{scene.console}#/topics/doomed")
    browser.click("button", "Delete")
    browser.fill("dialog input[name=typed]", "doom")
    assert browser.run("document.querySelector('dialog [type=submit]').disabled")
    browser.fill("dialog input[name=typed]", "doomed")
    browser.click("dialog [type=submit]")
    browser.shows("Topic doomed was deleted", "#toasts")


def test_table_keeps_selection_focus_scroll_and_filter_while_it_refreshes(
    browser: Browser, scene: Scene
) -> None:
    for number in range(40):
        scene.publish(f"steady-{number:02}", {"payload": number})
    browser.go(f"{scene.console}#/topics?find=steady")
    browser.shows("steady-39", "table")
    assert ORDERS not in browser.text("table")
    browser.run("""(() => {
      const link = [...document.querySelectorAll('tbody a')]
        .find((e) => e.innerText === 'steady-30');
      const row = link.closest('tr');
      row.scrollIntoView({block: 'center'});
      link.focus({preventScroll: true});
      const next = row.nextElementSibling.querySelector('a');
      getSelection().selectAllChildren(next);
      const top = document.querySelector('main').scrollTop;
      window.seen = {link, row, top, bytes: row.children[1].innerText};
    })()""")
    scene.publish("steady-30", *({"payload": at} for at in range(20)))
    browser.until(
        lambda: browser.run("window.seen.row.children[1].innerText !== window.seen.bytes"),
        "the row does not change",
    )
    assert browser.run("window.seen.row.isConnected && document.activeElement === window.seen.link")
    assert browser.run("getSelection().toString()").strip() == "steady-31"
    assert browser.run("document.querySelector('main').scrollTop === window.seen.top")
