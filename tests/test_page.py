"""The server's page in a real browser (Chromium, headless), on the real server."""

from __future__ import annotations

import http.client
import json
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import chromium
from chromium import CALM, HOSTILE, ODD, Open, Server, expect, names, reach, seen, until, visible

pytest.importorskip("fastapi", reason="the service's extra is not installed")
browser, fresh, server, tab = chromium.browser, chromium.fresh, chromium.server, chromium.tab  # fixtures

from exchangeable.service import access  # noqa: E402
from exchangeable.service.store import open_database  # noqa: E402

# ------------------------------------------------------------------ the overview


def test_the_overview_shows_alarms_first_and_lives(server: Server, tab: Open) -> None:
    server.betting("ov-a-quiet", *CALM)
    server.betting("ov-b-empty")
    server.betting("ov-z-alarm", *CALM, *ODD)
    page = tab().page
    page.goto(f"{server.url}/?q=ov-")
    seen(page, "#summary", "3 streams found, 1 alarm")
    assert names(page)[0] == "ov-z-alarm"
    quiet = page.locator("tr", has_text="ov-a-quiet")
    expect(quiet.locator(".pill")).to_have_text("Quiet")
    expect(page.locator("tr", has_text="ov-b-empty").locator(".pill")).to_have_text("No data yet")
    page.evaluate("window.same = 1")
    server.send("ov-a-quiet", 0.3, 0.6)
    expect(quiet.locator("td").nth(4)).to_have_text("52")
    painted = page.locator("tr", has_text="ov-a-quiet").locator("canvas").evaluate(PAINTED)
    assert painted > 50
    server.send("ov-a-quiet", *ODD)
    expect(quiet.locator(".pill")).to_have_text("Alarm")
    seen(page, "#announcer", "Alarm in stream ov-a-quiet")
    seen(page, "#summary", "2 alarms")
    assert page.title().startswith("(2)")
    until(lambda: names(page)[2] == "ov-b-empty")
    assert page.evaluate("window.same") == 1


PAINTED = """(canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let painted = 0;
  for (let i = 3; i < data.length; i += 4) if (data[i] > 0) painted++;
  return painted;
}"""


def test_restarted_alarms_and_those_the_fleet_does_not_name_are_explained(fresh: Server, tab: Open) -> None:
    fresh.betting("a-quiet", *CALM)
    fresh.betting("b-weak", *CALM, *[0.01] * 6)
    fresh.create("z-again", measure={"kind": "p-values"}, on_alarm="restart")
    fresh.send("z-again", *CALM, *[0.01] * 6, *CALM)
    page = tab().page
    page.goto(fresh.url)
    seen(page, "#summary", "3 streams, 1 alarm, 1 restarted after an alarm")
    assert names(page) == ["b-weak", "z-again", "a-quiet"]
    row = page.locator("tr", has_text="z-again")
    expect(row.locator(".pill")).to_have_text("Restarted")
    expect(row.locator(".kinds")).to_contain_text("one earlier alarm")
    seen(page, "#fleet-line", "None of 3 streams has changed (false discovery rate 5 %); 2 others have raised an alarm")
    page.locator("#fleet summary").click()
    e = re.compile(r"b-weak: e = \S+ is below (120|240), the level for the weight of stream 2")
    seen(page, "#fleet-found", e)
    fresh.send("a-quiet", *ODD)
    seen(page, "#summary", "2 alarms, 1 restarted")
    fresh.call("POST", "/v1/streams/z-again/reset")  # it was looked at
    seen(page, "#summary", re.compile("2 alarms$"))
    page.locator("#words summary").focus()
    page.keyboard.press("Enter")
    seen(page, "#words", "at most a given share of these is wrong")
    assert "blob/main/docs/" in (page.locator("#words a").first.get_attribute("href") or "")


def test_the_links_of_the_explained_words_lead_to_pages_of_the_documentation() -> None:
    root = Path(__file__).parents[1]
    linked = re.findall(r'"([a-z/-]+\.md)"', (root / "src/exchangeable/service/page/words.js").read_text())
    assert len(linked) > 5
    assert all((root / "docs" / page).is_file() for page in linked)


