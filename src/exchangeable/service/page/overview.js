// All streams: alarms first, live.

import { curl, pagePath, query, request } from "./api.js";
import { $, el, perFrame, settled, show, throttled, write } from "./dom.js";
import { ago, capital, count, markOf, moment, pill, verdict } from "./format.js";
import { announce, attempt, startPage, connection, quietly, troublePanel } from "./shell.js";
import { Spark } from "./spark.js";
import { Listener } from "./sse.js";
import { explained } from "./words.js";

const POINTS = 120; // of a sparkline
const FLEET = { alpha: 0.05, method: "adjusted" };

const list = $("#list");
const view = { q: "", page: 0, per: 50, total: 0, alarms: 0, restarted: 0 };
const rows = new Map(); // by name: the streams of this page
const elsewhere = new Map(); // by name: the `standing` of streams on other pages
const dirty = new Set();
let table = null;
let loading = null;
let eventCount = 0; // so far

/** One row of the table. Its nodes are reused as long as the stream is on the page. */
class Row {
  constructor(summary) {
    this.name = summary.name;
    this.pill = el("span", { class: "pill" });
    this.kinds = el("div", { class: "kinds" });
    this.capital = el("td", { class: "number", role: "cell", "data-label": "Capital" });
    this.n = el("td", { class: "number", role: "cell", "data-label": "Examples" });
    this.seen = el("td", { class: "number seen", role: "cell", "data-label": "Last seen" });
    this.canvas = el("canvas", { role: "img" });
    this.spark = new Spark(this.canvas, () => mark(this));
    this.node = el("tr", { role: "row" },
      el("td", { class: "state", role: "cell" }, this.pill),
      el("td", { class: "name", role: "cell" }, el("a", { href: pagePath(this.name), text: this.name }), this.kinds),
      el("td", { class: "spark", role: "cell" }, this.canvas),
      this.capital, this.n, this.seen);
    this.update(summary);
  }

  /** Update the row; the change is painted in the next frame. */
  update(summary) {
    this.summary = summary;
    this.spark.threshold = summary.threshold_log10 ?? null;
    this.spark.alarm = summary.state.alarm;
    if (summary.spark) this.spark.set(summary.spark);
    else this.spark.keep(summary.since, summary.state.n);
    if (summary.tail) this.spark.append(summary.tail);
    mark(this);
  }

  get standing() {
    return standing(this.summary);
  }

  paint() {
    const { state, measure, bet, alarm_kind: alarm } = this.summary;
    const now = markOf(this.summary);
    if (this.node.dataset.condition !== now) this.node.dataset.condition = this.pill.dataset.condition = now;
    write(this.pill, pill(this.summary));
    write(this.kinds, [measure, bet, alarm, ...earlierAlarms(this.summary)].filter(Boolean).join(" · "));
    write(this.capital, state.n ? capital(state.log10_martingale) : "–");
    write(this.n, count(state.n));
    this.paintTime();
    const text = verdict(this.summary);
    if (this.canvas.ariaLabel !== text) this.canvas.ariaLabel = text;
  }

  paintTime() {
    write(this.seen, ago(this.summary.observed_at));
    const title = moment(this.summary.observed_at);
    if (this.seen.title !== title) this.seen.title = title;
  }
}

/** What decides the place of a stream in the list: whether there is an alarm, and how many there were. */
const standing = ({ state, alarms, restarted }) => `${state.alarm} ${restarted} ${alarms}`;

/** Describe the number of alarms of earlier tests, which a restart or a reset has ended. */
function earlierAlarms({ state, alarms }) {
  const earlier = alarms - (state.alarm ? 1 : 0);
  return earlier > 0 ? [earlier === 1 ? "one earlier alarm" : `${count(earlier)} earlier alarms`] : [];
}

const paint = perFrame(() => {
  for (const row of dirty) row.paint();
  for (const row of dirty) row.spark.draw(); // separately: drawing between two text changes would repeat the layout each time
  dirty.clear();
});

