// One stream: its capital (live), its p-values, its bet, and the actions on it.

import { bytes, curl, query, request, streamPath } from "./api.js";
import { areDates, axisLine, chooseClock, placeOf, placed, stepsBetween } from "./axis.js";
import { LineChart, bet, histogram, lossBand, showEmpty } from "./charts.js";
import { loadColumns } from "./columns.js";
import { $, copy, el, perFrame, save, settled, show, throttled, write } from "./dom.js";
import { ago, capital, count, markOf, moment, percent, pill as pillText, plain, probability, signed, verdict } from "./format.js";
import { announce, attempt, startPage, connection, quietly, toast, troublePanel } from "./shell.js";
import { Listener } from "./sse.js";
import { explained } from "./words.js";

const POINTS = 1500; // in the chart
const RECENT = 1000;
const CHUNK = 5000; // steps in each request of a download
const MAX_EXACT = 200_000; // more steps than this are downloaded thinned

const name = decodeURIComponent(location.pathname.split("/").filter(Boolean).at(-1));
const path = (rest) => streamPath(name, rest);

const page = {
  stream: null, // as last received
  points: { n: [], x: [], log10: [], p: [] },
  values: { n: [], x: [], value: [], width: 1 },
  clock: "count", // what the charts show across: "count", "time" or "arrived"
  marks: [],
  view: { kind: "all" }, // or {kind: "last", size} or {kind: "range", from, to}
  paused: false,
  shape: null, // the histogram and the bet
};
let chart = null;
let valueChart = null;
let listener = null;
let status = null;

const n = () => page.stream.state.n;

/* The visible range of examples. */

function span() {
  const { kind, size, from, to } = page.view;
  if (kind === "all") return [1, Math.max(1, n())];
  if (kind === "last") return [Math.max(1, n() - size + 1), Math.max(1, n())];
  return [from, to];
}

const following = () => page.view.kind !== "range";

let historyRequests = 0;

async function loadHistory() {
  const number = ++historyRequests;
  const [from, to] = span();
  const timed = byTime() || null;
  const [reply, values] = await Promise.all([
    request(query(path("/history"), { from, to: following() ? null : to, max_points: POINTS, times: timed })),
    requestValues(),
  ]);
  if (number !== historyRequests) return;
  page.clock = timed ? chooseClock(reply) ?? "count" : "count";
  page.points = placed(columnsOf(reply, ["n", "log10", "p"]), page.clock);
  write($("#axis-line"), timed ? axisLine(page.clock, page.points.x) : "");
  takeValues(values);
  page.marks = reply.marks ?? [];
  if (following() && reply.stop < n() && !page.paused) refreshHistory(); // newer events arrived meanwhile
  draw();
}

async function requestValues() {
  if (!hasValues()) return null;
  const [from, to] = span();
  const column = Number($("#values-column").value) - 1;
  return request(query(path("/values"), { from, to: following() ? null : to, max_points: POINTS, column, times: byTime() || null }));
}

function takeValues(reply) {
  if (reply) page.values = { ...placed(columnsOf(reply, ["n", "value"]), page.clock), width: reply.width };
}

const byTime = () => $("input[name=axis]:checked").value === "time";
const hasValues = () => page.stream.measure !== "table";

/** Return the columns of these names, and the times that a reply has. */
const columnsOf = (reply, names) => Object.fromEntries([...names, ...(page.clock === "count" ? [] : [page.clock])].map((key) => [key, reply[key]]));

const refreshHistory = throttled(() => quietly(loadHistory), 1000);
const refreshValues = throttled(() => document.hidden || page.paused || quietly(loadValues), 2000);

/** Fetch the newest values; with times, the whole history is fetched again. */
async function loadValues() {
  if (!hasValues() || page.clock !== "count") return;
  const number = historyRequests;
  const reply = await requestValues();
  if (number !== historyRequests || byTime()) return;
  takeValues(reply);
  draw();
}

function zoom(view) {
  page.view = view;
  attempt(loadHistory);
}