def test_search_and_pages(server: Server, tab: Open) -> None:
    for i in range(27):
        server.betting(f"pg-{i:02d}")
    page = tab().page
    page.goto(f"{server.url}/?q=pg-&per=25")
    seen(page, "#where", "1 to 25 of 27")
    page.locator("#next").click()
    seen(page, "#where", "26 to 27 of 27")
    assert names(page) == ["pg-25", "pg-26"]
    assert "page=1" in page.url
    page.locator("#q").fill("PG-13")
    until(lambda: len(names(page)) == 1)
    assert names(page) == ["pg-13"]
    assert "q=pg-13" in page.url
    page.reload()
    seen(page, ".streams", "pg-13")
    page.locator("#q").fill(HOSTILE[:60])
    seen(page, ".empty", "No stream has “")
    seen(page, ".empty", "<img src=x")
    page.get_by_role("button", name="Show all streams").click()
    until(lambda: len(names(page)) > 1)
    assert page.locator("#q").input_value() == ""


def test_a_stream_that_appears_or_goes_is_noticed(server: Server, tab: Open) -> None:
    server.betting("come-1", 0.5)
    page = tab().page
    page.goto(f"{server.url}/?q=come-")
    seen(page, "#summary", "1 stream found")
    seen(page, "#live", "Live")
    server.betting("come-2", 0.5)
    seen(page, ".streams", "come-2")
    server.call("DELETE", "/v1/streams/come-1")
    until(lambda: len(names(page)) == 1)
    assert names(page) == ["come-2"]


def test_the_fleet_line_counts_the_changed(fresh: Server, tab: Open) -> None:
    fresh.betting("changed", *ODD)
    for i in range(3):
        fresh.betting(f"calm-{i}", *CALM)
    page = tab().page
    page.goto(fresh.url)
    seen(page, "#fleet-line", "1 of 4 streams has changed (false discovery rate 5 %)")
    page.locator("#fleet summary").click()
    seen(page, "#fleet-found", "changed")
    expect(page.locator("#fleet-found a")).to_have_attribute("href", "/streams/changed")
    seen(page, "#fleet-found", "The j-th stream that ever joined has weight 1/(j (j + 1))")
    seen(page, "#fleet-found", "e is the evidence of a stream in this comparison.")
    for i in range(2):
        fresh.call("DELETE", f"/v1/streams/calm-{i}")
    page.reload()
    seen(page, "#fleet-line", "1 of 2 streams has changed")
    page.locator("#fleet summary").click()
    seen(page, "#fleet-found", "2 deleted streams still count.")


def test_alerts_that_could_not_be_delivered_are_shown(fresh: Server, tab: Open) -> None:
    fresh.betting("a", *ODD)
    with closing(open_database(fresh.db)) as connection:
        connection.execute(
            "INSERT INTO main.outbox (created, receiver, stream, status, fingerprint, alert, attempts, state, error)"
            " VALUES (1.0, 'ops', ?, 'firing', 'f', '{}', 12, 'dead', ?)",
            ("a", HOSTILE),
        )
    watched = tab()
    page = watched.page
    page.goto(fresh.url)
    seen(page, "#alerts", "One alert could not be delivered.")
    seen(page, "#alerts", "12 attempts: <img src=x")
    assert page.locator("#alerts img").count() == 0
    page.locator("#alerts button").click()
    until(lambda: fresh.call("GET", "/v1/alerts")["alerts"][0]["error"] != HOSTILE)  # it is on its way again
    assert any(url.endswith("/retry") for url in watched.asked)


def test_an_empty_server_says_how_to_begin(fresh: Server, tab: Open) -> None:
    page = tab().page
    page.goto(fresh.url)
    seen(page, ".empty", "No streams yet")
    seen(page, ".empty pre", f"curl -X PUT {fresh.url}/v1/streams/my-stream")
    visible(page, "#search", False)
    fresh.betting("first")
    seen(page, ".streams", "first")
    visible(page, "#search")


@pytest.mark.parametrize("streams", [30, pytest.param(100, marks=pytest.mark.soak)])
def test_many_live_streams_stay_smooth(fresh: Server, tab: Open, streams: int) -> None:
    for i in range(streams):
        fresh.betting(f"load-{i:03d}", *CALM)
    watched = tab()
    watched.expected.append("willReadFrequently")  # of the canvas, by this test
    page = watched.page
    page.goto(f"{fresh.url}/?per=100")
    until(lambda: len(names(page)) == streams)
    seen(page, "#live", "Live")
    last = page.locator("canvas").last
    assert last.evaluate(PAINTED) == 0  # what nobody sees is not drawn
    last.scroll_into_view_if_needed()
    until(lambda: last.evaluate(PAINTED) > 50)
    page.evaluate("scrollTo(0, 0)")
    stop = threading.Event()
    rounds: list[float] = []
    feeder = threading.Thread(target=feed, args=(fresh, streams, 51, stop, rounds))
    feeder.start()
    try:
        page.wait_for_timeout(1000)
        smooth = page.evaluate(SMOOTH, 50 * streams)
    finally:
        stop.set()
        feeder.join()
    print(f"{streams} streams, {len(rounds) / rounds[-1]:.1f} rounds a second: {smooth}")
    assert len(rounds) >= streams // 20  # the page was fed all the while
    changed = [int(n) for n in page.locator(".streams td:nth-child(5)").all_text_contents()]
    assert min(changed) > 50 + streams // 20
    assert smooth["median"] < 34
    assert smooth["late"] < 100  # of a hundred frames five may take longer
    assert smooth["busy"] < 0.15  # of the time in tasks of more than 50 ms


