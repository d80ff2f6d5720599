"""The server as a process, and Chromium to look at its page with: fixtures for the tests of the page.

A test module takes them by name: ``tab = chromium.tab``. The browser lives as long as the module, because Playwright's
event loop would be in the way of other tests'.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
Page = Any  # playwright's, which is not there without the extra


def until(true: Callable[[], object], seconds: float = 15) -> None:
    """Wait for something to become true. (The page itself cannot be asked to: its policy forbids eval.)"""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.05)


class Server:
    """The server as a process of its own, and a client for it."""

    def __init__(
        self, db: Path, *options: str, under: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.db, self.port, self.token = db, 0, ""
        self.options, self.under, self.environment = options, under, {**os.environ, **(environment or {})}
        self.start()

    def start(self) -> None:
        self.log = self.db.with_suffix(".log")
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "exchangeable", "serve", "--db", str(self.db), "--port", str(self.port)]
            command = [*self.under, *command, *self.options]
            self.process = subprocess.Popen(command, stderr=log, env=self.environment)
        until(lambda: "serves" in self.log.read_text() or self.process.poll() is not None, 60)
        said = re.search(r"serves http://.*:(\d+)", self.log.read_text())
        assert said, self.log.read_text()
        self.port = int(said[1])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(20)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(self, method: str, path: str, body: Any = None, lines: bool = False) -> Any:
        """The reply's JSON; an error status fails the test."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Content-Type": "application/x-ndjson" if lines else "application/json"} if body is not None else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        text = "\n".join(map(json.dumps, body)) if lines else json.dumps(body)
        try:
            connection.request(method, path, None if body is None else text, headers)
            reply = connection.getresponse()
            content = reply.read()
        finally:
            connection.close()
        assert reply.status < 300, (method, path, reply.status, content)
        return json.loads(content) if content else None

    def create(self, name: str, **configuration: Any) -> Any:
        return self.call("PUT", f"/v1/streams/{name}", configuration)

    def send(self, name: str, *x: Any) -> Any:
        """Send these, numbered from where the stream stands; each is an x or a dict with more."""
        first = self.state(name)["next_seq"]
        rows = [{"seq": seq, **(one if isinstance(one, dict) else {"x": one})} for seq, one in enumerate(x, first)]
        return self.call("POST", f"/v1/streams/{name}/observations", rows, lines=True)

    def state(self, name: str) -> Any:
        return self.call("GET", f"/v1/streams/{name}")

    def betting(self, name: str, *p: float) -> None:
        """A stream of p-values, which says exactly what evidence there is."""
        self.create(name, measure={"kind": "p-values"})
        if p:
            self.send(name, *p)


CALM = [round(random.Random(i).uniform(0.001, 1), 3) for i in range(50)]
ODD = [1e-6] * 60


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("page") / "streams.db")
    yield running
    running.stop()


@pytest.fixture
def fresh(browser: Any, tmp_path: Path) -> Iterator[Server]:
    """A server of one's own, with nothing in it."""
    running = Server(tmp_path / "streams.db")
    yield running
    running.stop()


WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
});
"""


class Tab:
    """A page that is watched: errors, violations of the policy and requests to elsewhere fail the test."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.wrong: list[str] = []
        self.expected: list[str] = []  # patterns of what may be said on the console
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(f"error {error}"))
        self.page.on("console", self._heard)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog {dialog.message}"))

    def _heard(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.wrong.append(said.text)

    def close(self) -> None:
        violations = self.page.evaluate("window.violations ?? []")
        hacked = self.page.evaluate("window.hacked ?? null")
        self.context.close()
        unexpected = [text for text in self.wrong if not any(re.search(one, text) for one in self.expected)]
        assert (violations, hacked, unexpected) == ([], None, []), (violations, hacked, unexpected)
        assert [
            url for url in self.asked if not re.match(r"(http://127\.0\.0\.1:\d+/|blob:http://127\.0\.0\.1|data:)", url)
        ] == []


Open = Callable[..., Tab]


@pytest.fixture
def tab(browser: Any) -> Iterator[Open]:
    opened: list[Tab] = []

    def make(**options: Any) -> Tab:
        opened.append(Tab(browser, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def expect(what: Any) -> Any:
    """Playwright's assertions, which wait."""
    from playwright.sync_api import expect as playwrights

    return playwrights(what)


def seen(page: Page, selector: str, text: str | re.Pattern[str], timeout: float = 15_000) -> None:
    """Wait until the element shows the text."""
    expect(page.locator(selector)).to_contain_text(text, timeout=timeout)


def visible(page: Page, selector: str, yes: bool = True, timeout: float = 15_000) -> None:
    expect(page.locator(selector)).to_be_visible(visible=yes, timeout=timeout)


def names(page: Page) -> list[str]:
    found: list[str] = page.locator(".streams .name a").all_text_contents()
    return found


def reach(page: Page, id: str, most: int = 40) -> None:  # noqa: A002
    """Press Tab until the element has the focus, which must be seen."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == id:
            return
    raise AssertionError(f"{id} cannot be reached by Tab")
