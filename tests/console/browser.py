"""Headless Chromium, controlled with its debugging protocol over a pipe.

Needs only the browser: no driver of a matching version, no port, no package. Messages are JSON,
each terminated by a zero byte. Keys and clicks are real input events, as from a person. Every wait
polls until a deadline, and then raises TimeoutError with the text of the page.
"""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_S = 20.0
CALL_S = 30.0
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--window-size=1280,860",
)
CHANGED = "e.dispatchEvent(new Event('change', {bubbles: true}));"
FIND = """(selector, text) => {
  const fits = (e) => e.offsetParent && !e.disabled && (e.innerText ?? '').includes(text);
  const one = [...document.querySelectorAll(selector)].find(fits);
  if (!one) return null;
  one.scrollIntoView({block: 'center'});
  const box = one.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
}"""
KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
}


class BrowserFailed(AssertionError):
    """The page did not behave as expected; the message has its text."""


class Browser:
    def __init__(self, profile: Path) -> None:
        found = next((path for path in map(shutil.which, NAMES) if path), None)
        if found is None:
            raise BrowserFailed("no Chromium: run tests/clients/ensure_tools.sh")
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._rest = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self.errors: list[str] = []
        """Errors that pages logged, and uncaught exceptions."""
        self.requested: list[str] = []
        """URLs that pages requested."""
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        command = [found, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._log = profile.with_suffix(".log").open("wb")

        def connect() -> None:
            # The browser reads from descriptor 3 and writes to 4; the pipes may have these numbers.
            first, second = os.dup(to_read), os.dup(to_write)
            spare = max(first, second, 9) + 1
            os.dup2(first, spare)
            os.dup2(second, spare + 1)
            os.dup2(spare, 3)
            os.dup2(spare + 1, 4)

        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, preexec_fn=connect, pass_fds=(3, 4)
        )
        os.close(to_read)
        os.close(to_write)
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for descriptor in (self._read, self._write):
            os.close(descriptor)
        self._log.close()

    # -- the protocol -----------------------------------------------------------------------

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        deadline = time.monotonic() + CALL_S
        while number not in self._answers:
            self._take(deadline)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserFailed(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _take(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([self._read], [], [], max(left, 0))
        if not ready:
            raise TimeoutError("Chromium does not answer")
        data = os.read(self._read, 1 << 20)
        if not data:
            raise BrowserFailed("Chromium has ended")
        *messages, self._rest = (self._rest + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._note(message["method"], message["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:600])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])

    # -- inspecting -------------------------------------------------------------------------

    def run(self, script: str) -> Any:
        """Evaluates an expression in the page."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise BrowserFailed(f"{script[:200]}: {json.dumps(result['exceptionDetails'])[:600]}")
        return result["result"].get("value")

    def text(self, selector: str = "body") -> str:
        found: str = self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return found

    def until(self, claim: Callable[[], Any], error: str) -> Any:
        deadline = time.monotonic() + WAIT_S
        while True:
            found = claim()
            if found:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"{error}; the page shows:\n{self.text()[:3000]}\n{self.errors}")
            time.sleep(0.05)

    def shows(self, text: str, within: str = "body") -> None:
        """Waits until the text is visible."""
        self.until(lambda: text in self.text(within), f"{text!r} is not in {within}")

    def has(self, selector: str) -> None:
        exists = f"document.querySelector({json.dumps(selector)}) !== null"
        self.until(lambda: self.run(exists), f"there is no {selector}")

    def lacks(self, selector: str) -> None:
        """Waits until no element matches."""
        is_gone = f"document.querySelector({json.dumps(selector)}) === null"
        self.until(lambda: self.run(is_gone), f"{selector} stays")

    # -- acting -----------------------------------------------------------------------------

    def go(self, url: str) -> None:
        """Loads a page, also if only the fragment differs from the current URL."""
        for address in ("about:blank", url):
            self.call("Page.navigate", url=address)
            loaded = (
                f"document.readyState === 'complete' && location.href === {json.dumps(address)}"
            )
            self.until(partial(self.run, loaded), f"{address} does not load")

    def click(self, selector: str, text: str = "") -> None:
        """Clicks on the first matching visible element that contains the text."""
        find = f"({FIND})({json.dumps(selector)}, {json.dumps(text)})"
        x, y = self.until(lambda: self.run(find), f"there is no {selector} with {text!r}")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def fill(self, selector: str, text: str) -> None:
        """Replaces the text of a field, as if typed or pasted."""
        self.has(selector)
        self._on(selector, "e.focus(); e.select?.();")
        self.call("Input.insertText", text=text)
        self._on(selector, CHANGED)

    def choose(self, selector: str, value: str) -> None:
        self.has(selector)
        self._on(selector, f"e.value = {json.dumps(value)}; {CHANGED}")

    def _on(self, selector: str, script: str) -> None:
        self.run(f"((e) => {{ {script} }})(document.querySelector({json.dumps(selector)}))")

    def press(self, *keys: str) -> None:
        for key in keys:
            name, code, text = KEYS.get(key, (key, ord(key.upper()[0]), key))
            down = {"type": "keyDown", "key": name, "windowsVirtualKeyCode": code, "text": text}
            self.call("Input.dispatchKeyEvent", **down)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    def theme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", features=features)

    @contextlib.contextmanager
    def screen(self, width: int, height: int) -> Iterator[None]:
        """Shows pages at this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        try:
            yield
        finally:
            self.call("Emulation.clearDeviceMetricsOverride")

    def picture(self, path: Path, width: int = 1280, height: int = 860) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        shot = self.call("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))