function mark(row) {
  dirty.add(row);
  paint();
}

/** Fetch the current page of the list and show it; rows that stay keep their nodes and the focus. */
async function load() {
  loading?.abort();
  const controller = (loading = new AbortController());
  const { q, page, per } = view;
  const began = eventCount;
  try {
    const path = query("/v1/streams", { q, offset: page * per, limit: per, order: "alarm", spark: POINTS });
    const reply = await request(path, { signal: controller.signal });
    if (controller !== loading) return;
    if (!reply.streams.length && reply.total && page) return turn(Math.ceil(reply.total / per) - 1 - page);
    Object.assign(view, { total: reply.total, alarms: reply.alarms, restarted: reply.restarted });
    showStreams(reply.streams, began);
  } catch (problem) {
    if (problem.code === "aborted") return;
    if (problem.status === 401) throw problem;
    if (table === null || !table.isConnected) showTrouble(problem);
  } finally {
    list.setAttribute("aria-busy", "false");
  }
}

/** Show these streams, but keep rows that an event has changed since `began`: the list may be older. */
function showStreams(streams, began) {
  if (!streams.length) return showNothing();
  const focused = document.activeElement;
  table ??= tableNode();
  if (!table.isConnected) list.replaceChildren(table);
  const body = table.tBodies[0];
  const staying = new Set(streams.map(({ name }) => name));
  for (const [name, row] of rows) if (!staying.has(name)) drop(name, row);
  streams.forEach((summary, position) => {
    const row = rows.get(summary.name) ?? new Row(summary);
    if (rows.has(row.name) && !(row.changedAt > began)) row.update(summary);
    rows.set(row.name, row);
    elsewhere.delete(row.name);
    if (body.children[position] !== row.node) body.insertBefore(row.node, body.children[position] ?? null);
  });
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  showCounts();
}

function drop(name, row) {
  row.spark.remove();
  row.node.remove();
  rows.delete(name);
  dirty.delete(row);
  elsewhere.set(name, row.standing);
}

function tableNode() {
  const heads = [["State"], ["Stream"], ["Evidence (log scale)"], ["Capital", "number"], ["Examples", "number"], ["Last seen", "number"]];
  return el("table", { class: "streams", role: "table", "aria-label": "Streams" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" },
      heads.map(([text, kind]) => el("th", { scope: "col", role: "columnheader", class: kind, text })))),
    el("tbody", { role: "rowgroup" }));
}

function skeleton() {
  const loadingTable = tableNode();
  for (let i = 0; i < 6; i++) {
    loadingTable.tBodies[0].append(el("tr", { class: "skeleton", "aria-hidden": "true" },
      ["state", "name", "spark", "number", "number", "number"].map((kind) => el("td", { class: kind }, el("span")))));
  }
  list.replaceChildren(loadingTable);
}

function showNothing() {
  for (const [name, row] of rows) drop(name, row);
  list.replaceChildren(view.q ? nothingFound() : noStreams());
  showCounts();
}

function nothingFound() {
  return el("div", { class: "panel empty" },
    el("h2", { text: "No streams found" }),
    el("p", { class: "muted", text: `No stream has “${view.q}” in its name.` }),
    el("button", { text: "Show all streams", onclick: () => search("") }));
}

function noStreams() {
  const command = curl("/v1/streams/my-stream", "{}", "PUT");
  return el("div", { class: "panel empty" },
    el("h2", { text: "No streams yet" }),
    el("p", { class: "muted", text: "A stream is one sequence of observations: a model's errors, a sensor, a queue's latency." }),
    el("a", { class: "button primary", href: "/new", text: "Create a stream, or try it with a CSV file" }),
    el("p", { class: "hint", text: "or with the API:" }),
    el("pre", { tabindex: "0", text: command }));
}