def feed(server: Server, streams: int, seq: int, stop: threading.Event, rounds: list[float]) -> None:
    """One observation to each of the streams, twice a second, by ten clients; notes when each round was done."""
    start = time.monotonic()
    clients = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(10)]

    def part(k: int) -> None:
        rng = random.Random(seq * 10 + k)
        for i in range(k, streams, len(clients)):
            body = json.dumps({"seq": seq, "x": rng.random() or 1.0})
            path = f"/v1/streams/load-{i:03d}/observations"
            clients[k].request("POST", path, body, {"Content-Type": "application/json"})
            assert clients[k].getresponse().read().startswith(b'{"accepted":1')

    with ThreadPoolExecutor(len(clients)) as pool:
        while not stop.is_set():
            list(pool.map(part, range(len(clients))))
            seq += 1
            rounds.append(time.monotonic() - start)
            stop.wait(max(0.0, 0.5 * len(rounds) - rounds[-1]))
    for client in clients:
        client.close()


SMOOTH = """async (time) => {
  const gaps = [];
  let busy = 0;
  const observer = new PerformanceObserver((list) => { for (const task of list.getEntries()) busy += task.duration; });
  observer.observe({ entryTypes: ["longtask"] });
  const start = performance.now();
  for (let before = start; before - start < time; ) {
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - before);
    before = now;
  }
  observer.disconnect();
  gaps.sort((a, b) => a - b);
  const at = (share) => gaps[Math.floor(share * (gaps.length - 1))];
  return { frames: gaps.length, median: at(0.5), late: at(0.95), worst: at(1), busy: busy / time };
}"""


# ------------------------------------------------------------------ a stream


def test_the_page_of_a_stream_tells_what_it_knows_and_lives(server: Server, tab: Open) -> None:
    server.betting("st-live", *CALM)
    page = tab().page
    page.goto(f"{server.url}/streams/st-live")
    seen(page, "#verdict", "No evidence against exchangeability so far.")
    seen(page, "#guarantee", "the chance that this alarm is ever raised is at most 0.01")
    seen(page, "#configuration", "p-values")
    seen(page, "#legend", "alarm at 100")
    until(lambda: page.locator("#histogram .bar").count() == 20)
    until(lambda: page.locator("#bet .curve").count() == 1)
    assert page.locator(".plot .even").count() == 2
    seen(page, "#live", "Live")
    page.evaluate("window.same = 1")
    server.send("st-live", *ODD)
    seen(page, "#pill", "Alarm")
    state = server.state("st-live")["state"]
    at, change = state["alarm_at"], state["changepoint"]
    seen(
        page,
        "#verdict",
        f"Alarm: capital reached 100 at example {at}; the change probably started around example {change}.",
    )
    seen(page, "#announcer", "Alarm.")
    seen(page, "#figures", "110")
    seen(page, "#legend", f"change probably started around example {change}")
    expect(page.locator("#histogram svg")).to_have_attribute("aria-label", re.compile("^Histogram of 110 "))
    assert json.loads(page.locator("#json").text_content()) == server.state("st-live")["configuration"]
    assert page.evaluate("window.same") == 1


def test_a_new_test_after_each_alarm(server: Server, tab: Open) -> None:
    server.create("st-again", measure={"kind": "p-values"}, on_alarm="restart")
    server.send("st-again", *CALM, *ODD[:30])
    server.send("st-again", *CALM)
    server.call("PUT", "/v1/streams/st-again/retention", {"observations": 5000})
    alarms = server.state("st-again")["alarms"]
    assert alarms >= 1
    page = tab().page
    page.goto(f"{server.url}/streams/st-again")
    seen(page, "#verdict", f"This test started after example {server.state('st-again')['since']}.")
    seen(page, "#verdict", "There was one alarm before." if alarms == 1 else f"There were {alarms} alarms before.")
    seen(page, "#legend", "alarm at example" if alarms == 1 else "alarms at examples")
    raised = server.state("st-again")["state"]["alarm_at"]
    seen(page, "#figures", f"of the alarm at {raised}, in an earlier test")
    seen(page, "#configuration", "the latest 5,000 observations")