function zoomTo(from, to) {
  const last = Math.max(1, n());
  const width = Math.max(10, Math.min(last, to - from + 1));
  const start = Math.round(Math.min(Math.max(1, from), Math.max(1, last - width + 1)));
  if (width >= last) return zoom({ kind: "all" });
  zoom({ kind: "range", from: start, to: Math.min(last, Math.round(start + width - 1)) });
}

/** Zoom to a range of the axis of a chart. */
function zoomAcross(from, to, columns) {
  const steps = stepsBetween(from, to, columns);
  if (page.clock === "count") zoomTo(Math.round(from), Math.round(to));
  else if (steps) zoomTo(...steps);
}

function zoomBy(factor) {
  const [from, to] = span();
  const width = (to - from + 1) * factor;
  if (following() && factor < 1) return zoom({ kind: "last", size: Math.max(10, Math.round(width)) }); // keep the newest in view
  const middle = (from + to) / 2;
  zoomTo(middle - width / 2, middle + width / 2);
}

function moveBy(share) {
  const [from, to] = span();
  const by = Math.round((to - from + 1) * share);
  if (page.view.kind !== "all") zoomTo(from + by, to + by);
}

/* Drawing. */

const draw = perFrame(() => {
  if (page.stream === null) return;
  drawText();
  drawChart();
});

function drawText() {
  const now = markOf(page.stream);
  const { state } = page.stream;
  const pill = $("#pill");
  show(pill, true);
  pill.dataset.condition = $("#heading").dataset.condition = now;
  write(pill, pillText(page.stream));
  write($("#verdict"), verdict(page.stream));
  write($("#guarantee"), state.guarantee);
  for (const [key, text, small] of figures(page.stream)) figure(key, text, small);
  document.title = `${now === "alarm" ? "Alarm: " : ""}${name} · exchangeable`;
}

function figures({ state, next_seq: next, observed_at: seen, threshold_log10: threshold }) {
  const has = state.n > 0;
  return [
    ["Capital", has ? capital(state.log10_martingale) : "1", threshold === null || threshold === undefined ? "" : `alarm at ${capital(threshold)}`],
    ["Highest", has ? capital(state.log10_max) : "1", ""],
    ["Examples", count(state.n), next - 1 > state.n ? `of ${count(next - 1)} sent` : ""],
    state.rate ? rateFigure(state.rate) : state.risk ? riskFigure(state.risk) : state.table ? tableFigure(state.table) : ["Last p-value", probability(state.p), ""],
    changeFigure(state),
    ["Last seen", ago(seen), ""],
  ];
}

/** Return the change point; after a restart it is that of the alarm before. */
function changeFigure({ alarm, alarm_at: raised, changepoint }) {
  if (changepoint === null || changepoint === undefined) return ["Change point", "–", ""];
  return ["Change point", count(changepoint), alarm ? "" : `of the alarm at ${count(raised)}, in an earlier test`];
}

/** Return the share of events, or of each of several values. */
function rateFigure({ shares }) {
  if (shares.length < 3) return ["Rate so far", shares.length ? percent(shares[1]) : "–", ""];
  return ["Rate so far", `${shares.length} values`, `${shares.map((share) => Math.round(100 * share)).join(", ")} %`];
}

/** Return the mean loss, its interval and the limit. */
function riskFigure({ mean, low, high, limit }) {
  if (mean === null) return ["Mean loss", "–", `limit ${signed(limit)}`];
  return ["Mean loss", signed(mean), `${signed(low)} to ${signed(high)}, limit ${signed(limit)}`];
}

const CHANGED = "Changed";

/** Return how many columns and views have changed. */
function tableFigure({ reference, columns, rejected, rejected_by: names }) {
  if (!reference) return [CHANGED, "–", "no reference yet"];
  const more = rejected > 2 ? ` and ${count(rejected - 2)} more` : "";
  return [CHANGED, count(rejected), names.length ? names.slice(0, 2).join(", ") + more : `of ${count(columns)} columns, and views`];
}

const figureNodes = new Map();

function figure(key, text, small) {
  if (!figureNodes.has(key)) {
    const nodes = [el("span"), el("small")];
    figureNodes.set(key, nodes);
    $("#figures").append(el("div", {}, el("dt", { text: key }), el("dd", {}, ...nodes)));
  }
  write(figureNodes.get(key)[0], text);
  write(figureNodes.get(key)[1], small);
}

