"""Login, permissions, the read-only console, keyboard shortcuts and themes, in a real Chromium."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.brokers import PenstockProcess
from tests.console.browser import Browser
from tests.console.scene import ORDERS, Scene

pytestmark = pytest.mark.clients
ADMIN, READER = ("admin", "s3cret words"), ("reader", "other words")
PAGES = {
    "": "Overview",
    "topics": "Topics",
    "groups": "Groups",
    "queues": "Queues",
    "dlq": "Dead letters",
    "schemas": "Schemas",
    "pipelines": "Pipelines",
    "nodes": "Nodes",
    "security": "Security",
    "audit": "Audit log",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    folder = tmp_path_factory.mktemp("guarded")
    word = Path(folder / "password")
    word.write_text(ADMIN[1])
    process = PenstockProcess(
        folder / "data",
        {
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": "User:admin",
            "admin.password.file": word,
        },
    )
    yield process
    assert process.stop() == 0, process.log()


def ask(process: PenstockProcess, path: str, body: object, method: str = "POST") -> None:
    """Calls the console's API as the administrator."""
    coded = base64.b64encode(":".join(ADMIN).encode()).decode()
    headers = {
        "authorization": f"Basic {coded}",
        "content-type": "application/json",
        "x-penstock-console": "1",
    }
    data = json.dumps(body).encode()
    request = urllib.request.Request(process.http + path, data, headers, method=method)
    urllib.request.urlopen(request, timeout=30).close()


def _is_titled(browser: Browser, title: str) -> bool:
    return browser.text("h1") == title


def log_in(browser: Browser, name: str, password: str) -> None:
    browser.fill("input[name=name]", name)
    browser.fill("input[name=password]", password)
    browser.press("Enter")