function showTrouble(problem) {
  for (const [name, row] of rows) drop(name, row);
  const again = () => {
    skeleton();
    load();
  };
  list.replaceChildren(troublePanel(problem, again));
  write($("#summary"), "");
  show($("#pages"), false);
}

function showCounts() {
  const { q, page, per, total, alarms, restarted } = view;
  const streams = `${count(total)} ${total === 1 ? "stream" : "streams"}${q ? " found" : ""}`;
  const alarmText = alarms ? `${count(alarms)} ${alarms === 1 ? "alarm" : "alarms"}` : "no alarms";
  write($("#summary"), total ? [streams, alarmText, ...(restarted ? [`${count(restarted)} restarted after an alarm`] : [])].join(", ") : "");
  document.title = `${alarms ? `(${count(alarms)}) ` : ""}Streams · exchangeable`;
  show($("#search"), total > 0 || q !== "");
  show($("#pages"), total > per);
  write($("#where"), `${count(page * per + 1)} to ${count(Math.min(total, (page + 1) * per))} of ${count(total)}`);
  $("#previous").disabled = page === 0;
  $("#next").disabled = (page + 1) * per >= total;
}

const reload = throttled(() => quietly(load), 1500);

/** Handle an event: streams on this page are painted; others may belong on this page now. */
function changed({ streams = [], removed = [] }) {
  eventCount += 1;
  let moved = removed.some((name) => rows.has(name) || elsewhere.delete(name));
  for (const summary of streams) {
    const row = rows.get(summary.name);
    const before = row ? row.standing : elsewhere.get(summary.name);
    const now = standing(summary);
    if (before !== now) {
      moved = true;
      if (summary.state.alarm && before?.startsWith("false")) announce(`Alarm in stream ${summary.name}.`);
      else if (summary.restarted && before !== undefined) announce(`Alarm in stream ${summary.name}; a new test has started.`);
    }
    if (row) {
      row.update(summary);
      row.changedAt = eventCount;
    } else elsewhere.set(summary.name, now);
  }
  if (moved) reload();
  if (moved || streams.length) refreshFleet();
}

const refreshFleet = throttled(() => quietly(loadFleet), 10_000);

async function loadFleet() {
  if (document.hidden) return;
  const fleet = await request(query("/v1/fleet", FLEET));
  const { found, missed, missed_count: more, streams, deleted } = fleet;
  show($("#fleet"), streams > 1);
  const which = found.length === streams ? `All ${count(streams)}` : `${found.length ? count(found.length) : "None"} of ${count(streams)}`;
  const unnamed = more ? `; ${more === 1 ? "one other has" : `${count(more)} others have`} raised an alarm` : "";
  write($("#fleet-line"), `${which} streams ${found.length > 1 ? "have" : "has"} changed (false discovery rate ${100 * fleet.alpha} %)${unnamed}`);
  $("#fleet-found").replaceChildren(
    el("ul", {}, found.slice(0, 100).map(({ name, log10_e: e }) => el("li", {}, el("a", { href: pagePath(name), text: name }), ` e = ${capital(e)}`))),
    found.length > 100 ? el("p", { text: `and ${count(found.length - 100)} more` }) : "",
    ...missedAlarms(missed, more),
    deleted ? el("p", { class: "hint", text: deleted === 1 ? "One deleted stream still counts." : `${count(deleted)} deleted streams still count.` }) : "",
    found.length || more ? el("p", { class: "hint", text: E_VALUE }) : "",
    el("p", { class: "hint", text: fleet.promise }));
}

const E_VALUE = "e is the evidence of a stream in this comparison. It is computed from the highest capital so far, but is smaller, because it must hold whenever you look; in the k-th test of a stream it is also divided by k (k + 1).";