function drawChart() {
  $("#zoom-all").disabled = page.view.kind === "all";
  $("#zoom-last").disabled = page.view.size === RECENT || n() <= RECENT;
  const threshold = page.stream.threshold_log10 ?? null;
  const lines = chartMarks();
  const { x, log10 } = page.points;
  const across = { lines: lines.map(({ n: step, kind }) => ({ kind, x: page.clock === "count" ? step : placeOf(step, page.points) })), zoomed: !following(), dates: page.clock !== "count" && areDates(x), span: page.clock === "count" ? span() : [x[0] ?? 0, x.at(-1) ?? 1] };
  chart.set({ ...across, x, y: log10, threshold });
  drawValues(across);
  const [from, to] = span();
  show($("#capital-empty"), n() === 0);
  $("#capital").setAttribute("aria-label", `Capital from example ${count(from)} to ${count(to)}: now ${capital(page.stream.state.log10_martingale)}, at most ${capital(page.stream.state.log10_max)}.`);
  drawLegend(threshold, lines);
}

/** Draw the observations below the capital, over the same range. */
function drawValues(across) {
  const { n: steps, x, value, width } = page.values;
  show($("#values"), hasValues() && n() > 0);
  show($("#values-choice"), width > 1);
  $("#values-column").max = width;
  valueChart.set({ ...across, x, y: value });
  const start = steps[0];
  const from = Math.max(span()[0], page.points.n[0] ?? 1);
  write($("#values-line"), start === undefined ? "No observation of this range is retained, or none has such a number." : start > from ? `The observations from example ${count(start)} on: of earlier ones the numbers are no longer retained, or too many for one chart.` : "");
  $("#values-chart").setAttribute("aria-label", start === undefined ? "No values." : `Values of examples ${count(start)} to ${count(steps.at(-1))}: from ${signed(value.reduce((a, b) => Math.min(a, b)))} to ${signed(value.reduce((a, b) => Math.max(a, b)))}.`);
}

function readCapital(i) {
  const { n: steps, log10, p } = page.points;
  write($("#readout"), i === null ? "" : `Example ${count(steps[i])}: capital ${capital(log10[i])}, p = ${probability(p[i])}${at(page.points, i)}`);
}

function readValue(i) {
  const { n: steps, value } = page.values;
  write($("#values-readout"), i === null ? "" : `Example ${count(steps[i])}: ${value[i]}${at(page.values, i)}`);
}

/** Return the time of a point, if the charts show times. */
const at = ({ x }, i) => (page.clock === "count" ? "" : `, ${areDates(x) ? moment(x[i] * 1000) : `time ${plain(x[i])}`}`);

/** Return the marks on the chart: alarms, resets, and where changes probably started. */
function chartMarks() {
  const { alarm_at: raised, changepoint } = page.stream.state;
  const lines = page.marks.flatMap(({ n: at, kind, changepoint: from }) => [{ n: from, kind: "change" }, { n: at, kind }]);
  lines.push({ n: raised, kind: "alarm" }, { n: changepoint, kind: "change" });
  const known = lines.filter((line) => line.n !== null && line.n !== undefined);
  return [...new Map(known.map((line) => [`${line.kind} ${line.n}`, line])).values()].sort((a, b) => a.n - b.n);
}

const LIST = new Intl.ListFormat("en-GB");
const LEGEND = [
  ["alarm", "alarm", "alarm at example", "alarms at examples"],
  ["change", "change", "change probably started around example", "changes probably started around examples"],
  ["restart", "mark", "restarted after example", "restarted after examples"],
  ["reset", "mark", "reset after example", "reset after examples"],
];
let lastLegend = "";

function drawLegend(threshold, lines) {
  const of = (kind) => lines.filter((line) => line.kind === kind).map((line) => count(line.n));
  const few = (steps) => (steps.length > 3 ? `${steps.slice(-3).join(", ")} and ${count(steps.length - 3)} earlier` : LIST.format(steps));
  const entries = [["line", "capital"]];
  if (threshold !== null) entries.push(["threshold", `alarm at ${capital(threshold)}`]);
  for (const [kind, key, one, many] of LEGEND) {
    const steps = of(kind);
    if (steps.length) entries.push([key, `${steps.length > 1 ? many : one} ${few(steps)}`]);
  }
  if (lastLegend === (lastLegend = JSON.stringify(entries))) return;
  $("#legend").replaceChildren(...entries.map(([key, text]) => el("li", {}, el("i", { class: key, "aria-hidden": "true" }), text)));
}

