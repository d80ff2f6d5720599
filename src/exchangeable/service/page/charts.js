// The charts of a stream: capital over time (uPlot), the histogram of p-values and the bet (SVG).

import uPlot from "./vendor/uPlot.esm.js";
import { el, svg } from "./dom.js";
import { capital, compact, count, plain, power, signed } from "./format.js";
import { colours } from "./spark.js";

const FONT = "13px system-ui, -apple-system, sans-serif";

/** Return the ticks of a log10 axis: powers of ten, or 1-2-5 if the axis spans less than two of them. */
export function ticks(low, high, maxTicks) {
  if (high - low >= 2) {
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((by) => (high - low) / by <= maxTicks) ?? 10_000;
    return between(Math.ceil(low / step), Math.floor(high / step), (k) => k * step);
  }
  const inside = (value) => value >= low && value <= high;
  for (const digits of [[1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]]) {
    const marks = between(Math.floor(low), Math.ceil(high), (k) => digits.map((digit) => k + Math.log10(digit))).flat().filter(inside);
    if (marks.length >= 3) return marks;
  }
  const step = 10 ** Math.floor(Math.log10((high - low) / 3));
  return between(Math.ceil(low / step), Math.floor(high / step), (k) => k * step).slice(0, 2 * maxTicks);
}

const between = (from, to, make) => Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => make(from + i));

/** 3 -> 10³, 0.30103 -> 2, -0.69897 -> 0.2 */
export function tickLabel(log10) {
  const exponent = Math.round(log10);
  if (Math.abs(log10 - exponent) < 1e-9) return Math.abs(exponent) <= 3 ? plain(10 ** exponent) : power(exponent);
  return capital(log10);
}

const SCALES = {
  capital: { anchors: (chart) => [0, ...(chart.threshold === null ? [] : [chart.threshold])], least: 0.2, splits: (u, i, low, high) => ticks(low, high, Math.max(2, Math.floor(u.height / 45))), values: (u, splits) => splits.map(tickLabel), size: 64 },
  value: { anchors: () => [], least: 0, values: (u, splits) => splits.map(signed), size: 64 },
};

/** A line over the examples or over time, of the capital or of values, with the threshold, alarms, changes and resets. */
export class LineChart {
  constructor(container, { scale, read, onZoom, onAll }) {
    Object.assign(this, { container, scale: SCALES[scale], read, onZoom, onAll, x: [], y: [], threshold: null, lines: [], zoomed: false, dates: false });
    this.plot = new uPlot(this.#options(), [[], []], container);
    new ResizeObserver(() => this.#resize()).observe(container);
    document.addEventListener("colours", () => this.plot.redraw(false));
  }

  /** Replace the data: columns x and y; `lines` are {x, kind}; `span` is the range of the x axis, and `dates` its kind. */
  set({ x, y, threshold = null, lines, span, zoomed, dates }) {
    const rebuild = dates !== this.dates; // uPlot fixes the kind of an axis when it is made
    Object.assign(this, { x, y, threshold, lines, span, zoomed, dates });
    if (rebuild) {
      this.plot.destroy();
      this.plot = new uPlot(this.#options(), [x, y], this.container);
    } else this.plot.setData([x, y], true);
  }

  #options() {
    const across = this.dates ? { space: 90, values: DATES } : { values: (u, splits) => splits.map((n) => (Number.isInteger(n) ? compact(n) : "")), space: 70, incrs: INCREMENTS };
    return {
      ...this.#size(),
      legend: { show: false },
      cursor: {
        drag: { x: true, y: false, setScale: false },
        points: { size: 7, stroke: () => colours.accent, fill: () => colours.accent },
        bind: { dblclick: () => () => this.onAll() },
      },
      scales: { x: { time: this.dates, range: () => this.#xRange() }, y: { range: () => this.#yRange() } },
      axes: [this.#axis({ ...across, size: this.dates ? 48 : 34 }), this.#axis({ size: this.scale.size, values: this.scale.values, ...(this.scale.splits ? { splits: this.scale.splits } : {}) })],
      series: [{}, { stroke: () => colours.accent, width: this.scale === SCALES.capital ? 2 : 1, points: { show: (u) => this.x.length < 2, fill: () => colours.accent } }],
      hooks: {
        draw: [(u) => this.#marks(u)],
        setCursor: [(u) => this.#read(u)],
        setSelect: [(u) => this.#selected(u)],
      },
    };
  }

  #axis(more) {
    return { stroke: () => colours.muted, font: FONT, grid: { stroke: () => colours.line, width: 1 }, ticks: { show: false }, ...more };
  }

  #size() {
    return { width: Math.max(120, this.container.clientWidth), height: Math.max(120, this.container.clientHeight) };
  }

  #resize() {
    const { width, height } = this.#size();
    if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }

  #xRange() {
    const [from, to] = this.span ?? [1, 1];
    return from === to ? [from - 1, to + 1] : [from, to];
  }

  /** Return the range of the visible values; of the capital, with the start at 1 and the threshold unless it is zoomed. */
  #yRange() {
    const values = this.y.filter((value) => value !== null);
    const anchors = this.zoomed && values.length ? [] : this.scale.anchors(this);
    let [low, high] = extent([...anchors, ...extent(values)]);
    if (low === undefined) [low, high] = [0, 1];
    const room = (this.scale.least || (high === low && (Math.abs(high) || 1))) - (high - low);
    if (room > 0) [low, high] = [low - room / 2, high + room / 2];
    const margin = 0.08 * (high - low);
    return [low - margin, high + margin];
  }

  #marks(u) {
    const context = u.ctx;
    context.save();
    context.beginPath();
    context.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    context.clip();
    if (this.threshold !== null) this.#across(u, this.threshold);
    for (const line of this.lines) this.#down(u, line);
    context.restore();
  }

  #across(u, log10) {
    const y = Math.round(u.valToPos(log10, "y", true));
    stroke(u, colours.threshold, [6, 4], [u.bbox.left, y], [u.bbox.left + u.bbox.width, y]);
  }

  #down(u, { x: place, kind }) {
    const x = Math.round(u.valToPos(place, "x", true));
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) return;
    const [colour, dashes] = { alarm: [colours.alarm, []], change: [colours.notable, [6, 4]] }[kind] ?? [colours.muted, [2, 3]];
    stroke(u, colour, dashes, [x, u.bbox.top], [x, u.bbox.top + u.bbox.height]);
  }

  #read(u) {
    const i = u.cursor.idx;
    const visible = u.cursor.left >= 0 && i !== null && i !== undefined && i < this.x.length;
    this.read(visible ? i : null);
  }

  #selected(u) {
    const { left, width } = u.select;
    if (width < 4) return;
    const [from, to] = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.onZoom(from, to);
  }
}

