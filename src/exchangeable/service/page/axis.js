// The horizontal axis of the charts of a stream: the number of the example, or the time.

const DATES = 1e8; // seconds; times that are all smaller do not count from 1970

const UNITS = {
  count: "The times are not known, or not in order: the charts show the numbers of the examples.",
  time: "Horizontal axis: the time of each observation, as it was sent; between stored times it is interpolated.",
  arrived: "Horizontal axis: the time of arrival, which is stored to the second; between stored times it is interpolated.",
};

/** Describe the times that are shown, and where they come from. */
export function axisLine(clock, times) {
  const once = clock === "arrived" && times.at(-1) - times[0] < 1 ? " All of these arrived at once." : "";
  return UNITS[clock] + once;
}

const rising = (values) => values.length > 0 && values.every((t, i) => t !== null && (i === 0 || t >= values[i - 1]));

/** Choose the times to show: those of the observations if all are known and in order, else those of arrival; or null. */
export function chooseClock({ time, arrived }) {
  if (rising(time)) return "time";
  return rising(arrived.slice(arrived.findIndex((t) => t !== null))) && arrived.at(-1) !== null ? "arrived" : null;
}

/** Return whether times are dates rather than seconds since some start. */
export const areDates = (times) => times.length > 0 && times.at(-1) >= DATES;

/** Return the columns with their place on the axis, `x`, without the steps whose place is unknown. */
export function placed(columns, clock) {
  const x = clock === "count" ? columns.n : columns[clock];
  const first = x.findIndex((t) => t !== null);
  if (first < 0) return Object.fromEntries([...Object.keys(columns), "x"].map((key) => [key, []]));
  return Object.fromEntries([...Object.entries(columns), ["x", x]].map(([key, values]) => [key, values.slice(first)]));
}

/** Return the place of a step, interpolated between those of known steps, as both columns rise. */
export function placeOf(step, { n, x }) {
  if (!n.length || step <= n[0]) return x[0] ?? step;
  const i = n.findIndex((other) => other >= step);
  if (i < 0) return x.at(-1);
  return x[i - 1] + ((step - n[i - 1]) / (n[i] - n[i - 1])) * (x[i] - x[i - 1]);
}

/** Return the first and the last step between two places. */
export function stepsBetween(from, to, { n, x }) {
  const inside = n.filter((_, i) => x[i] >= from && x[i] <= to);
  return inside.length ? [inside[0], inside.at(-1)] : null;
}