def test_pause_and_resume(server: Server, tab: Open) -> None:
    server.betting("st-pause", *CALM)
    page = tab().page
    page.goto(f"{server.url}/streams/st-pause")
    seen(page, "#live", "Live")
    seen(page, "#figures", "50")
    page.locator("#pause").click()
    server.send("st-pause", 0.4, 0.6)
    seen(page, "#live", "Paused, 2 new")
    assert page.locator("#figures dd").nth(2).text_content().startswith("50")
    page.locator("#pause").click()
    seen(page, "#figures", "52")
    seen(page, "#live", "Live")


def test_zoom_by_mouse_keyboard_and_buttons(server: Server, tab: Open) -> None:
    rng = random.Random(5)
    server.betting("st-zoom", *(rng.random() or 1.0 for _ in range(4000)))
    watched = tab()
    page = watched.page
    page.goto(f"{server.url}/streams/st-zoom")
    chart = page.locator("#capital")
    whole = re.compile("from example 1 to 4,000")
    expect(chart).to_have_attribute("aria-label", whole)
    box = page.locator("#capital .u-over").bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 60, steps=5)
    page.mouse.up()
    expect(chart).to_have_attribute("aria-label", re.compile(r"from example (99\d|1,00\d) to (1,99\d|2,00\d)"))
    assert any(re.search(r"history\?from=(99\d|100\d)&to=(199\d|200\d)&", url) for url in watched.asked)
    server.send("st-zoom", 0.5)  # what is zoomed into stays
    seen(page, "#figures", "4,001")
    expect(chart).to_have_attribute("aria-label", re.compile(r"from example (99\d|1,00\d) "))
    page.mouse.dblclick(box["x"] + 100, box["y"] + 50)
    expect(chart).to_have_attribute("aria-label", re.compile("from example 1 to 4,001"))
    page.locator("#zoom-last").click()
    expect(chart).to_have_attribute("aria-label", re.compile("from example 3,002 to 4,001"))
    chart.focus()
    page.keyboard.press("+")
    expect(chart).to_have_attribute("aria-label", re.compile("from example 3,502 to 4,001"))
    page.keyboard.press("ArrowLeft")
    expect(chart).to_have_attribute("aria-label", re.compile("from example 3,377 to 3,876"))
    page.keyboard.press("-")
    expect(chart).to_have_attribute(
        "aria-label", re.compile(r"from example 3,00\d to 4,001|from example 3,12\d to 4,001")
    )
    page.keyboard.press("0")
    expect(chart).to_have_attribute("aria-label", re.compile("from example 1 to 4,001"))


