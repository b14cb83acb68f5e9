"""Every page without serious findings of axe-core, in both themes and on a phone's screen."""

import pytest

from tests.console.axe import serious_findings
from tests.console.browser import Browser
from tests.console.scene import JOBS, ORDERS, Scene

pytestmark = pytest.mark.clients
PAGES = (
    "",
    "topics",
    f"topics/{ORDERS}",
    f"topics/{ORDERS}/messages",
    f"topics/{ORDERS}/messages?mode=search&text=Graz",
    f"topics/{ORDERS}/messages?message=0:0",
    "groups",
    "groups/billing",
    "queues",
    "dlq",
    f"dlq/{JOBS}.dlq",
    "schemas",
    "pipelines",
    "nodes?find=orders",
    "nodes/1?set=1",
    "security",
    "audit",
    "nowhere",
)
SCREENS = {"desktop": (1440, 900), "phone": (390, 844)}


@pytest.fixture(scope="module", autouse=True)
def _data(scene: Scene) -> None:
    scene.orders()
    scene.reject(JOBS, ("BadAddress", "no such street"), traceback="Traceback\n  line 1")


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_have_no_serious_findings(
    browser: Browser, scene: Scene, theme: str, screen: str
) -> None:
    found = []
    browser.theme(theme)
    try:
        with browser.screen(*SCREENS[screen]):
            for page in PAGES:
                browser.go(f"{scene.console}#/{page}")
                browser.until(
                    lambda: browser.run(
                        "!!document.querySelector('h1, .empty')"
                        " && !document.querySelector('.loading')"
                    ),
                    f"{page} does not load",
                )
                found += [f"{page}: {finding}" for finding in serious_findings(browser)]
    finally:
        browser.theme("light")
    assert not found, "\n".join(found)


def test_dialog_has_no_serious_findings(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/topics")
    browser.click("button", "New topic")
    browser.click("dialog button", "Add config")
    assert not serious_findings(browser)
