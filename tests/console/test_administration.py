"""Topics' configs, permissions, audit log, node configs and pipelines, in a real Chromium."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import PenstockProcess
from tests.console.browser import Browser
from tests.console.scene import ORDERS, Scene
from tests.console.test_login import ADMIN, READER, ask, log_in

pytestmark = pytest.mark.clients


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
    ask(process, "/topics", {"name": ORDERS, "partitions": 1})
    ask(
        process, "/console/api/security/users", dict(zip(("name", "password"), READER, strict=True))
    )
    for resource, name in (("TOPIC", ORDERS), ("GROUP", "billing"), ("CLUSTER", "kafka-cluster")):
        line = {"resource": resource, "name": name, "pattern": "LITERAL", "host": "*"}
        line |= {"principal": "User:reader", "permission": "ALLOW"}
        operation = "DESCRIBE" if resource == "CLUSTER" else "READ"
        ask(process, "/console/api/security/acls", line | {"operation": operation})
    yield process
    assert process.stop() == 0, process.log()


def test_topic_is_created_with_policy_order_and_any_config(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/topics")
    browser.click("button", "New topic")
    browser.fill("dialog input[name=name]", "made")
    browser.choose("dialog select[name=policy]", "compact")
    browser.choose("dialog select[name=order]", "key")
    browser.until(
        lambda: browser.run("document.querySelectorAll('#topic-configs option').length") > 20,
        "the configs are not listed",
    )
    browser.click("dialog button", "Add config")
    browser.fill("dialog input[name=config]", "max.message.bytes")
    browser.until(lambda: browser.text("dialog .config-row small"), "the config is not explained")
    browser.fill("dialog input[name=config-value]", "54321")
    browser.click("dialog button[type=submit]")
    browser.shows("Topic made was created", "#toasts")
    configs = scene.ask("GET", "/topics/made")["configs"]
    assert configs["cleanup.policy"] == "compact"
    assert configs["queue.order"] == "key"
    assert configs["max.message.bytes"] == "54321"


def test_record_counts_state_that_markers_are_included(browser: Browser, scene: Scene) -> None:
    browser.go(f"{scene.console}#/topics")
    browser.shows("markers of transactions", ".footnote")


def test_actions_without_permission_are_hidden(browser: Browser, guarded: PenstockProcess) -> None:
    browser.call("Network.clearBrowserCookies")
    browser.go(f"{guarded.http}/console#/topics")
    log_in(browser, *READER)
    browser.shows(ORDERS, "table")
    buttons = "[...document.querySelectorAll('main button, main .button')].map((e) => e.innerText)"
    assert "New topic" not in browser.run(buttons)
    browser.click("table a", ORDERS)
    browser.shows("Partitions", "[role=tab]")
    assert not {"Produce", "Delete"} & set(browser.run(buttons))
    assert "Messages" in browser.run(buttons)
    browser.go(f"{guarded.http}/console#/topics/{ORDERS}/messages")
    browser.shows("Browse", "[role=tab]")
    assert "Produce" not in browser.run(buttons)
    assert "Audit log" not in browser.text(".nav")
    browser.go(f"{guarded.http}/console#/security")
    browser.shows("Users", "[role=tab]")
    assert "Add user" not in browser.run(buttons)
    browser.click("#logout")
    log_in(browser, *ADMIN)
    browser.shows("Add user", "main")
    browser.go(f"{guarded.http}/console#/topics/{ORDERS}")
    browser.shows("Produce", "main")
    assert {"Produce", "Delete"} <= set(browser.run(buttons))
    browser.errors.clear()


def test_audit_log_is_listed_and_filtered(browser: Browser, guarded: PenstockProcess) -> None:
    browser.call("Network.clearBrowserCookies")
    browser.go(f"{guarded.http}/console#/audit")
    log_in(browser, *ADMIN)
    browser.shows(f"topic:{ORDERS}", "table")
    browser.fill("[data-search]", "security/users")
    browser.until(lambda: ORDERS not in browser.text("table"), "the filter has no effect")
    browser.shows("security/users", "table")
    address = browser.run("location.href")
    browser.go(address)
    browser.shows("security/users", "table")
    assert ORDERS not in browser.text("table")


def test_node_configs_are_shown_with_their_source(browser: Browser, scene: Scene) -> None:
    scene.configure({"log.retention.ms": "123456789"})
    browser.go(f"{scene.console}#/nodes")
    browser.click("a", "Configs")
    browser.shows("Node 1 configs", "h1")
    browser.fill("[data-search]", "num.partitions")
    browser.shows("config file or option", "table")
    browser.fill("[data-search]", "log.retention.ms")
    browser.shows("123456789", "table")
    browser.shows("set for this node", "table")


def test_pipeline_is_drawn_in_the_order_of_its_topics(browser: Browser, scene: Scene) -> None:
    stages = {
        "gold": ("clean", "totals", ""),
        "silver": ("raw", "clean", "raw.dlq"),
        "bronze": ("landing", "raw", ""),
        "alerts": ("clean", "alarms", ""),
    }
    for stage, (source, target, dlq) in stages.items():
        report = {"pipeline": "lake", "stage": stage, "state": "running", "batch": 3, "lag": 0}
        report |= {"source": source, "target": target, "dlq": dlq, "bad_rows": 4 if dlq else 0}
        report |= {"updated_ms": int(time.time() * 1000), "rows_in": 10, "rows_out": 10}
        scene.publish("__pipelines", {"payload": report, "key": f"lake/{stage}"})
    browser.go(f"{scene.console}#/pipelines")
    browser.has("[data-stage=gold]")
    drawn = """[...document.querySelectorAll('.level')].map((level) =>
      [...level.querySelectorAll('[data-stage]')].map((e) => e.dataset.stage).sort())"""
    assert browser.run(drawn) == [["bronze"], ["silver"], ["alerts", "gold"]]
    edges = "[...document.querySelectorAll('.edge-topic')].map((e) => e.innerText)"
    assert browser.run(edges)[:3] == ["landing", "raw", "clean"]
    assert set(browser.run(edges)[3:]) == {"alarms", "totals"}
    link = "document.querySelector('[data-stage=silver] a[href=\"#/dlq/raw.dlq\"]').innerText"
    assert browser.run(link) == "4"