def test_a_stream_over_time_with_its_values(server: Server, tab: Open) -> None:
    server.create("clocked", measure={"kind": "nearest-distance"}, seed=1)
    start = 1_760_000_000
    rows = [{"x": [k % 7 / 7, k % 5], "time": start + 60 * k} for k in range(300)]
    server.send("clocked", *rows)
    page = tab().page
    page.goto(f"{server.url}/streams/clocked")
    chart = page.locator("#values-chart")
    expect(chart).to_have_attribute("aria-label", "Values of examples 1 to 300: from 0 to 0.857.")
    page.locator("#values-column").fill("2")
    page.locator("#values-column").press("Enter")
    expect(chart).to_have_attribute("aria-label", "Values of examples 1 to 300: from 0 to 4.")
    page.get_by_label("Time", exact=True).check()
    seen(page, "#axis-line", "Horizontal axis: the time of each observation, as it was sent")
    page.locator("#values-chart .u-over").hover()
    seen(page, "#values-readout", re.compile(r"Example 1(49|50|51): \d, 9 Oct 2025, "))
    page.locator("#capital .u-over").hover()
    box = page.locator("#capital .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    page.mouse.up()
    expect(page.locator("#capital")).to_have_attribute("aria-label", re.compile(r"from example 15[01] to (299|300)"))
    page.locator("#zoom-all").click()
    server.send("clocked", {"x": [0.5, 9]})  # without a time: from now on that of arrival is known for all
    seen(page, "#axis-line", "Horizontal axis: the time of arrival, which is stored to the second")
    expect(chart).to_have_attribute("aria-label", "Values of examples 1 to 301: from 0 to 9.")


def test_the_readout_follows_the_pointer(server: Server, tab: Open) -> None:
    server.betting("st-read", *CALM)
    page = tab().page
    page.goto(f"{server.url}/streams/st-read")
    seen(page, "#legend", "capital")
    page.locator("#capital .u-over").hover()
    seen(page, "#readout", re.compile(r"Example 2[456]: capital [\d.]+, p = 0\.\d{3}"))


def test_downloads(server: Server, tab: Open, tmp_path: Path) -> None:
    server.betting("st-file", *CALM)
    page = tab().page
    page.goto(f"{server.url}/streams/st-file")
    seen(page, "#figures", "50")
    with page.expect_download() as coming:
        page.locator("#download").click()
    assert coming.value.suggested_filename == "st-file-1-50.csv"
    coming.value.save_as(tmp_path / "history.csv")
    head, *lines = (tmp_path / "history.csv").read_text().splitlines()
    history = server.call("GET", "/v1/streams/st-file/history?max_points=10000")
    assert head == "n,log10_martingale,p"
    assert [tuple(map(float, line.split(","))) for line in lines] == list(
        zip(history["n"], history["log10"], history["p"], strict=True)
    )
    with page.expect_download() as coming:
        page.locator("#export").click()
    coming.value.save_as(tmp_path / "state")
    assert coming.value.suggested_filename == "st-file.exchangeable"
    assert (tmp_path / "state").stat().st_size > 100


def test_reset_and_delete_ask_first(server: Server, tab: Open) -> None:
    server.betting("st-end", *CALM, *ODD)
    first, second = tab(), tab()
    first.expected.append("404")  # a request may be on its way when the stream is deleted
    second.expected.append("404")
    page, other = first.page, second.page
    page.goto(f"{server.url}/streams/st-end")
    seen(page, "#pill", "Alarm")
    page.locator("#reset").click()
    page.keyboard.press("Escape")
    assert server.state("st-end")["resets"] == 0
    page.locator("#reset").click()
    page.get_by_role("button", name="Reset", exact=True).click()
    seen(page, "#pill", "Quiet")
    seen(page, "#verdict", "This test started after example 110.")
    seen(page, "#legend", "reset after example 110")
    assert server.state("st-end")["resets"] == 1
    other.goto(f"{server.url}/streams/st-end")
    seen(other, "#live", "Live")
    page.locator("#delete").click()
    assert page.locator("#delete-yes").is_disabled()
    page.locator("#delete-name").fill("st-en")
    assert page.locator("#delete-yes").is_disabled()
    page.locator("#delete-name").fill("st-end")
    page.locator("#delete-yes").click()
    page.wait_for_url(f"{server.url}/")
    seen(other, "#verdict", "This stream was deleted.")
    assert "st-end" not in [one["name"] for one in server.call("GET", "/v1/streams?q=st-end")["streams"]]


def test_a_stream_that_is_not_there(server: Server, tab: Open) -> None:
    watched = tab()
    watched.expected.append("404")
    page = watched.page
    page.goto(f"{server.url}/streams/nobody")
    seen(page, ".trouble", "Not found")
    page.get_by_role("link", name="Create it").click()
    expect(page.locator("#name")).to_have_value("nobody")


def test_observations_left_out_are_shown_by_label(server: Server, tab: Open) -> None:
    server.create("late", measure={"kind": "nearest-neighbour"}, labels={"wait": 60})
    rows = [{"x": [float(k)], "id": f"i{k}", "time": 10 * k} for k in range(12)]
    server.send("late", *rows)
    server.call("POST", "/v1/streams/late/labels", {"id": "i0", "y": "fraud", "time": 200})
    server.call("POST", "/v1/streams/late/labels", {"id": "i1", "y": "none", "time": 20})
    page = tab().page
    page.goto(f"{server.url}/streams/late")
    seen(
        page,
        "#waiting-line",
        "No observation is waiting; at most 10,000 may wait. 12 left out, because the label did not arrive",
    )
    seen(page, "#waiting-line", "(labels that arrived later: fraud: 1, none: 1). 1 of these had a label in time")
    seen(page, "#guarantee", "This holds if the delay of a label depends on its own example only")
    seen(page, "#configuration", "observations wait 60 s by the client's clock, at most 10,000 at once")
    server.send("late", {"x": [0.0], "id": "more", "time": 250})
    server.call("POST", "/v1/streams/late/labels", {"id": "more", "never": True})
    seen(page, "#waiting-line", "1 left out, because the label will never arrive.")


# ------------------------------------------------------------------ text that wants to be more


def test_hostile_text_stays_text(server: Server, tab: Open) -> None:
    server.create("hostile", measure={"kind": "nearest-neighbour"}, labels={"most": 5})
    server.send("hostile", {"x": [0.0], "y": HOSTILE}, {"x": [1.0], "id": HOSTILE}, {"x": [2.0], "id": "b"})
    watched = tab()
    page = watched.page
    page.goto(f"{server.url}/streams/hostile")
    seen(page, "#waiting", "<img src=x onerror")
    seen(page, "#waiting-line", "2 observations are waiting for their labels; at most 5 may wait.")
    assert page.locator("main img, main script").count() == 0
    server.call("POST", "/v1/streams/hostile/labels", {"id": HOSTILE, "y": "<b>"})
    seen(page, "#waiting-line", "One observation is waiting for its label")
    watched.expected.append("404|422")
    page.goto(f"{server.url}/streams/%3Cimg%20src=x%20onerror=%22window.hacked=1%22%3E")
    seen(page, "#name", "<img src=x onerror")
    assert page.locator("main img").count() == 0


# ------------------------------------------------------------------ every page


def test_from_the_overview_into_a_stream_by_keyboard(server: Server, tab: Open) -> None:
    server.betting("key-stream", *CALM)
    page = tab().page
    page.goto(server.url)
    seen(page, ".streams", "key-stream")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("key-stream")
    until(lambda: len(names(page)) == 1)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "key-stream"
    assert page.evaluate("getComputedStyle(document.activeElement, '::after').outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/streams/key-stream")
    reach(page, "pause")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    reach(page, "capital")
    page.keyboard.press("+")
    expect(page.locator("#capital")).to_have_attribute("aria-label", re.compile("from example 26 to 50"))
    reach(page, "reset")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Cancel").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#reset")).to_be_focused()