/* The p-values and the bet. */

const betting = () => !["rate", "risk", "table"].includes(page.stream.measure); // these are monitored without p-values

async function loadShape() {
  if (page.stream.measure === "risk") return loadBand();
  if (page.stream.measure === "table") return loadColumns(name);
  if (!betting()) return;
  page.shape = await request(path("/bet"));
  drawShape();
}

/* The mean loss of a risk, over the whole test. */

async function loadBand() {
  const { risk, marks = [] } = await request(query(path("/history"), { max_points: 4 }));
  const restarts = page.stream.configuration.on_alarm === "restart";
  page.shape = { ...risk, ends: restarts ? marks.filter(({ kind }) => kind === "alarm").map(({ n: at }) => at) : [] };
  drawShape();
}

function drawBand() {
  const { state } = page.stream;
  const { mean, low, high, limit } = state.risk;
  const now = mean === null || page.shape.n.at(-1) === state.n ? [] : [state.n, mean, low, high];
  const columns = ["n", "mean", "low", "high"].map((key, k) => [key, [...page.shape[key], ...now.slice(k, k + 1)]]);
  lossBand($("#loss"), Object.fromEntries(columns), limit, page.shape.ends);
}

function drawShape() {
  if (page.stream.measure === "risk") return drawBand();
  const which = $("input[name=span]:checked").value;
  histogram($("#histogram"), page.shape[which] ?? []);
  bet($("#bet"), page.shape.p, page.shape.density);
}

const refreshShape = throttled(() => document.hidden || page.paused || quietly(loadShape), 2000);

/* Late labels. */

async function loadWaiting() {
  const reply = await request(query(path("/waiting"), { limit: 20 }));
  const { total, waiting, left_out: left } = reply;
  show($("#waiting-card"), total > 0 || left.expired > 0 || left.never > 0);
  const late = total === 1 ? "One observation is waiting for its label" : `${count(total)} observations are waiting for their labels`;
  write($("#waiting-line"), `${total ? late : "No observation is waiting"}; at most ${count(reply.limit)} may wait.${leftOut(left)}`);
  const items = waiting.map(({ seq, id, labelled }) => el("li", { text: `${count(seq)}${id === null || id === undefined ? "" : `: ${id}`}${labelled ? " (has its label, waits for earlier ones)" : ""}` }));
  if (total > waiting.length) items.push(el("li", { text: `and ${count(total - waiting.length)} more` }));
  $("#waiting").replaceChildren(...items);
}

/** Describe which observations were not tested. */
function leftOut({ expired, undelivered, never, classes }) {
  const labels = Object.entries(classes).map(([label, times]) => `${label}: ${count(times)}`);
  const parts = [
    expired && `${count(expired)} left out, because the label did not arrive in time${labels.length ? ` (labels that arrived later: ${labels.join(", ")})` : ""}.`,
    undelivered && `${count(undelivered)} of these had a label in time, but it was delivered too late.`,
    never && `${count(never)} left out, because the label will never arrive.`,
  ];
  return parts.filter(Boolean).map((part) => ` ${part}`).join("");
}

const refreshWaiting = throttled(() => document.hidden || quietly(loadWaiting), 2000);

/* Live. */

function update(stream) {
  const before = page.stream;
  page.stream = { ...before, ...stream };
  if (stream.state.alarm && before && !before.state.alarm) announce(`Alarm. ${verdict(page.stream)}`);
  if (before && before.state.n === 0 && stream.state.n > 0) zoom(page.view);
  if (before?.alarms !== page.stream.alarms || before?.since !== page.stream.since) refreshHistory();
  if (page.stream.waiting || page.stream.expired || page.stream.left_out?.never || !$("#waiting-card").hidden) refreshWaiting();
}