const [YEAR, DAY, HOUR, MINUTE] = [31_536_000, 86_400, 3600, 60];
const DATES = [ // increment, label, and what is added where the year or the day begins; as uPlot wants it
  [YEAR, "{YYYY}", null, null, null, null, null, null, 1],
  [28 * DAY, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [DAY, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [HOUR, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  [MINUTE, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  [0.001, ":{ss}.{fff}", "\n{D} {MMM} {YYYY} {HH}:{mm}", null, "\n{D} {MMM} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];
const INCREMENTS = between(0, 15, (k) => [1, 2, 5].map((by) => by * 10 ** k)).flat();

/** Return the minimum and maximum; `Math.min(...values)` fails on long lists. */
function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [];
}

function stroke(u, colour, dashes, [x0, y0], [x1, y1]) {
  const context = u.ctx;
  context.strokeStyle = colour;
  context.lineWidth = 1.5 * devicePixelRatio;
  context.setLineDash(dashes.map((dash) => dash * devicePixelRatio));
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.setLineDash([]);
}

/** The layout of a plot in pixels, so that text keeps its size; shares of its axes are from 0 to 1. */
class Box {
  constructor(container) {
    this.width = Math.max(200, container.clientWidth);
    this.height = Math.round(Math.min(260, Math.max(180, this.width / 2)));
  }

  across(share) {
    return 44 + share * (this.width - 44 - 8);
  }

  up(share) {
    return this.height - 26 - share * (this.height - 26 - 12);
  }

  /** Draw the marks, the axes, and a dashed line: of no evidence, or a limit. The horizontal axis is p by default. */
  svg(title, marks, { labels, even, across = P_LABELS }) {
    const [left, right] = [this.across(0), this.across(1)];
    const level = (kind, share) => svg("line", { class: kind, x1: left, x2: right, y1: this.up(share), y2: this.up(share) });
    return svg("svg", { viewBox: `0 0 ${this.width} ${this.height}`, role: "img", "aria-label": title },
      labels.flatMap(([share, text]) => [level("grid", share), svg("text", { x: left - 8, y: this.up(share) + 4, "text-anchor": "end", text })]),
      marks,
      level("axis", 0),
      across.map(([share, text]) => svg("text", { x: this.across(share), y: this.height - 6, "text-anchor": share === 1 ? "end" : "middle", text })),
      level("even", even));
  }
}

const P_LABELS = [0, 0.25, 0.5, 0.75, 1].map((p) => [p, String(p)]);

/** Draw the histogram of p-values. */
export function histogram(container, counts) {
  const total = counts.reduce((sum, k) => sum + k, 0);
  if (!total) return showEmpty(container, "No p-values yet.");
  const even = total / counts.length;
  const top = 1.12 * Math.max(2 * even, ...counts);
  const box = new Box(container);
  const barWidth = (box.across(1) - box.across(0)) / counts.length;
  const barHeight = (k) => box.up(0) - box.up(k / top);
  const bars = counts.map((k, i) => svg("rect", {
    class: "bar", x: box.across(i / counts.length) + 1, width: barWidth - 2, y: box.up(k / top), height: barHeight(k), rx: Math.min(2, barHeight(k) / 2),
  }, svg("title", { text: `${plain(i / counts.length)} to ${plain((i + 1) / counts.length)}: ${count(k)}` })));
  const labels = roundNumbers(top).map((k) => [k / top, compact(k)]);
  const title = `Histogram of ${count(total)} p-values; the highest of ${counts.length} bars holds ${count(Math.max(...counts))}, a uniform one would hold ${plain(even)}.`;
  container.replaceChildren(box.svg(title, bars, { labels, even: even / top }));
}

/** Draw the factor that each p-value would pay next: on a linear scale if the bet is small, else on a log scale. */
export function bet(container, p, density) {
  const points = p.map((x, i) => [x, density[i]]).filter(([, y]) => y !== null && Number.isFinite(y));
  if (points.length < 2) return showEmpty(container, "No bet yet.");
  const values = points.map(([, y]) => y);
  const highest = Math.max(...values);
  const scale = highest <= 6 ? linear(Math.max(2, highest)) : logarithmic(values);
  const box = new Box(container);
  const path = points.map(([x, y], i) => `${i ? "L" : "M"}${box.across(x).toFixed(1)} ${box.up(scale.share(y)).toFixed(1)}`).join("");
  const [lowestAt, highestAt] = [values.indexOf(Math.min(...values)), values.indexOf(highest)].map((i) => points[i][0]);
  const title = `The bet pays most, ${plain(highest)} times, at p = ${plain(highestAt)}, and least, ${plain(Math.min(...values))} times, at p = ${plain(lowestAt)}.`;
  container.replaceChildren(box.svg(title, svg("path", { class: "curve", d: path }), { labels: scale.labels, even: scale.share(1) }));
}

/** Draw the mean loss with its interval as a band, and the limit as a dashed line; `ends` are the last examples of tests. */
export function lossBand(container, { n, mean, low, high }, limit, ends = []) {
  if (n.length < 2) return showEmpty(container, "No losses yet.");
  const box = new Box(container);
  const [first, last] = [n[0], n.at(-1)];
  const later = Math.ceil(n.length / 20); // the first intervals are wide, and would flatten the rest
  const [bottom, top] = extent([limit, ...extent(mean.slice(later)), ...extent(low.slice(later)), ...extent(high.slice(later))]);
  const up = (y) => box.up(Math.min(1, Math.max(0, (y - bottom) / (top - bottom))));
  const x = (step) => box.across((step - first) / (last - first));
  const line = (column, order) => order.map((i) => `${x(n[i]).toFixed(1)} ${up(column[i]).toFixed(1)}`).join("L");
  const indices = n.map((_, i) => i);
  const tests = [0, ...ends].map((start, k) => indices.filter((i) => n[i] > start && n[i] <= (ends[k] ?? Infinity)));
  const marks = tests.filter((order) => order.length).flatMap((order) => [ // a line across two tests would mean nothing
    svg("path", { class: "band", d: `M${line(high, order)}L${line(low, order.toReversed())}Z` }),
    svg("path", { class: "curve", d: `M${line(mean, order)}` }),
  ]);
  const step = roundNumbers(top - bottom)[1];
  const labels = between(Math.ceil(bottom / step), Math.floor(top / step), (k) => [(k * step - bottom) / (top - bottom), signed(k * step)]);
  const across = [0, 0.5, 1].map((share) => [share, compact(Math.round(first + share * (last - first)))]);
  const title = `The mean loss after example ${count(last)} is ${signed(mean.at(-1))}, its interval from ${signed(low.at(-1))} to ${signed(high.at(-1))}; the limit is ${signed(limit)}.`;
  container.replaceChildren(box.svg(title, marks, { labels, even: (limit - bottom) / (top - bottom), across }));
}

function linear(highest) {
  const top = 1.1 * highest;
  return { share: (y) => y / top, labels: roundNumbers(top).map((y) => [y / top, plain(y)]) };
}

function logarithmic(values) {
  const positive = values.filter((y) => y > 0).map(Math.log10);
  const low = Math.min(-0.5, ...positive);
  const high = 1.05 * Math.max(...positive);
  const share = (y) => Math.max(0, (Math.log10(y) - low) / (high - low));
  return { share, labels: ticks(low, high, 6).map((log10) => [(log10 - low) / (high - low), tickLabel(log10)]) };
}

/** Return 0 and a few round numbers up to `top`. */
function roundNumbers(top) {
  const raw = top / 4;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((by) => by * unit).find((by) => by >= raw);
  return between(0, Math.floor(top / step), (k) => k * step);
}

export function showEmpty(container, text) {
  container.replaceChildren(el("p", { class: "nothing muted", text }));
}
