"""The page that makes a stream, and the CSV that is dropped into it, in a real browser on the real server."""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path

import pytest

import chromium
import exchangeable as ex
from chromium import CALM, HOSTILE, Open, Server, expect, reach, seen, visible

pytest.importorskip("fastapi", reason="the service's extra is not installed")
browser, server, tab = chromium.browser, chromium.server, chromium.tab  # fixtures


def test_the_form_makes_the_configuration_it_shows(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new")
    page.get_by_label("Name", exact=True).fill("Form Stream")
    seen(page, "#name-problem", "must start with a lowercase letter")
    page.get_by_label("Name", exact=True).fill("form stream")
    seen(page, "#name-problem", "A name must not contain spaces.")
    page.locator("#create").click()
    assert page.evaluate("document.activeElement.id") == "name"
    page.get_by_label("Name", exact=True).fill("form-stream")
    expect(page.locator("#name-problem")).to_be_empty()
    page.locator("#measure").select_option("nearest-neighbour")
    page.locator("#cap").fill("500")
    page.locator("#alarm").select_option("cusum")
    visible(page, "#alpha", False)
    page.locator("#period").fill("0.5")
    page.locator("#create").click()
    seen(page, "#form-problem", "The period must be greater than 1.")
    page.locator("#period").fill("5000")
    page.get_by_text("Start a new test at once").click()
    page.locator("#form summary").click()
    page.locator("#bet").select_option("sentinel")
    page.locator("#seed").fill("7")
    visible(page, "#clock", False)
    page.locator("#wait").fill("-1")
    page.locator("#create").click()
    seen(page, "#form-problem", "The maximum wait must be greater than 0, or empty.")
    page.locator("#wait").fill("3600")
    page.locator("#clock").select_option("server")
    page.locator("#most").fill("200")
    shown = json.loads(page.locator("#preview").text_content())
    seen(page, "#curl", f"curl -X PUT {server.url}/v1/streams/form-stream")
    page.locator("#create").click()
    seen(page, "#created", "Created.")
    assert server.state("form-stream")["configuration"] == shown
    assert shown["alarm"] == {"kind": "cusum", "period": 5000}
    assert shown["labels"] == {"wait": 3600, "clock": "server", "most": 200}
    page.get_by_role("link", name="See form-stream").click()
    seen(page, "#verdict", "No observations yet.")


def test_a_rate_has_a_direction_and_no_bet(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new?name=error-rate")
    page.locator("#form summary").click()
    visible(page, "#bet")
    visible(page, "#direction", False)
    page.locator("#bet").select_option("sentinel")
    page.locator("#alarm").select_option("cusum")
    page.locator("#measure").select_option("rate")
    assert page.locator("#alarm").input_value() == "shiryaev-roberts"
    assert page.locator("#alarm option[value=cusum]").is_disabled()
    visible(page, "#bet", False)
    page.locator("#direction").select_option("up")
    page.locator("#alarm").select_option("shiryaev-roberts")
    page.locator("#period").fill("500")
    page.locator("#drop").evaluate(DROP, ["bad.csv", "error\n0\n1\n2\n"])
    page.locator("#send").click()
    seen(page, "#send-problem", "Row 4, column “error”: an event must be 0 or 1, got 2.")
    random.seed(4)
    events = [int(random.random() < 0.02) for _ in range(500)] + [int(random.random() < 0.4) for _ in range(80)]
    page.locator("#drop").evaluate(DROP, ["errors.csv", "\n".join(["error", *map(str, events)]) + "\n"])
    page.locator("#send").click()
    seen(page, "#progress-line", "Alarm", timeout=30_000)
    configuration = server.state("error-rate")["configuration"]
    assert configuration["measure"] == {"kind": "rate", "values": [0, 1], "direction": "up"}
    page.goto(f"{server.url}/streams/error-rate")
    seen(page, "#verdict", re.compile(r"The rate changed from [1-3](\.\d+)? % to [3-9]\d(\.\d)? %\."))
    seen(page, "#figures", "Rate so far")
    visible(page, "#betting", False)
    seen(page, "#send", '{"seq": 581, "x": 1}')
    seen(page, "#configuration", "rate, values 0 and 1, direction up")


def test_a_risk_has_a_limit_and_a_band(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new?name=error-risk")
    visible(page, "#limit", False)
    page.locator("#measure").select_option("risk")
    page.locator("#limit").fill("1.5")
    page.locator("#create").click()
    seen(page, "#form-problem", "The limit must lie between the bounds.")
    page.locator("#limit").fill("0.2")
    page.locator("#drop").evaluate(DROP, ["bad.csv", "loss\n0\n1\n2\n"])
    page.locator("#send").click()
    seen(page, "#send-problem", "Row 4, column “loss”: a loss must be from 0 to 1, got 2.")
    losses = [k % 10 == 0 for k in range(300)] + [k % 10 < 6 for k in range(100)]
    page.locator("#drop").evaluate(DROP, ["losses.csv", "\n".join(["loss", *(str(int(x)) for x in losses)]) + "\n"])
    page.locator("#send").click()
    seen(page, "#progress-line", "Alarm", timeout=30_000)
    measure = server.state("error-risk")["configuration"]["measure"]
    assert measure == {"kind": "risk", "limit": 0.2, "bounds": [0.0, 1.0]}
    page.goto(f"{server.url}/streams/error-risk")
    seen(page, "#verdict", "the rise probably started")
    change = server.state("error-risk")["state"]["risk"]["change"]
    assert change["before"] < 0.2 < change["after"]
    seen(
        page,
        "#verdict",
        re.compile(r"The mean loss from there to the alarm was 0\.\d+, and 0\.\d+ before; the limit is 0\.2\."),
    )
    seen(page, "#figures", "Mean loss")
    visible(page, "#betting", False)
    title = page.locator("#loss svg").get_attribute("aria-label") or ""
    assert title.startswith("The mean loss after example 400 is 0.225, its interval from 0.1")
    server.send("error-risk", *[1] * 20)
    expect(page.locator("#loss svg")).to_have_attribute("aria-label", re.compile("after example 420 is 0.262"))
    seen(page, "#capital-hint", "While the risk stays at or below the limit it rarely grows")
    server.create("restarts", measure=measure, on_alarm="restart")
    server.send("restarts", *[int(x) for x in losses])
    page.goto(f"{server.url}/streams/restarts")
    expect(page.locator("#loss path.curve")).not_to_have_count(1)  # no line from one test to the next


def test_the_columns_of_a_table_are_ranked(server: Server, tab: Open) -> None:
    random.seed(2)
    path = "/v1/streams/rows"
    server.create("rows", measure={"kind": "table", "bins": 16}, seed=1)
    page = tab().page
    page.goto(f"{server.url}/streams/rows")
    seen(page, "#verdict", "The stream has no reference yet: send it first.")
    seen(page, "#pill", "No reference yet")
    seen(page, "#send", "/v1/streams/rows/reference")
    rows = [{"size": random.gauss(0, 1), "<b>colour": random.choice("ab")} for _ in range(500)]
    server.call("PUT", f"{path}/reference", rows[:300], lines=True)
    lines = [{"seq": seq, "row": row} for seq, row in enumerate(rows[300:], 1)]
    lines += [{"seq": seq, "row": {"size": random.gauss(3, 1), "<b>colour": "a"}} for seq in range(201, 301)]
    server.call("POST", f"{path}/observations", lines, lines=True)
    page.reload()
    seen(page, "#verdict", re.compile("Changed: size"))
    seen(page, "#columns-line", re.compile(r"Enough evidence of a change on its own: size \(since about row \d+\)"))
    first = page.locator("#columns-rows tr").first
    expect(first.locator("th span")).to_have_text("size")
    assert first.locator("svg").count() == 2
    assert (first.locator("svg").nth(1).get_attribute("aria-label") or "").startswith("Mean of size: now ")
    seen(page, "#columns-rows", "<b>colour")
    seen(page, "#columns-rows", re.compile(r"a: \d+% \(reference \d+%\)"))
    expect(page.locator("#figures div", has_text="Changed")).to_contain_text(re.compile(r"size, .+ and \d+ more"))
    visible(page, "#betting", False)
    seen(page, "#send", '"row": {')


def test_why_no_column_can_be_tested(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new?name=unread")
    page.locator("#drop").evaluate(DROP, ["thousands.csv", 'v\n"2,345"\n"1,234"\n'])
    seen(page, "#csv-rising", "“2,345” in the column “v” is not read as a number: write decimals with a point")
    page.locator("#send").click()
    seen(page, "#send-problem", "Choose at least one feature column. “2,345” in the column “v” is not read as a number")
    page.locator("#drop").evaluate(DROP, ["words.csv", "v\nred\nblue\n"])
    page.locator("#send").click()
    seen(page, "#send-problem", "Choose at least one feature column. No column holds numbers.")


def test_a_name_that_is_taken(server: Server, tab: Open) -> None:
    server.betting("taken", 0.5)
    watched = tab()
    watched.expected.append("409")
    page = watched.page
    page.goto(f"{server.url}/new?name=taken")
    seen(page, "#name-hint", "A stream with this name exists.")
    page.locator("#create").click()
    seen(page, "#form-problem", "taken")
    visible(page, "#created", False)
    page.locator("#measure").select_option("p-values")
    page.locator("#create").click()
    seen(page, "#created", "The stream exists already, with 1 observation.")


def test_rows_join_an_existing_stream_only_if_told_to(server: Server, tab: Open) -> None:
    server.betting("joined", *CALM, *[1e-6] * 20)
    page = tab().page
    page.goto(f"{server.url}/new?name=joined")
    page.locator("#measure").select_option("p-values")
    rows = "".join(f"{i + 1},{p},{i % 7}\n" for i, p in enumerate(CALM[:20]))
    page.locator("#drop").evaluate(DROP, ["p.csv", f"index,p,day\n{rows}"])
    seen(page, "#csv-rising", "Not chosen, because the numbers only rise, as an index or a time does: “index”.")
    assert page.locator("#csv-x input:checked").evaluate_all("(all) => all.map((one) => one.value)") == ["1"]
    page.locator("#send").click()
    seen(page, "#taken", "A stream named joined exists. Append these rows to it, or choose another name?")
    page.get_by_role("button", name="Choose another name").click()
    assert page.evaluate("document.activeElement.id") == "name"
    assert server.state("joined")["next_seq"] == 71
    page.locator("#send").click()
    page.get_by_role("button", name="Append the rows").click()
    seen(page, "#progress-line", "All 20 rows sent. They raised no alarm: the alarm at example")
    assert server.state("joined")["next_seq"] == 91


def test_reference_scores_are_uploaded(server: Server, tab: Open, tmp_path: Path) -> None:
    page = tab().page
    page.goto(f"{server.url}/new?name=with-reference")
    page.locator("#measure").select_option("frozen")
    page.locator("#create").click()
    seen(page, "#form-problem", "Choose a file with at least two reference scores.")
    (tmp_path / "bad.csv").write_text("score\n1.5\nnan\n")
    page.locator("#reference").set_input_files(tmp_path / "bad.csv")
    seen(page, "#reference-line", "Row 3, column “score”: “nan” is not a finite number.")
    (tmp_path / "good.csv").write_text("id,score\na,1.5\nb,2.5\nc,0.5\n")
    page.locator("#reference").set_input_files(tmp_path / "good.csv")
    seen(page, "#reference-line", "3 scores from good.csv.")
    page.locator("#create").click()
    seen(page, "#created", "Created.")
    assert server.state("with-reference")["configuration"]["measure"]["reference"] == [1.5, 2.5, 0.5]


DROP = """(node, [name, text]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([text], name, { type: "text/csv" }));
  const how = { dataTransfer: carried, bubbles: true, cancelable: true };
  for (const kind of ["dragover", "drop"]) node.dispatchEvent(new DragEvent(kind, how));
}"""


def test_a_csv_dropped_in_becomes_a_stream(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new")
    rng = random.Random(2)
    values = [rng.gauss(0, 1) for _ in range(1500)] + [rng.gauss(4, 1) for _ in range(1000)]
    text = "\ufefftime;latency\r\n" + "".join(f"t{i};{x!r}\r\n" for i, x in enumerate(values))
    page.locator("#drop").evaluate(DROP, ["Check-out Latency.csv", text])
    seen(page, "#csv-line", "Check-out Latency.csv: 2,500 rows, 2 columns.")
    expect(page.locator("#name")).to_have_value("check-out-latency")
    assert page.locator("#csv-header").is_checked()
    assert page.locator("#csv-x input:checked").evaluate_all("(all) => all.map((one) => one.value)") == ["1"]
    page.locator("#send").click()
    seen(page, "#progress-line", "All 2,500 rows sent. Alarm: capital reached 100 at example", timeout=60_000)
    state = server.state("check-out-latency")
    assert state["next_seq"] == 2501
    assert 1500 < state["state"]["alarm_at"] < 1700
    page.get_by_role("link", name="See the stream").click()
    seen(page, "#pill", "Alarm")


def test_a_csv_that_does_not_fit_gets_one_clear_sentence(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new?name=csv-bad")
    for text, problem in [
        ("", "bad.csv is empty."),
        ("a,b\n1,2\n3\n", "Row 3 has 1 field, the first row has 2 fields."),
        ('a,b\n1,"2\n', "A quotation mark in the file is never closed."),
        ("a\u0000b", "bad.csv is not a text file."),
        ("1,5\n2,5\n3,5\n", "Is “1,5” one number with a decimal comma, or two columns?"),
        ("x\n1,234\n2,345\n", "Is “1,234” one number with a decimal comma, or 1234 with a comma for thousands?"),
        ("a,b\n1,5,2,5\n", "Row 2 has 4 fields, the first row has 2 fields."),
    ]:
        page.locator("#drop").evaluate(DROP, ["bad.csv", text])
        seen(page, "#csv-problem", problem)
        visible(page, "#csv-body", False)
    for text, problem in [
        ("x\n1\n\nNaN\n", "Row 4, column “x”: “NaN” is not a finite number."),
        ("x\n1\nInfinity\n", "Row 3, column “x”: “Infinity” is not a finite number."),
        ("x,n\n1,2\n,3\n", "Row 3, column “x”: a number is missing."),
        (
            "x;n\n1.5;2\n1,5;3\n",
            "Row 3, column “x”: “1,5” is not a finite number. The decimals of this file are written with a point.",
        ),
        ("1\n2\n0x10\n", "Row 3, column “column 1”: “0x10” is not a finite number."),
    ]:
        page.locator("#drop").evaluate(DROP, ["bad.csv", text])
        visible(page, "#csv-body")
        page.locator("#send").click()
        seen(page, "#send-problem", problem)
    page.locator("#measure").select_option("p-values")
    page.locator("#drop").evaluate(DROP, ["bad.csv", "p\n0.5\n0\n"])
    page.locator("#send").click()
    seen(page, "#send-problem", "Row 3, column “p”: a p-value must be in (0, 1], got 0.")
    assert server.call("GET", "/v1/streams?q=csv-bad")["total"] == 0  # nothing was made, nothing was sent


SHAPES = [
    "x\n1,5\n2,75\n3\n", "1,5;2,5\n", "1,5;2,5\n3,5;4,5\n", 'a,b\n"1,5",2\n"2,5",3\n', "a\tb\n1,5\t2\n2,5\t3\n",
    "x;y\n1,234;1\n2,345;2\n", "sep=;\na;b\n1,5;2\n2,5;3\n", "1,7,3\n4,5,6\n", "1\n2\n3\n", "1.5,2\n2.5,3\n",
    "a|b\n1|2\n3|4\n", "a,b\n1,5\n2,6\n", "0,5;1\n1;2\n", "when;x\n10:30;1,5\n10:31;2,5\n", "a;b\n1,5;x,y\n2,5;z\n",
    "a;b\n1,5;0.5\n2,5;1.5\n", "a,b\n1e3,-0.5\n2E-3,.5\n", "\n\na,b\n\n1,2\n",
]  # fmt: skip
READ = """async (texts) => {
  const { parse, hasHeader, columns, number } = await import("/page/csv.js");
  const read = async (text) => {
    const table = await parse(text);
    const header = hasHeader(table);
    const rows = table.rows.slice(header ? 1 : 0);
    const values = (i) => rows.map((row) => number(row[i], table.decimal) ?? row[i]);
    return columns(table, header).map(({ name }, i) => [header ? name : String(i + 1), values(i)]);
  };
  return Promise.all(texts.map(read));
}"""


def test_the_page_reads_csv_as_the_package_does(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new")
    for text, columns in zip(SHAPES, page.evaluate(READ, SHAPES), strict=True):
        frame = ex.read(io.StringIO(text))
        assert columns == [[name, cells] for name, cells in frame.to_dict(as_series=False).items()], text


def test_a_labelled_csv_with_hostile_names(server: Server, tab: Open) -> None:
    page = tab().page
    page.goto(f"{server.url}/new?name=csv-labelled")
    page.locator("#measure").select_option("nearest-neighbour")
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    rows = "".join(f"{i % 5},{quoted if i % 2 else 'b'},{i % 3}\n" for i in range(40))
    page.locator("#csv").set_input_files(
        {"name": "odd.csv", "mimeType": "text/csv", "buffer": f"{quoted},class,z\n{rows}".encode()}
    )
    seen(page, "#csv-x", "<img src=x onerror")
    seen(page, "#csv-rows", "<script>window.hacked=1</script>")
    expect(page.locator("#csv-y")).to_have_value("1")
    assert page.locator("main img, main script").count() == 0
    page.locator("#send").click()
    seen(page, "#progress-line", "All 40 rows sent.", timeout=60_000)
    assert server.state("csv-labelled")["state"]["n"] == 40


def test_a_csv_can_be_sent_by_keyboard_alone(server: Server, tab: Open, tmp_path: Path) -> None:
    page = tab().page
    page.goto(f"{server.url}/new")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "name"
    page.keyboard.type("by-keyboard")
    reach(page, "measure")
    page.keyboard.type("p-values of")
    (tmp_path / "p.csv").write_text("\n".join(map(str, CALM)))
    reach(page, "csv")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Space")
    chooser.value.set_files(tmp_path / "p.csv")
    seen(page, "#csv-line", "50 rows")
    reach(page, "send")
    page.keyboard.press("Enter")
    seen(page, "#progress-line", "All 50 rows sent. No evidence against exchangeability so far.")
    assert server.state("by-keyboard")["configuration"]["measure"] == {"kind": "p-values"}
