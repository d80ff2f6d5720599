// Sparklines on canvas, drawn only if they are visible and have changed.

const MAX_POINTS = 240; // of a line

/** The colours of the page, for drawing on canvas; updated when the colour scheme changes. */
export const colours = {};
const dark = matchMedia("(prefers-color-scheme: dark)");
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "muted", "line", "accent", "alarm", "surface", "threshold", "notable"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}
readColours();
dark.addEventListener("change", () => {
  readColours();
  document.dispatchEvent(new CustomEvent("colours"));
});

/** The sparkline of each canvas. */
const watched = new Map();
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) watched.get(target)?.seen(isIntersecting);
}, { rootMargin: "100px" });
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) watched.get(target)?.resized(contentRect);
});

/** A line of log10 capital over n, with the threshold of the alarm as a dashed line. */
export class Spark {
  constructor(canvas, redraw) {
    Object.assign(this, { canvas, redraw, visible: false, dirty: true, width: 0, height: 0, n: [], log10: [], threshold: null, alarm: false });
    watched.set(canvas, this);
    observer.observe(canvas);
    sizes.observe(canvas);
  }

  remove() {
    observer.unobserve(this.canvas);
    sizes.unobserve(this.canvas);
    watched.delete(this.canvas);
  }

  seen(visible) {
    this.visible = visible;
    if (visible && this.dirty) this.redraw();
  }

  resized({ width, height }) {
    Object.assign(this, { width, height, dirty: true });
    if (this.visible) this.redraw();
  }

  /** Replace all points. */
  set({ n, log10 }) {
    [this.n, this.log10] = [n, log10];
    this.dirty = true;
  }

  /** Drop points that do not belong to the current test, which started after step `since` and is at step `n`. */
  keep(since, n) {
    if ((this.n[0] ?? since + 1) > since && (this.n.at(-1) ?? n) <= n) return;
    const valid = this.n.map((step) => step > since && step <= n);
    [this.n, this.log10] = [this.n, this.log10].map((column) => column.filter((_, i) => valid[i]));
    this.dirty = true;
  }

  /** Append new points; those that are present already are skipped. */
  append({ n, log10 }) {
    const last = this.n.at(-1) ?? -1;
    for (let i = 0; i < n.length; i++) {
      if (n[i] <= last) continue;
      this.n.push(n[i]);
      this.log10.push(log10[i]);
    }
    if (this.n.length > 2 * MAX_POINTS) [this.n, this.log10] = thinned(this.n, this.log10, MAX_POINTS);
    this.dirty = true;
  }

  draw() {
    const { width, height } = this;
    if (!this.visible || !this.dirty || !width) return;
    this.dirty = false;
    const context = fitted(this.canvas, width, height);
    const scale = this.#scale(width, height);
    rule(context, width, scale.y(0), colours.line, []);
    if (this.threshold !== null) rule(context, width, scale.y(this.threshold), colours.threshold, [3, 3]);
    this.#trace(context, scale);
  }

  #scale(width, height) {
    const values = this.log10.filter((value) => value !== null);
    const low = Math.min(-1, ...values);
    const high = Math.max(1, this.threshold ?? 1, ...values) * 1.08;
    const [first, last] = [this.n[0] ?? 0, this.n.at(-1) ?? 1];
    return {
      x: (n) => 2 + ((n - first) / Math.max(1, last - first)) * (width - 6),
      y: (log10) => 3 + ((high - log10) / (high - low)) * (height - 6),
      bottom: height - 1,
    };
  }

  #trace(context, scale) {
    context.strokeStyle = context.fillStyle = this.alarm ? colours.alarm : colours.accent;
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.beginPath();
    this.n.forEach((n, i) => context.lineTo(scale.x(n), this.#y(i, scale)));
    context.stroke();
    if (!this.n.length) return;
    context.beginPath();
    context.arc(scale.x(this.n.at(-1)), this.#y(this.n.length - 1, scale), 2.5, 0, 2 * Math.PI);
    context.fill();
  }

  #y(i, scale) {
    return this.log10[i] === null ? scale.bottom : scale.y(this.log10[i]);
  }
}

function fitted(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function rule(context, width, y, colour, dashes) {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.setLineDash(dashes);
  context.beginPath();
  context.moveTo(0, y);
  context.lineTo(width, y);
  context.stroke();
  context.setLineDash([]);
}

/** Thin to about `maxPoints` points: the lowest and the highest of each interval, in order. */
export function thinned(n, log10, maxPoints) {
  const size = Math.ceil((2 * n.length) / maxPoints);
  if (size <= 2) return [n, log10];
  const keep = [];
  for (let start = 0; start < n.length; start += size) {
    const stop = Math.min(n.length, start + size);
    let [low, high] = [start, start];
    for (let i = start; i < stop; i++) {
      if ((log10[i] ?? -Infinity) < (log10[low] ?? -Infinity)) low = i;
      if ((log10[i] ?? -Infinity) > (log10[high] ?? -Infinity)) high = i;
    }
    keep.push(...(low === high ? [low] : [Math.min(low, high), Math.max(low, high)]));
  }
  if (keep.at(-1) !== n.length - 1) keep.push(n.length - 1);
  return [keep.map((i) => n[i]), keep.map((i) => log10[i])];
}
