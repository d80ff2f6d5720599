// The columns and views of a table, ranked by evidence: small charts of the evidence and of the values over time.

import { query, request, streamPath } from "./api.js";
import { $, el, show, svg, write } from "./dom.js";
import { capital, count, signed } from "./format.js";

const SHOWN = 20; // columns and views with charts; the others are listed by a button
const [WIDTH, HEIGHT] = [180, 44]; // of a chart

const KINDS = { column: "", label: "the label" };

let all = false;

/** Fetch the columns of a table and draw them. */
export async function loadColumns(name) {
  const reply = await request(streamPath(name, "/columns"));
  draw(reply, () => {
    all = true;
    draw(reply);
  });
}

function draw({ columns, aside }, more) {
  const shown = all ? columns : columns.slice(0, SHOWN);
  $("#columns-rows").replaceChildren(...shown.map(row));
  write($("#columns-line"), line(columns, aside));
  const rest = columns.length - shown.length;
  const button = rest ? [el("button", { text: `Show ${count(rest)} more`, onclick: more })] : [];
  $("#columns-more").replaceChildren(...button);
  show($("#columns .scroll"), columns.length > 0);
}

/** Name what has changed, and since when. */
function line(columns, aside) {
  if (!columns.length) return "There is no reference yet.";
  const rejected = columns.filter((column) => column.rejected);
  const since = (column) => `${column.name} (${started(column)})`;
  const names = rejected.slice(0, 5).map(since).join(", ") + (rejected.length > 5 ? ` and ${count(rejected.length - 5)} more` : "");
  const left = Object.keys(aside);
  const untested = left.length ? ` Not tested: ${left.map((name) => `${name} (${aside[name]})`).join(", ")}.` : "";
  return (rejected.length ? `Enough evidence of a change on its own: ${names}.` : "No column or view has enough evidence of a change on its own.") + untested;
}

const started = ({ changepoint }) => (changepoint ? `since about row ${count(changepoint)}` : "since the first row");

function row(column) {
  const { name, kind, rejected, alarm_at: raised, log10_evidence: evidence, description } = column;
  const when = [rejected && `alarm at row ${count(raised)}, ${started(column)}`, column.stopped && "no longer bets: it holds max_rows rows"].filter(Boolean).join("; ");
  return el("tr", { "data-rejected": String(rejected) },
    el("th", { scope: "row" }, el("span", { text: name }), el("small", { text: KINDS[kind] ?? `view: ${kind}` })),
    el("td", { class: "number", text: capital(evidence) }),
    el("td", {}, chart(column.curve.n, column.curve.log10, { title: `Evidence of ${name}: now ${capital(evidence)}`, level: 0, kind: rejected ? "curve alarm" : "curve" })),
    el("td", {}, column.values ? values(column) : null),
    el("td", {}, el("span", { text: when }), el("small", { text: description })));
}

function values({ name, values: { n, value, reference, category } }) {
  const what = category === null ? `Mean of ${name}` : `Share of ${category} in ${name}`;
  const caption = category === null ? "" : category;
  const title = `${what}: now ${signed(value.findLast((one) => one !== null) ?? 0)}, in the reference ${signed(reference)}`;
  return [chart(n, value, { title, level: reference, kind: "curve values" }), el("small", { text: caption })];
}

/** Draw a line with a dashed level; values that are null are left out. */
function chart(n, y, { title, level, kind }) {
  const points = n.map((x, i) => [x, y[i]]).filter(([, value]) => value !== null);
  if (!points.length) return null;
  const heights = [...points.map(([, value]) => value), ...(level === null ? [] : [level])];
  const [low, high] = [Math.min(...heights), Math.max(...heights)];
  const first = Math.min(points[0][0], points.at(-1)[0] - 1);
  const across = (x) => 2 + ((x - first) / Math.max(1, points.at(-1)[0] - first)) * (WIDTH - 4);
  const up = (value) => HEIGHT - 4 - ((value - low) / (high - low || 1)) * (HEIGHT - 8);
  const path = points.map(([x, value], i) => `${i ? "L" : "M"}${across(x).toFixed(1)} ${up(value).toFixed(1)}`).join("");
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title },
    svg("title", { text: title }),
    level === null ? null : svg("line", { class: "level", x1: 0, x2: WIDTH, y1: up(level), y2: up(level) }),
    svg("path", { class: kind, d: path }));
}