/** Say why some alarms are not among the changed streams. */
function missedAlarms(missed, total) {
  if (!total) return [];
  const line = ({ name, joined, test, log10_e: e, log10_needed: level }) =>
    el("li", {}, el("a", { href: pagePath(name), text: name }), `: e = ${capital(e)} is below ${capital(level)}, the level for the weight of stream ${count(joined)}${test > 1 ? `, test ${count(test)}` : ""}`);
  return [
    el("p", { text: "These have an alarm, or were restarted after one. An alarm bounds the error of one stream; to be named among all streams, more evidence is needed:" }),
    el("ul", {}, missed.map(line)),
    total > missed.length ? el("p", { text: `and ${count(total - missed.length)} more` }) : "",
  ];
}

/** Show alerts that could not be delivered. */
async function loadAlerts() {
  const { dead, alerts } = await request("/v1/alerts");
  show($("#alerts"), dead > 0);
  if (!dead) return;
  const lost = alerts.filter(({ state }) => state === "dead").slice(0, 5);
  $("#alerts").replaceChildren(
    el("strong", { text: dead === 1 ? "One alert could not be delivered." : `${count(dead)} alerts could not be delivered.` }),
    el("ul", {}, lost.map(alertNode)));
}

function alertNode(alert) {
  const again = async () => {
    if (await attempt(() => request(`/v1/alerts/${encodeURIComponent(alert.id)}/retry`, { method: "POST" }))) await quietly(loadAlerts);
  };
  const text = `${alert.stream} (${alert.status}) to ${alert.receiver}, ${count(alert.attempts)} attempts: ${alert.error ?? "no reason given"}`;
  return el("li", {}, el("span", { text }), el("button", { text: "Try again", onclick: again }));
}

function search(q) {
  Object.assign(view, { q: q.trim().toLowerCase(), page: 0 });
  if ($("#q").value.trim().toLowerCase() !== view.q) $("#q").value = view.q;
  remember();
  attempt(load);
}

async function turn(by) {
  view.page = Math.max(0, view.page + by);
  remember();
  await attempt(load);
  scrollTo({ top: 0 });
}

/** Store the view in the URL, so that it can be bookmarked and shared. */
function remember() {
  const { q, page, per } = view;
  history.replaceState(null, "", query("/", { q, page: page || null, per: per === 50 ? null : per }));
}

function recall() {
  const params = new URLSearchParams(location.search);
  const per = Number(params.get("per"));
  view.q = (params.get("q") ?? "").slice(0, 64);
  view.page = Math.max(0, Math.floor(Number(params.get("page"))) || 0);
  if ([25, 50, 100, 250].includes(per)) view.per = per;
  $("#q").value = view.q;
  $("#per").value = String(view.per);
}

function wire() {
  const typed = settled((value) => search(value), 200);
  $("#q").addEventListener("input", (event) => typed(event.target.value));
  $("#search").addEventListener("submit", (event) => {
    event.preventDefault();
    search($("#q").value);
  });
  $("#per").addEventListener("change", (event) => {
    Object.assign(view, { per: Number(event.target.value), page: 0 });
    remember();
    attempt(load);
  });
  $("#previous").addEventListener("click", () => turn(-1));
  $("#next").addEventListener("click", () => turn(1));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    $("#q").focus();
  });
  document.addEventListener("colours", () => rows.forEach((row) => ((row.spark.dirty = true), mark(row))));
  setInterval(() => document.hidden || rows.forEach((row) => row.paintTime()), 5000);
  setInterval(() => document.hidden || quietly(loadAlerts), 30_000);
}

startPage(async () => {
  recall();
  wire();
  $("#words").append(explained("capital", "evidence", "alarm", "fleet"));
  skeleton();
  await load();
  let listener = null;
  const status = connection(() => listener.retry());
  let lost = false;
  listener = new Listener("/v1/events", {
    onEvent: (type, data) => type === "streams" && changed(data),
    onStatus: (now) => {
      status(now);
      if (now.state === "live" && lost) reload();
      lost = now.state !== "live" && (lost || now.state !== "connecting");
    },
  });
  refreshFleet();
  quietly(loadAlerts);
});