def test_login_is_required_and_pages_show_only_permitted_resources(
    browser: Browser, guarded: PenstockProcess
) -> None:
    ask(guarded, "/topics", {"name": ORDERS, "partitions": 1})
    ask(guarded, "/topics", {"name": "secrets", "partitions": 1})
    ask(
        guarded, "/console/api/security/users", dict(zip(("name", "password"), READER, strict=True))
    )
    line = {"resource": "TOPIC", "name": ORDERS, "pattern": "LITERAL", "principal": "User:reader"}
    line |= {"host": "*", "operation": "READ", "permission": "ALLOW"}
    ask(guarded, "/console/api/security/acls", line)

    browser.go(f"{guarded.http}/console#/topics")
    browser.shows("Log in as a user of this cluster")
    log_in(browser, READER[0], "wrong")
    browser.shows("Authentication failed", ".login-error")
    browser.errors.clear()  # The browser logs the 401.
    log_in(browser, *READER)
    browser.shows(ORDERS, "table")
    assert "secrets" not in browser.text("table")
    (cookie,) = browser.call("Network.getCookies")["cookies"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", False)

    browser.go(f"{guarded.http}/console#/topics/secrets/messages")
    browser.shows("Permission denied")
    browser.go(f"{guarded.http}/console#/nodes")
    browser.shows("lacks DESCRIBE permission on the cluster")
    browser.errors.clear()
    browser.click("#logout")
    browser.shows("Log in as a user of this cluster")
    log_in(browser, *ADMIN)
    browser.shows("Nodes", "h1")
    browser.press("g", "u")
    browser.shows("reader", "table")
    browser.click("[role=tab]", "ACLs")
    browser.shows("User:reader", "table")


def test_session_ends_when_the_password_changes(browser: Browser, guarded: PenstockProcess) -> None:
    ask(guarded, "/console/api/security/users", {"name": "leaver", "password": "one"})
    browser.call("Network.clearBrowserCookies")
    browser.go(f"{guarded.http}/console#/groups")
    log_in(browser, "leaver", "one")
    browser.shows("Groups", "h1")
    ask(guarded, "/console/api/security/users", {"name": "leaver", "password": "two"})
    browser.go(f"{guarded.http}/console#/queues")
    browser.shows("Log in as a user of this cluster")
    browser.errors.clear()


def test_write_with_cookie_but_without_write_token_is_refused(
    browser: Browser, guarded: PenstockProcess
) -> None:
    """Other sites can make a browser send the cookie, but not the page's write token."""
    browser.call("Network.clearBrowserCookies")
    browser.go(f"{guarded.http}/console")
    log_in(browser, *ADMIN)
    browser.shows("Overview", "h1")
    script = """(async () => {
      const send = (headers) => fetch('/console/api/security/users', {
        method: 'POST', headers, body: JSON.stringify({name: 'mallory', password: 'x'})});
      const wrong = await send({'x-penstock-console': '1'});
      return [(await send({})).status, wrong.status];
    })()"""
    assert browser.run(script) == [403, 403]
    browser.errors.clear()


def test_read_only_console_refuses_changes(browser: Browser, scene: Scene) -> None:
    scene.orders(3)
    browser.call("Network.clearBrowserCookies")
    scene.configure({"console.read.only": "true"})
    browser.go(f"{scene.console}#/topics/{ORDERS}/messages")
    browser.shows("read only", ".topbar")
    browser.has("button[disabled]")
    assert browser.run(
        "[...document.querySelectorAll('button')].find((e) => e.innerText === 'Produce').disabled"
    )
    with pytest.raises(urllib.error.HTTPError, match="403"):
        scene.ask("DELETE", f"/topics/{ORDERS}", headers={"x-penstock-console": "1"})
    scene.configure({"console.read.only": "false", "console.enable": "false"})
    with pytest.raises(urllib.error.HTTPError, match="404"):
        scene.ask("GET", "/console")
    scene.configure({"console.enable": "true"})


def test_keyboard_shortcuts_reach_every_page(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/topics")
    browser.shows("Topics", "h1")
    keys = dict(zip(PAGES, "otgqdspnua", strict=True))
    for path, title in PAGES.items():
        browser.press("g", keys[path])
        browser.until(partial(_is_titled, browser, title), f"{title} does not open")
        assert browser.run("location.hash") == f"#/{path}"
    browser.press("?")
    browser.shows("Search on this page", "dialog")
    browser.press("Escape")
    browser.lacks("dialog")
    browser.go(f"{scene.console}#/topics")
    browser.shows(ORDERS, "table")
    for _ in range(40):
        browser.press("Tab")
        if browser.run("document.activeElement.innerText") == ORDERS:
            break
    assert browser.run("document.activeElement.matches(':focus-visible')")
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    browser.shows("Partitions", "[role=tab]")


def test_theme_follows_the_system_and_can_be_switched(browser: Browser, scene: Scene) -> None:
    browser.theme("dark")
    browser.go(f"{scene.console}#/pipelines")
    browser.shows("No pipelines yet")
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    browser.click("#theme")
    assert browser.run("document.documentElement.dataset.theme") == "light"
    browser.run("localStorage.clear()")
    browser.theme("light")


def test_phone_shows_page_names_figures_and_all_columns(browser: Browser, scene: Scene) -> None:
    scene.orders(3)
    with browser.screen(390, 844):
        browser.go(scene.console)
        browser.has(".stats")
        columns = "getComputedStyle(document.querySelector('.stats')).gridTemplateColumns"
        assert len(browser.run(columns).split()) == 2
        assert browser.run("document.documentElement.scrollWidth") <= 390
        browser.click("#menu")
        left = "document.querySelector('.nav').getBoundingClientRect().left"
        browser.until(lambda: browser.run(left) == 0, "the menu does not open")
        browser.click(".nav a", "Topics")
        browser.shows("Topics", "h1")
        browser.until(
            lambda: (
                browser.run("getComputedStyle(document.querySelector('.nav')).visibility")
                == "hidden"
            ),
            "the menu stays open",
        )
        browser.shows(ORDERS, "table")
        cells = """[...document.querySelectorAll('tbody td')].map((e) => [
          e.dataset.label, e.getBoundingClientRect().right <= innerWidth,
          getComputedStyle(e, '::before').content])"""
        for label, is_reachable, shown in browser.run(cells):
            assert is_reachable, label
            assert shown in (f'"{label}"', "none"), label
        assert browser.run("document.querySelector('main').scrollWidth <= innerWidth")
