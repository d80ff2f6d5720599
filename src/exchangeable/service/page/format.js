// Formatting of numbers and times, and descriptions of the state of a stream.

const DIGITS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const INTEGER = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const MOMENT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const NOTABLE = 0.5; // Jeffreys: evidence below 10^0.5 is "barely worth mentioning"

/** 1234567 -> 1,234,567 */
export const count = (n) => INTEGER.format(n);

/** 1234567 -> 1.235M, for axes */
export const compact = (n) => (Math.abs(n) < 100_000 ? INTEGER.format(n) : COMPACT.format(n));

/** -12 -> 10⁻¹² */
export const power = (exponent) => (exponent === 0 ? "1" : "10" + [...String(exponent)].map((c) => DIGITS[c]).join(""));

/** Format a capital, from its log10: 2.34, 0.0123, 4.5 × 10¹²; null is a capital of 0. */
export function capital(log10) {
  if (log10 === null || log10 === undefined) return "0";
  if (log10 > -2.5 && log10 < 4) return plain(10 ** log10);
  let exponent = Math.floor(log10);
  let mantissa = (10 ** (log10 - exponent)).toFixed(1);
  if (mantissa === "10.0") [mantissa, exponent] = ["1.0", exponent + 1];
  return `${mantissa} × ${power(exponent)}`;
}

/** Format a number with three significant digits, without an exponent. */
export function plain(value) {
  if (value === 0) return "0";
  if (value >= 1000) return INTEGER.format(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

/** Format a p-value: 0.034, or 2.1 × 10⁻⁶ */
export const probability = (p) => (p === null || p === undefined ? "–" : p >= 0.001 ? p.toFixed(3) : capital(Math.log10(p)));

/** Describe how long ago a time was; the clocks of two machines may differ slightly. */
export function ago(moment, now = Date.now()) {
  if (!moment) return "never";
  const seconds = Math.round((now - Date.parse(moment)) / 1000);
  if (seconds < 2) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${count(Math.floor(seconds / 86_400))} d ago`;
}

export const moment = (time) => (time ? MOMENT.format(new Date(time)) : "");

/** Classify a stream: alarm, empty, bankrupt, notable or quiet. */
export function condition({ state }) {
  if (state.alarm) return "alarm";
  if (state.n === 0) return "empty";
  if (state.log10_martingale === null) return "bankrupt";
  return state.log10_martingale >= NOTABLE ? "notable" : "quiet";
}

/** Classify a stream for its mark: like its condition, but an alarm that has started a new test stays visible. */
export function markOf(stream) {
  const now = condition(stream);
  return stream.restarted && now !== "alarm" && now !== "bankrupt" ? "restarted" : now;
}

/** Return the text of the mark of a stream. */
export const pill = (stream) => (stream.state.table?.reference === false ? "No reference yet" : PILLS[markOf(stream)]);

const PILLS = {
  alarm: "Alarm",
  restarted: "Restarted",
  empty: "No data yet",
  bankrupt: "Bankrupt",
  notable: "Some evidence",
  quiet: "Quiet",
};

/** Describe the evidence in one or two sentences. */
export function verdict(stream) {
  return VERDICTS[condition(stream)](stream.state, stream) + earlier(stream);
}

const VERDICTS = {
  alarm: (state, stream) => `Alarm: ${reached(stream)} at example ${count(state.alarm_at)}; ${changeStart(state)}${rateChange(state)}${riskSoFar(state)}${movedColumns(state)}`,
  empty: ({ table }, { next_seq: next }) => table?.reference === false ? "The stream has no reference yet: send it first." : (next > 1 ? "Observations have arrived, but the first one is still waiting for its label." : "No observations yet."),
  bankrupt: () =>
    "The capital is 0: the bet has lost everything, so this test cannot detect a change any more. Reset the stream to start a new test.",
  notable: (state, stream) =>
    `Some evidence ${claim(stream)}, but no alarm: capital ${capital(state.log10_martingale)}${needed(stream)}.`,
  quiet: (state, stream) => `No evidence ${claim(stream)} so far.`,
};

const CLAIMS = { rate: "of a change of the rate", risk: "that the mean loss is above the limit", table: "that the rows differ from the reference" };
const claim = ({ measure }) => CLAIMS[measure] ?? "against exchangeability";
const reached = ({ threshold_log10: log10 }) =>
  log10 === null || log10 === undefined ? "the evidence was sufficient" : `capital reached ${capital(log10)}`;
const needed = ({ threshold_log10: log10 }) =>
  log10 === null || log10 === undefined ? "" : `, the alarm is raised at ${capital(log10)}`;
/** Describe where the change started, or the rise of a risk. */
function changeStart({ changepoint, risk }) {
  const what = risk ? "rise" : "change";
  if (changepoint === null || changepoint === undefined) return `it is unknown when the ${what} started.`;
  return changepoint === 0 ? `the ${what} probably started with the first example.` : `the ${what} probably started around example ${count(changepoint)}.`;
}

/** Compare the mean loss since the rise with the limit, if the risk is monitored. */
function riskSoFar({ risk }) {
  if (!risk) return "";
  const { change, mean, limit } = risk; // in the whole test, the mean may be near the limit
  if (!change) return ` The mean loss of this test is ${signed(mean)}, the limit is ${signed(limit)}.`;
  const before = change.before === null ? "" : `, and ${signed(change.before)} before`;
  return ` The mean loss from there to the alarm was ${signed(change.after)}${before}; the limit is ${signed(limit)}.`;
}

/** Describe how the rate changed, if it is monitored. */
function rateChange({ rate }) {
  if (!rate?.change) return "";
  const { value, before, after } = rate.change;
  const what = rate.shares.length > 2 ? `The share of values from ${value} on` : "The rate";
  return ` ${what} changed from ${percent(before)} to ${percent(after)}.`;
}

/** Name the columns and views that have changed, if the stream is a table. */
function movedColumns({ table }) {
  if (!table?.rejected) return "";
  const more = table.rejected - Math.min(3, table.rejected_by.length);
  return ` Changed: ${table.rejected_by.slice(0, 3).join(", ")}${more > 0 ? ` and ${count(more)} more` : ""}.`;
}

/** Format a number of any sign with three significant digits. */
export const signed = (value) => (value < 0 ? `−${plain(-value)}` : plain(value));

/** 0.0123 -> 1.23 % */
export const percent = (share) => `${plain(100 * share)} %`;

/** Describe what preceded the current test, which started after a reset or an alarm. */
function earlier(stream) {
  if (stream.state.alarm || !stream.since) return "";
  const before = stream.alarms ? ` ${times(stream.alarms)} before.` : "";
  return ` This test started after example ${count(stream.since)}.${before}`;
}

const times = (k) => (k === 1 ? "There was one alarm" : `There were ${count(k)} alarms`);
