"""Take the screenshots of the page for the documentation, with a server, simulated streams and a browser.

``python scripts/page_pictures.py`` writes docs/overview.png and docs/stream.png (``make pictures``).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from exchangeable.client import Client

DOCS = Path(__file__).resolve().parent.parent / "docs"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def send_streams(url: str) -> None:
    """Send simulated latencies, losses and scores to the server; two of the streams change."""
    with Client(url) as client:
        for k, name in enumerate(("checkout-latency", "search-latency", "ranker-loss", "fraud-score", "churn-score")):
            rng = np.random.default_rng(k)
            x = rng.gamma(4.0, 5.0, 4000)
            if name == "checkout-latency":
                x[2400:] *= 1.25
            if name == "fraud-score":
                x[3300:] += 6.0
            client.create(name, {"seed": k})
            with client.stream(name) as stream:
                stream.extend(x.tolist())


def take_screenshots(page: Page, url: str) -> None:
    """Take a screenshot of the overview and of one stream."""
    for path, name in (("/", "overview"), ("/streams/checkout-latency", "stream")):
        page.goto(url + path)
        page.wait_for_selector("canvas")
        page.wait_for_timeout(1500)
        page.screenshot(path=str(DOCS / f"{name}.png"), full_page=True)


def main() -> None:
    """Start a server, send the streams, take the screenshots, and stop the server."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [sys.executable, "-m", "exchangeable", "serve", "--db", f"{folder}/streams.db", "--port", "0"]
        with log.open("w") as output:
            server = subprocess.Popen(command, stderr=output)
        try:
            while not (match := re.search(r"http://\S+", log.read_text())) and server.poll() is None:
                time.sleep(0.1)
            if match is None:
                raise SystemExit(log.read_text())
            send_streams(match[0])
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
                take_screenshots(browser.new_page(viewport={"width": 1200, "height": 800}), match[0])
                browser.close()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