function onEvent(type, data) {
  if (type === "gone") return gone();
  const stream = type === "state" ? data : data.stream;
  if (page.paused) return postpone(stream);
  if (type === "state" && stream.state.n !== n()) refreshHistory(); // reconnected: the steps between are in the history
  update(stream);
  if (type === "steps") extend(data);
  if (type === "reset") refreshHistory();
  refreshShape();
  draw();
}

/** Append new points; if some are missing, or there are too many for the chart, fetch the history again. */
function extend({ first, n: steps, log10, p }) {
  const { points } = page;
  const last = points.n.at(-1) ?? 0;
  refreshValues();
  if (!following()) return;
  if (page.clock !== "count") return refreshHistory(); // events have no times
  if (first > last + 1 && points.n.length) return refreshHistory();
  for (let i = 0; i < steps.length; i++) {
    if (steps[i] <= last) continue;
    if (points.x !== points.n) points.x.push(steps[i]);
    points.n.push(steps[i]);
    points.log10.push(log10[i]);
    points.p.push(p[i]);
  }
  if (page.view.kind === "last") forget(points, span()[0]);
  if (points.n.length > 2 * POINTS) refreshHistory(); // the server thins evenly
}

function forget(points, from) {
  const keep = points.n.findIndex((step) => step >= from);
  if (keep > 0) for (const column of new Set(Object.values(points))) column.splice(0, keep);
}

function postpone(stream) {
  page.postponed = stream;
  const more = stream.state.n - n();
  write($("#live"), more > 0 ? `Paused, ${count(more)} new` : "Paused");
}

function pause() {
  page.paused = !page.paused;
  $("#pause").setAttribute("aria-pressed", String(page.paused));
  write($("#pause"), page.paused ? "Resume" : "Pause");
  if (page.paused) {
    $("#live").dataset.state = "paused";
    write($("#live"), "Paused");
  } else {
    if (page.postponed) update(page.postponed);
    page.postponed = null;
    status(lastStatus);
    attempt(refreshAll);
  }
}

function gone() {
  listener.close();
  show($("#body"), false);
  show($("#pill"), false);
  write($("#verdict"), "This stream was deleted.");
  $("#trouble").replaceChildren(el("p", {}, el("a", { class: "button", href: "/", text: "All streams" })));
  status({ state: "refused" });
}

/* Configuration and actions. */

function drawConfiguration() {
  const { configuration, created, resets } = page.stream;
  const { measure, bet: stake, alarm, seed, on_alarm: after, labels } = configuration;
  const facts = [
    ["Measure", described(measure)],
    ["Bet", stake && described(stake)],
    ["Alarm", described(alarm)],
    ["After an alarm", after === "restart" ? "a new test starts" : "stays on until a reset"],
    ["Seed", (stake || measure.kind === "table") && String(seed)],
    ["Labels", labels && (LABELLED.has(measure.kind) || measure.kind === "table") ? waits(labels) : null],
    ["Created", moment(created)],
    ["Resets", resets ? count(resets) : null],
    ["Retention", retained(page.stream.retention)],
    ["Note", page.stream.notes?.join(" ")],
  ];
  $("#configuration").replaceChildren(...facts.filter(([, text]) => text).flatMap(([key, text]) => [el("dt", { text: key }), el("dd", { text })]));
  write($("#capital-hint"), `The capital starts at 1, and each bet multiplies it by what it pays. ${HINTS[measure.kind] ?? HINTS.value}`);
  write($("#json"), JSON.stringify(shortened(configuration), null, 2));
  write($("#send"), sendCommand(measure));
}

/** Return the command that sends an observation, or the reference that a table needs first. */
function sendCommand({ kind }) {
  const command = curl(path("/observations"), example(kind, page.stream.next_seq));
  if (page.stream.state.table?.reference !== false) return command;
  return `curl -X PUT ${location.origin}${path("/reference")} \\\n  -H 'Content-Type: application/x-ndjson' --data-binary @reference.ndjson\n\n${command}`;
}

/** Describe how much history is kept. */
function retained({ observations, rollups }) {
  const parts = [
    observations === null ? "observations as in the settings of the server" : `the latest ${count(observations)} observations`,
    rollups === null ? null : `finest roll-ups of the latest ${count(rollups)} steps`,
  ];
  return parts.filter(Boolean).join(", ");
}