@pytest.fixture(scope="module")
def sample(server: Server) -> list[tuple[str, str]]:
    """Pages with something on them, and what shows that they are ready."""
    server.betting("sample", *CALM, *ODD)
    server.create("a-rather-long-name-of-a-stream.with_every.kind-of-letter-0123456")
    return [("/", ".streams .name a"), ("/streams/sample", "#bet .curve"), ("/new", "#create"), ("/docs", ".opblock")]


@pytest.mark.parametrize("which", range(4), ids=["overview", "stream", "new", "docs"])
def test_on_a_phone_nothing_needs_to_be_moved_sideways(
    server: Server, tab: Open, sample: list[tuple[str, str]], which: int
) -> None:
    page = tab(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, device_scale_factor=2).page
    path, ready = sample[which]
    page.goto(server.url + path)
    page.locator(ready).first.wait_for()
    for details in page.locator("#content details").all():
        details.evaluate("(node) => (node.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("innerWidth") == 390  # not zoomed out either
    page.set_viewport_size({"width": 800, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= 800


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", range(3), ids=["overview", "stream", "new"])
def test_text_has_contrast_in_light_and_dark(
    server: Server, tab: Open, sample: list[tuple[str, str]], which: int, scheme: str
) -> None:
    page = tab(color_scheme=scheme).page
    path, ready = sample[which]
    page.goto(server.url + path)
    page.locator(ready).first.wait_for()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 384) == (scheme == "light")
    texts = page.evaluate(CONTRAST)
    assert len(texts) > 20
    assert [one for one in texts if one["ratio"] < 4.5] == []


# the contrast of each piece of text with the nearest ground that is not transparent (WCAG 2.2, 1.4.3)
CONTRAST = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const shares = parts(colour).map((value) => value / 255);
    const [r, g, b] = shares.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (parts(colour).length === 3 || parts(colour)[3] === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const made = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const { width, height } = node.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || width < 2 || height < 2) continue;
    if (node.closest(":disabled, option, noscript, .skip")) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(node.closest("svg") ? style.fill : style.color), light(ground(node))].sort((x, y) => y - x);
    made.push({ text: walker.currentNode.data.trim().slice(0, 40), ratio: (a + 0.05) / (b + 0.05) });
  }
  return made;
}"""


def test_charts_follow_a_change_between_light_and_dark(server: Server, tab: Open, sample: Any) -> None:
    page = tab(color_scheme="light").page
    page.goto(f"{server.url}/streams/sample")
    seen(page, "#legend", "alarm at 100")
    before = page.locator("#capital canvas").evaluate("(canvas) => canvas.toDataURL()")
    page.emulate_media(color_scheme="dark")
    until(lambda: page.locator("#capital canvas").evaluate("(canvas) => canvas.toDataURL()") != before)


def test_nothing_moves_for_who_wants_no_motion(server: Server, tab: Open, sample: Any) -> None:
    for motion, moving in [("no-preference", True), ("reduce", False)]:
        page = tab(reduced_motion=motion).page
        page.route("**/v1/streams?*", lambda route: None)  # never answered: the page stays as it is while it loads
        page.goto(server.url)
        page.locator(".skeleton").first.wait_for()
        assert (page.evaluate("document.getAnimations().length") > 0) == moving
        page.unroute_all(behavior="ignoreErrors")


def test_every_field_and_button_has_a_name(server: Server, tab: Open, sample: list[tuple[str, str]]) -> None:
    for path, ready in sample[:3]:
        page = tab().page
        page.goto(server.url + path)
        page.locator(ready).first.wait_for()
        nameless = page.evaluate(NAMELESS)
        assert nameless == []
        assert page.locator("h1").count() == 1


NAMELESS = """() => [...document.querySelectorAll("main input, main select, main button, main a")]
  .filter((node) => !node.labels?.length && !node.textContent.trim() && !node.ariaLabel)
  .map((node) => node.outerHTML)"""


def test_the_api_is_described_without_help_from_elsewhere(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/docs")
    page.locator(".opblock-summary-control", has_text="/v1/streams/{name}/observations").click()
    visible(page, ".opblock-body >> nth=0")
    assert page.locator(".opblock").count() > 10


# ------------------------------------------------------------------ trouble


@pytest.mark.parametrize(
    "path",
    [pytest.param("/?q=down-", id="overview"), pytest.param("/streams/down-1", id="stream", marks=pytest.mark.soak)],
)
def test_when_the_server_goes_away_the_page_says_so_and_comes_back(fresh: Server, tab: Open, path: str) -> None:
    fresh.betting("down-1", *CALM)
    watched = tab()
    watched.expected.append("ERR_|Failed to load|net::|fetch")
    page = watched.page
    page.goto(fresh.url + path)
    seen(page, "#live", "Live")
    visible(page, "#connection", False)
    fresh.stop()
    visible(page, "#connection")
    seen(page, "#connection", "Disconnected. This page may be out of date. Retrying")
    seen(page, "#live", "Reconnecting")
    seen(page, "#content", "50")  # what was known stays
    fresh.start()
    page.locator("#connection button").click(force=True)
    visible(page, "#connection", False, timeout=40_000)
    seen(page, "#live", "Live")
    fresh.send("down-1", 0.5)
    seen(page, "#content", "51")


def test_a_list_that_is_older_than_an_event_does_not_undo_it(fresh: Server, tab: Open) -> None:
    fresh.betting("late-1", *CALM)
    page = tab().page
    page.goto(f"{fresh.url}/?q=late-")
    seen(page, "#live", "Live")
    seen(page, "#content", "50")
    held: list[Any] = []
    page.route("**/v1/streams?*", lambda route: held.append((route, route.fetch())))  # the list of then
    fresh.betting("late-2", 0.5, 0.5)
    for _ in range(100):
        if held:
            break
        page.wait_for_timeout(50)
    route, reply = held[0]
    fresh.send("late-1", 0.5)
    seen(page, "#content", "51")
    route.fulfill(response=reply)
    seen(page, "#content", "late-2")
    seen(page, "#content", "51")


def test_what_happened_meanwhile_is_caught_up_with(fresh: Server, tab: Open) -> None:
    fresh.betting("away", *CALM, *ODD)
    watched = tab()
    watched.expected.append("ERR_|Failed to load|net::|fetch")
    page = watched.page
    page.goto(f"{fresh.url}/streams/away")
    seen(page, "#pill", "Alarm")
    seen(page, "#live", "Live")
    fresh.stop()
    seen(page, "#live", "Reconnecting")
    watched.context.set_offline(True)
    fresh.start()
    fresh.call("POST", "/v1/streams/away/reset")  # no step comes with it
    watched.context.set_offline(False)
    seen(page, "#live", "Live", timeout=40_000)
    seen(page, "#pill", "Quiet")


@pytest.mark.parametrize(
    ("status", "body", "title"),
    [
        (500, "<h1>oops</h1>", "The server had an error"),
        (503, '{"error": "storage", "message": "the disk does not answer"}', "The server is not ready"),
        (507, '{"error": "storage-full", "message": "no room"}', "The server's disk is full"),
    ],
)
def test_an_error_has_a_panel_and_a_way_on(
    server: Server, tab: Open, sample: Any, status: int, body: str, title: str
) -> None:
    watched = tab()
    watched.expected.append(str(status))
    page = watched.page
    page.route("**/v1/streams?*", lambda route: route.fulfill(status=status, body=body))
    page.goto(server.url)
    seen(page, ".trouble h2", title)
    page.unroute("**/v1/streams?*")
    page.get_by_role("button", name="Try again").click()
    seen(page, ".streams", "sample")


def test_a_token_is_asked_for_kept_in_the_tab_and_forgotten(fresh: Server, tab: Open) -> None:
    fresh.betting("secret", *CALM)
    with closing(open_database(fresh.db)) as connection:
        fresh.token = access.create(connection, ["read"])
    watched = tab()
    watched.expected.append("401|403")
    page = watched.page
    page.goto(f"{fresh.url}/streams/secret")
    seen(page, "#sign-in", "This server requires a token.")
    assert page.evaluate("document.activeElement.id") == "token"
    visible(page, "#content", False)
    page.keyboard.type("ex_wrong_token")
    page.keyboard.press("Enter")
    seen(page, "#token-problem", "This token is not valid.")
    page.locator("#token").fill(fresh.token)
    page.keyboard.press("Enter")
    seen(page, "#verdict", "No evidence against exchangeability so far.")
    seen(page, "#live", "Live")
    assert page.evaluate("localStorage.length") == 0
    assert fresh.token not in page.content()
    page.locator("#reset").click()
    page.get_by_role("button", name="Reset", exact=True).click()
    seen(page, ".toast.problem", "admin")  # a token to read with does not reset
    page.goto(f"{fresh.url}/docs")
    page.locator(".opblock").first.wait_for()
    page.locator("#sign-out").click()
    page.goto(fresh.url)
    visible(page, "#sign-in")
    assert page.evaluate("sessionStorage.length") == 0


# ------------------------------------------------------------------ small parts


def test_numbers_in_words(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new")
    made = page.evaluate("""async () => {
      const { capital, ago, probability, power } = await import("/page/format.js");
      const { ticks, tickLabel } = await import("/page/charts.js");
      return {
        capital: [0, 2, -0.301, 5.30103, 71.2788, -12, null, 4.99999, 308.5].map(capital),
        ago: [0, 59, 61, 7200, 200000].map((s) => ago(new Date(0).toISOString(), s * 1000)),
        p: [1, 0.0345, 0.00002, null].map(probability),
        ticks: [[-0.2, 2.2], [-5, 31], [-0.4, 0.5]].map(([low, high]) => ticks(low, high, 8).map(tickLabel)),
        power: [0, 3, -12].map(power),
      };
    }""")
    assert made["capital"] == [
        "1",
        "100",
        "0.5",
        "2.0 × 10⁵",
        "1.9 × 10⁷¹",
        "1.0 × 10⁻¹²",
        "0",
        "1.0 × 10⁵",
        "3.2 × 10³⁰⁸",
    ]
    assert made["ago"] == ["just now", "59 s ago", "1 min ago", "2 h ago", "2 d ago"]
    assert made["p"] == ["1.000", "0.035", "2.0 × 10⁻⁵", "–"]
    assert made["ticks"][0] == ["1", "10", "100"]
    assert made["ticks"][1] == ["10⁻⁵", "1", "10⁵", "10¹⁰", "10¹⁵", "10²⁰", "10²⁵", "10³⁰"]
    assert made["ticks"][2] == ["0.5", "1", "2"]
    assert made["power"] == ["1", "10³", "10⁻¹²"]


def test_events_are_read_however_the_network_cuts_them(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new")
    text = ': hello\r\n\r\nevent: steps\r\nid: 7\r\ndata: {"a":\r\ndata: "é\\n"}\r\n\r\n'
    text += "event: gone\ndata: {}\n\nid: 9\n\ndata:1\n\n"
    made = page.evaluate(
        """async (text) => {
      const { Parser } = await import("/page/sse.js");
      const cut = (size) => {
        const parser = new Parser();
        const events = [];
        for (let i = 0; i < text.length; i += size) events.push(...parser.feed(text.slice(i, i + size)));
        return events;
      };
      return [1, 2, 3, 5, 1000].map(cut);
    }""",
        text,
    )
    expected = [
        {"type": "steps", "id": "7", "data": {"a": "é\n"}},
        {"type": "gone", "id": None, "data": {}},
        {"type": "message", "id": None, "data": 1},
    ]
    assert made == [expected] * 5


def test_thinning_keeps_lows_and_highs(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new")
    n, low, high, last = page.evaluate("""async () => {
      const { thinned } = await import("/page/spark.js");
      const log10 = Array.from({ length: 1000 }, (_, i) => Math.sin(i / 7));
      [log10[333], log10[777]] = [9, -9];
      const [n, values] = thinned(log10.map((_, i) => i), log10, 100);
      return [n, n.includes(777) && values[n.indexOf(777)] === Math.min(...log10), n.includes(333), n.at(-1)];
    }""")
    assert len(n) <= 101
    assert n == sorted(n)
    assert (low, high, last) == (True, True, 999)