const waits = ({ wait, clock, most }) =>
  `${wait === "forever" ? "observations wait without limit" : `observations wait ${plain(wait)} s by the ${clock}'s clock`}, at most ${count(most)} at once`;

const HINTS = {
  value: "On exchangeable data it rarely grows; growth is evidence of a change.",
  rate: "While the rate stays the same it rarely grows; growth is evidence of a change of the rate.",
  risk: "While the risk stays at or below the limit it rarely grows; growth is evidence that it has exceeded the limit.",
  table: "While rows are like those of the reference it rarely grows; growth is evidence of a change.",
};
const LABELLED = new Set(["nearest-neighbour", "nearest-residual", "conditional-nearest-neighbour", "conditional-nearest-distance"]);

/** Return an example observation for this measure. */
function example(kind, seq) {
  if (kind === "table") return `{"seq": ${seq}, "row": {"size": 0.5, "colour": "red"}}`;
  const x = /nearest/.test(kind) ? "[0.5, 2.1]" : ["rate", "risk"].includes(kind) ? "1" : "0.5";
  const y = kind === "nearest-residual" ? "1.5" : '"a"';
  return `{"seq": ${seq}, "x": ${x}${LABELLED.has(kind) ? `, "y": ${y}` : ""}}`;
}

const described = ({ kind, ...rest }) =>
  [kind, ...Object.entries(rest).filter(([, value]) => value !== null && value.length !== 0).map(([key, value]) => (key === "reference" ? `${count(value.length)} ${key} scores` : `${key} ${valueText(value)}`))].join(", ");

const valueText = (value) => (Array.isArray(value) ? value.join(value.length > 2 ? ", " : " and ") : typeof value === "number" && value >= 1000 ? count(value) : value);

/** Shorten a long list of reference scores. */
function shortened(configuration) {
  const { reference } = configuration.measure;
  if (!Array.isArray(reference) || reference.length <= 10) return configuration;
  const items = [...reference.slice(0, 5), `… ${count(reference.length - 5)} more`];
  return { ...configuration, measure: { ...configuration.measure, reference: items } };
}

async function download() {
  const [from, to] = following() ? [span()[0], n()] : span();
  const exact = to - from + 1 <= MAX_EXACT;
  const lines = ["n,log10_martingale,p"];
  for (let start = from; start <= to; start += exact ? CHUNK : Infinity) {
    const stop = exact ? Math.min(to, start + CHUNK - 1) : to;
    const reply = await request(query(path("/history"), { from: start, to: stop, max_points: CHUNK }));
    reply.n.forEach((step, i) => lines.push(`${step},${reply.log10[i] ?? "-inf"},${reply.p[i] ?? ""}`));
  }
  save(`${name}-${from}-${to}${exact ? "" : "-thinned"}.csv`, `${lines.join("\n")}\n`, "text/csv");
  toast(exact ? `Saved examples ${count(from)} to ${count(to)}.` : "Saved a thinned history with the lowest and highest values. Zoom in to save every step.");
}

async function exportState() {
  save(`${name}.exchangeable`, await bytes(path("/export")), "application/octet-stream");
}

async function reset() {
  const dialog = $("#reset-dialog");
  dialog.returnValue = "no";
  dialog.showModal();
  await closed(dialog);
  if (dialog.returnValue !== "yes") return;
  await attempt(async () => {
    update(await request(path("/reset"), { method: "POST" }));
    await refreshAll();
    toast("A new test has started.");
  });
}

async function remove() {
  const dialog = $("#delete-dialog");
  const typed = $("#delete-name");
  typed.value = "";
  $("#delete-yes").disabled = true;
  dialog.returnValue = "no";
  dialog.showModal();
  await closed(dialog);
  if (dialog.returnValue !== "yes" || typed.value !== name) return;
  await attempt(async () => {
    await request(path(), { method: "DELETE" });
    location.assign("/");
  });
}

const closed = (dialog) => new Promise((done) => dialog.addEventListener("close", done, { once: true }));

/** Disable a button while its action runs. */
function busy(button, work) {
  button.addEventListener("click", async () => {
    button.disabled = true;
    await attempt(work);
    button.disabled = false;
  });
}

function wire() {
  $("#pause").addEventListener("click", pause);
  $("#zoom-in").addEventListener("click", () => zoomBy(0.5));
  $("#zoom-out").addEventListener("click", () => zoomBy(2));
  $("#zoom-all").addEventListener("click", () => zoom({ kind: "all" }));
  $("#zoom-last").addEventListener("click", () => zoom({ kind: "last", size: RECENT }));
  busy($("#download"), download);
  busy($("#export"), exportState);
  $("#reset").addEventListener("click", reset);
  $("#delete").addEventListener("click", remove);
  $("#delete-no").addEventListener("click", () => $("#delete-dialog").close("no"));
  write($("#delete-which"), name);
  $("#delete-name").addEventListener("input", (event) => ($("#delete-yes").disabled = event.target.value !== name));
  $("#copy-send").addEventListener("click", (event) => copy(event.target, $("#send").textContent));
  for (const input of document.querySelectorAll("input[name=span]")) input.addEventListener("change", () => page.shape && drawShape());
  for (const input of document.querySelectorAll("input[name=axis], #values-column")) input.addEventListener("change", () => attempt(loadHistory));
  for (const id of ["#capital", "#values-chart"]) $(id).addEventListener("keydown", onKey);
  new ResizeObserver(settled(() => page.shape && drawShape(), 100)).observe($("#figures"));
  setInterval(() => page.stream && !page.paused && !document.hidden && drawText(), 5000);
}

const KEYS = {
  "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2), 0: () => zoom({ kind: "all" }),
  ArrowLeft: () => moveBy(-0.25), ArrowRight: () => moveBy(0.25), " ": pause,
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
}

async function refreshAll() {
  drawConfiguration();
  draw();
  await Promise.all([loadHistory(), loadShape(), loadWaiting()]);
}

/** Fetch what happened while there was no connection. */
async function catchUp() {
  if (page.paused) return;
  update(await request(path()));
  await refreshAll();
}

let lastStatus = { state: "connecting" };
let lost = false;

function listen() {
  status = connection(() => listener.retry());
  listener = new Listener(path("/events"), {
    onEvent,
    onStatus: (now) => {
      lastStatus = now;
      if (now.state === "live" && lost) quietly(catchUp);
      lost = now.state !== "live" && (lost || now.state !== "connecting");
      if (now.state === "refused" && now.problem?.status === 404) return gone();
      if (!page.paused || now.state === "waiting") status(now);
    },
  });
}

function showMissing(problem) {
  write($("#verdict"), "");
  const panel = troublePanel(problem, problem.status === 404 ? null : () => location.reload());
  if (problem.status === 404) panel.append(el("a", { class: "button primary", href: query("/new", { name }), text: "Create it" }), el("a", { href: "/", text: "All streams" }));
  $("#trouble").replaceChildren(panel);
  $("#live").hidden = true;
}

startPage(async () => {
  write($("#name"), name);
  document.title = `${name} · exchangeable`;
  try {
    page.stream = await request(path());
  } catch (problem) {
    if (problem.status === 401) throw problem;
    return showMissing(problem);
  }
  show($("#body"), true);
  show($("#betting"), betting());
  show($("#columns"), page.stream.measure === "table");
  show($("#risk"), page.stream.measure === "risk");
  const onAll = () => zoom({ kind: "all" });
  chart = new LineChart($("#capital"), { scale: "capital", read: readCapital, onAll, onZoom: (from, to) => zoomAcross(from, to, page.points) });
  valueChart = new LineChart($("#values-chart"), { scale: "value", read: readValue, onAll, onZoom: (from, to) => zoomAcross(from, to, page.values) });
  wire();
  if (n() === 0) $("#send-part").open = true;
  for (const selector of ["#histogram", "#bet", "#loss"]) showEmpty($(selector), "Loading…");
  $("#words").append(explained("capital", "alarm", "changepoint", ...(betting() ? ["pvalue", "bet"] : [])));
  listen();
  await attempt(refreshAll);
});
