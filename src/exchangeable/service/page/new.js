// A new stream: its configuration, and a trial with a file.

import { Problem, curl, pagePath, query, request, streamPath } from "./api.js";
import { BadFile, columns, firstNumbers, hasHeader, observations, readFile } from "./csv.js";
import { $, copy, el, settled, show, write } from "./dom.js";
import { count, verdict } from "./format.js";
import { startPage } from "./shell.js";
import { DOCS } from "./words.js";

const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/;
const BATCH = 1000;
const BATCH_CHARACTERS = 2 ** 20;
const MAX_ATTEMPTS = 8; // to send a batch
const PREVIEW_ROWS = 5;
const PREVIEW_COLUMNS = 8;

const MEASURES = {
  value: ["Numbers, one at a time", "Each number is ranked among all earlier ones: latencies, a model's losses, a sensor. Needs little memory.", { scalar: true }],
  "nearest-neighbour": ["Rows of numbers with a class label", "How close is the nearest example of the same class, compared with the other classes? The measure of the paper.", { cap: true, label: true }],
  "nearest-distance": ["Rows of numbers without labels", "How far away is the nearest example? Finds inputs that differ from earlier ones.", { cap: true }],
  "nearest-residual": ["Rows of numbers with a number to predict", "How much does the label differ from that of the nearest example?", { cap: true, label: true, numericLabel: true }],
  "conditional-nearest-neighbour": ["Like nearest-neighbour, within each class", "Ignores changes in the frequencies of the classes; finds changes within a class.", { cap: true, label: true }],
  "conditional-nearest-distance": ["Like nearest-distance, within each class", "Ignores changes in the frequencies of the classes; finds changes within a class.", { cap: true, label: true }],
  frozen: ["Scores of a fixed model, with reference scores", "Scores are ranked in bins between quantiles of reference scores that you upload. Constant time and memory.", { scalar: true, reference: true }],
  rate: ["Events: 0 or 1", "Is the rate of events still the same: errors, clicks, defects? Finds a change in a rate much sooner than ranks of numbers.", { scalar: true, event: true, betless: true }],
  risk: ["Losses of a model, with a limit", "Is the mean loss above what you accept: errors, misses, scores of a judge? Losses must lie between two known bounds; nothing else is assumed.", { scalar: true, loss: true, betless: true }],
  "p-values": ["p-values computed elsewhere", "You send p-values in (0, 1]; the server only bets on them.", { scalar: true, unit: true }],
};
const BETS = ["adaptive", "sentinel", "plugin", "simple-mixture", "gamma-mixture", "power", "simple-jumper", "composite-jumper",
  "sleepy-jumper", "sleeper-stayer", "sleeper-drifter", "histogram", "tree", "kernel", "markov", "beta", "power-chain", "fade", "regression", "volatility", "season",
  "copula", "two-sided", "blend", "memory-share", "switching", "cautious", "idle"];
const ALARMS = {
  ville: ["One alarm with a bounded error (ville)", "On exchangeable data (for rates: independent values), the probability that it is ever raised is at most alpha, for streams of any length."],
  "shiryaev-roberts": ["Endless monitoring (shiryaev-roberts)", "On average, at most one false alarm in each period; finds a change quickly even after a long quiet time."],
  cusum: ["Endless monitoring (cusum)", "Like shiryaev-roberts, but a little slower; simple to explain: it compares the capital with its lowest value."],
};

let reference = null;
let table = null;
let stopping = null;

const kind = () => $("#measure").value;
const needs = () => MEASURES[kind()][2];

/* The form. */

function readForm() {
  const alarm = $("#alarm").value;
  const config = {
    measure: { kind: kind() },
    alarm: alarm === "ville" ? { kind: alarm, alpha: valueOf("alpha") } : { kind: alarm, period: valueOf("period") },
    on_alarm: $("input[name=on_alarm]:checked").value,
  };
  if ($("#bet").value && !needs().betless) config.bet = { kind: $("#bet").value };
  if (needs().event) config.measure.direction = $("#direction").value;
  if (needs().loss) Object.assign(config.measure, { limit: valueOf("limit"), bounds: bounds() });
  if (valueOf("seed") !== null) config.seed = valueOf("seed");
  if (needs().cap) config.measure.cap = valueOf("cap");
  if (needs().reference) config.measure.reference = reference ?? [];
  if (needs().label) config.labels = { wait: valueOf("wait") ?? "forever", clock: $("#clock").value, most: valueOf("most") };
  return config;
}

const bounds = () => [valueOf("lower"), valueOf("upper")];
const valueOf = (id) => ($(`#${id}`).value.trim() === "" ? null : Number($(`#${id}`).value));

/** Return the first error in the form as [field, message], or null. The server checks again. */
function firstError(config) {
  const name = $("#name").value;
  if (!NAME.test(name)) return ["name", nameError(name) || "Enter a name."];
  if (needs().reference && (reference?.length ?? 0) < 2) return ["reference", "Choose a file with at least two reference scores."];
  if (needs().loss && !(bounds().every((bound) => bound !== null) && bounds()[0] < bounds()[1])) return ["lower", "The bounds must be the smallest and the largest possible loss."];
  if (needs().loss && (valueOf("limit") === null || !(bounds()[0] < valueOf("limit") && valueOf("limit") < bounds()[1]))) return ["limit", "The limit must lie between the bounds."];
  if (config.alarm.kind === "ville" && !(config.alarm.alpha > 0 && config.alarm.alpha < 1)) return ["alpha", "Alpha must be between 0 and 1."];
  if (config.alarm.kind !== "ville" && !(config.alarm.period > 1)) return ["period", "The period must be greater than 1."];
  if (needs().label && valueOf("wait") !== null && !(valueOf("wait") > 0)) return ["wait", "The maximum wait must be greater than 0, or empty."];
  for (const id of [...(valueOf("seed") === null ? [] : ["seed"]), ...(needs().cap ? ["cap"] : []), ...(needs().label ? ["most"] : [])]) {
    if (valueOf(id) === null || !Number.isInteger(valueOf(id)) || valueOf(id) < 0) return [id, `${$(`label[for=${id}]`).firstChild.textContent.trim()} must be an integer.`];
  }
  return null;
}

function nameError(name) {
  if (!name || NAME.test(name)) return "";
  if (name.length > 64) return "A name must have at most 64 characters.";
  if (!/^[a-z0-9]/.test(name)) return "A name must start with a lowercase letter or a digit.";
  const invalid = [...name].find((letter) => !/[a-z0-9._-]/.test(letter));
  return invalid === " " ? "A name must not contain spaces." : `A name must not contain “${invalid}”: only lowercase letters, digits and . _ - are allowed.`;
}

function checkName() {
  const name = $("#name").value;
  const problem = nameError(name);
  write($("#name-problem"), problem);
  $("#name").setAttribute("aria-invalid", String(Boolean(problem)));
  write($("#name-hint"), NAME_HINT);
  if (name && !problem) lookUp(name);
}

const NAME_HINT = "Lowercase letters, digits and . _ -, at most 64 characters; starts with a letter or digit.";

const lookUp = settled(async (name) => {
  if ((await exists(name)) && name === $("#name").value) write($("#name-hint"), "A stream with this name exists. If the configuration is the same, it will be used.");
}, 300);

/** Return whether there is a stream of this name; if that is not known, the server decides when it is created. */
async function exists(name) {
  if (!NAME.test(name)) return false;
  try {
    const { streams } = await request(query("/v1/streams", { q: name, order: "name", limit: 500 }));
    return streams.some((stream) => stream.name === name);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    return false;
  }
}

function redraw() {
  const [, hint, needed] = MEASURES[kind()];
  write($("#measure-hint"), hint);
  $("#alarm option[value=cusum]").disabled = Boolean(needed.betless); // rates and risks have no such alarm
  if (needed.betless && $("#alarm").value === "cusum") $("#alarm").value = "shiryaev-roberts";
  write($("#alarm-hint"), ALARMS[$("#alarm").value][1]);
  const shown = { bet: !needed.betless, direction: needed.event, loss: needed.loss, cap: needed.cap, reference: needed.reference, wait: needed.label, clock: needed.label && valueOf("wait") !== null, most: needed.label, alpha: $("#alarm").value === "ville", period: $("#alarm").value !== "ville" };
  for (const field of document.querySelectorAll("[data-for]")) show(field, Boolean(shown[field.dataset.for]));
  preview();
}

function preview() {
  const config = readForm();
  const long = (config.measure.reference?.length ?? 0) > 8;
  const shown = long ? { ...config, measure: { ...config.measure, reference: [...config.measure.reference.slice(0, 3), `… ${count(config.measure.reference.length - 3)} more`] } } : config;
  write($("#preview"), JSON.stringify(shown, null, 2));
  const name = NAME.test($("#name").value) ? $("#name").value : "NAME";
  write($("#curl"), curl(streamPath(name), long ? "@configuration.json" : JSON.stringify(config), "PUT"));
}

/** Create the stream and return it; if that fails, show the error and return null. */
async function create() {
  const config = readForm();
  const error = firstError(config);
  write($("#form-problem"), "");
  for (const field of document.querySelectorAll("#form [aria-invalid]")) field.setAttribute("aria-invalid", "false");
  if (error) return showError(...error);
  const name = $("#name").value;
  try {
    return await request(streamPath(name), { method: "PUT", json: config });
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status !== 401) write($("#form-problem"), problem.message);
    return null;
  }
}

function showError(id, message) {
  const field = $(`#${id}`);
  write(id === "name" ? $("#name-problem") : $("#form-problem"), message);
  field.setAttribute("aria-invalid", "true");
  field.closest("details")?.setAttribute("open", "");
  field.focus();
  return null;
}

async function onSubmit(event) {
  event.preventDefault();
  $("#create").disabled = true;
  const stream = await create();
  $("#create").disabled = false;
  show($("#created"), stream !== null);
  if (stream === null) return;
  const link = el("a", { href: pagePath(stream.name), text: `See ${stream.name}` });
  const text = stream.next_seq > 1 ? `The stream exists already, with ${count(stream.next_seq - 1)} observation${stream.next_seq === 2 ? "" : "s"}. ` : "Created. ";
  $("#created").replaceChildren(text, link, ", or send it a CSV file below.");
  link.focus();
}

/* Reference scores. */

const REFERENCE = "A file with one number per line, or a CSV file, whose first column of numbers is used: scores from a time without changes.";

async function onReference() {
  const [file] = $("#reference").files;
  reference = null;
  write($("#reference-line"), REFERENCE);
  try {
    if (file) reference = scores(await readFile(file));
    if (file) write($("#reference-line"), `${count(reference.length)} scores from ${file.name}.`);
  } catch (error) {
    if (!(error instanceof BadFile)) throw error;
    write($("#reference-line"), error.message);
  }
  redraw();
}

function scores(read) {
  const header = hasHeader(read);
  const named = columns(read, header);
  const column = named.length === 1 ? 0 : firstNumbers(named); // a single column may be sorted
  if (column < 0 || !named[column].numeric) throw new BadFile("No column of the file holds numbers that do not only rise: keep the column of scores only.");
  return [...observations(read, { header, x: [column], y: null, scalar: true })].map(({ x }) => x);
}

/* A file to try it with. */

async function onFile(file) {
  table = null;
  show($("#csv-body"), false);
  show($("#sending"), false);
  write($("#csv-problem"), "");
  if (!file) return;
  try {
    table = { file: file.name, ...(await readFile(file)) };
  } catch (error) {
    if (!(error instanceof BadFile)) throw error;
    return write($("#csv-problem"), error.message);
  }
  $("#csv-header").checked = hasHeader(table);
  if (!$("#name").value) propose(file.name);
  drawFile();
  $("#try").scrollIntoView({ block: "nearest" });
}

/** Propose a name for the stream, from that of the file. */
function propose(file) {
  const name = file.toLowerCase().replace(/\.[^.]*$/, "").replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+/, "").slice(0, 64);
  $("#name").value = name || "try";
  checkName();
  preview();
}

function drawFile() {
  if (table === null) return;
  const header = $("#csv-header").checked;
  const { rows, file } = table;
  const named = columns(table, header);
  const label = needs().label ? guessLabel(named) : -1;
  const length = rows.length - (header ? 1 : 0);
  write($("#csv-line"), `${file}: ${count(length)} ${length === 1 ? "row" : "rows"}, ${count(named.length)} ${named.length === 1 ? "column" : "columns"}.`);
  const first = firstNumbers(named);
  const used = (i) => (needs().scalar ? i === first : named[i].numeric && !named[i].rising && i !== label);
  const rising = named.filter((one) => one.rising).map(({ name }) => `“${name}”`);
  const left = rising.length ? ` Not chosen, because the numbers only rise, as an index or a time does: ${rising.join(", ")}.` : "";
  write($("#csv-rising"), (notNumbers(named) + left).trim());
  $("#csv-x").replaceChildren(...named.map(({ name }, i) => el("label", {},
    el("input", { type: needs().scalar ? "radio" : "checkbox", name: "x", value: i, checked: used(i), onchange: drawRows }), el("span", { text: name }))));
  $("#csv-y").replaceChildren(...named.map(({ name }, i) => el("option", { value: i, text: name, selected: i === label })));
  show($("#csv-label"), Boolean(needs().label));
  show($("#csv-body"), true);
  drawRows();
}

/** Describe columns that look like numbers, but cannot be read as such. */
function notNumbers(named) {
  const unread = named.filter(({ numeric, first }) => !numeric && /^[+-]?\d[\d.,'’ \u00a0\u202f]*$/.test(first));
  if (unread.length) return ` “${unread[0].first}” in the column “${unread[0].name}” is not read as a number: write decimals with a point, and thousands without a mark between them.`;
  return named.some(({ numeric }) => numeric) ? "" : " No column holds numbers.";
}

/** Return the column that is called label, else the last one without numbers, else the last. */
function guessLabel(named) {
  const byName = named.findIndex(({ name }) => /^(y|label|class|target|klasse)$/i.test(name));
  const lastText = named.findLastIndex(({ numeric }) => !numeric);
  return byName >= 0 ? byName : lastText >= 0 ? lastText : named.length - 1;
}

const chosen = () => [...document.querySelectorAll("#csv-x input:checked")].map((input) => Number(input.value));

function drawRows() {
  const header = $("#csv-header").checked;
  const used = new Set([...chosen(), ...(needs().label ? [Number($("#csv-y").value)] : [])]);
  const named = columns(table, header).slice(0, PREVIEW_COLUMNS);
  const cells = (tag, texts) => texts.slice(0, PREVIEW_COLUMNS).map((text, i) => el(tag, { class: used.has(i) ? "used" : null, scope: tag === "th" ? "col" : null, text }));
  const more = table.rows[0].length > PREVIEW_COLUMNS ? [el("td", { class: "muted", text: `and ${count(table.rows[0].length - PREVIEW_COLUMNS)} more` })] : [];
  const start = header ? 1 : 0;
  $("#csv-rows").replaceChildren(
    el("thead", {}, el("tr", {}, cells("th", named.map(({ name }) => name)), more)),
    el("tbody", {}, table.rows.slice(start, start + PREVIEW_ROWS).map((row) => el("tr", {}, cells("td", row)))));
  write($("#send-problem"), "");
}

/** Yield batches of the observations of the file; all of them are checked before the first is sent. */
function* batches() {
  const header = $("#csv-header").checked;
  const x = chosen();
  if (!x.length) throw new BadFile(`Choose at least one feature column.${notNumbers(columns(table, header))}`);
  const y = needs().label ? Number($("#csv-y").value) : null;
  if (x.includes(y)) throw new BadFile("The label column cannot be a feature column too.");
  const length = table.rows.length - (header ? 1 : 0);
  if (needs().cap && length > valueOf("cap")) throw new BadFile(`The file has ${count(length)} rows, but the stream accepts at most ${count(valueOf("cap"))}: increase the cap above, or choose another measure.`);
  let batch = [];
  let characters = 0;
  for (const observation of observations(table, { header, x, y, ...needs(), bounds: needs().loss ? bounds() : null })) {
    const text = JSON.stringify(observation).slice(1);
    batch.push(text);
    characters += text.length;
    if (batch.length === BATCH || characters > BATCH_CHARACTERS) {
      yield batch;
      [batch, characters] = [[], 0];
    }
  }
  if (batch.length) yield batch;
}

async function send({ append = false } = {}) {
  write($("#send-problem"), "");
  show($("#taken"), false);
  let all;
  try {
    all = await collect(batches());
  } catch (error) {
    if (!(error instanceof BadFile)) throw error;
    return write($("#send-problem"), error.message);
  }
  if (!append && (await exists($("#name").value))) return askWhetherToAppend();
  const stream = await create();
  if (stream === null) return write($("#send-problem"), $("#form-problem").textContent || $("#name-problem").textContent);
  if (!append && stream.next_seq > 1) return askWhetherToAppend(); // it was not in the list, or is brand new
  await sendAll(stream, all);
}

/** Let the person choose: the rows would join the test of an existing stream. */
function askWhetherToAppend() {
  const choose = () => {
    show($("#taken"), false);
    $("#name").focus();
    $("#name").select();
  };
  $("#taken").replaceChildren(
    el("p", {}, `A stream named ${$("#name").value} exists. Append these rows to it, or choose another name?`),
    el("div", { class: "buttons" }, el("button", { id: "append", text: "Append the rows", onclick: () => send({ append: true }) }), el("button", { text: "Choose another name", onclick: choose })));
  show($("#taken"), true);
  $("#append").focus();
}

/** Collect all batches, with pauses in which the page can respond. */
async function collect(parts) {
  const all = [];
  for (const part of parts) {
    all.push(part);
    if (all.length % 20 === 0) await new Promise((done) => setTimeout(done));
  }
  return all;
}

async function sendAll(stream, all) {
  stopping = new AbortController();
  const total = all.reduce((sum, batch) => sum + batch.length, 0);
  let [seq, sent] = [stream.next_seq, 0];
  setSending(true);
  progress(0, total, `Sending ${count(total)} rows…`);
  try {
    for (const batch of all) {
      const body = batch.map((text, i) => `{"seq":${seq + i},${text}`).join("\n");
      await withRetries(() => post(stream.name, body));
      seq += batch.length;
      sent += batch.length;
      progress(sent, total, `${count(sent)} of ${count(total)} rows sent.`);
    }
    const after = await request(streamPath(stream.name));
    progress(sent, total, `All ${count(total)} rows sent. ${outcome(stream, after)}`, stream.name);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    const stopped = problem.code === "aborted";
    if (!stopped) write($("#send-problem"), problem.message);
    progress(sent, total, `${stopped ? "Stopped" : "Failed"} after ${count(sent)} of ${count(total)} rows; these were accepted.`, stream.name);
  } finally {
    setSending(false);
  }
}

/** Describe what the rows that were sent have changed, not what was there before. */
function outcome(before, after) {
  const alarms = after.alarms - before.alarms;
  if (alarms && !after.state.alarm) return `${alarms === 1 ? "One alarm was" : `${count(alarms)} alarms were`} raised by these rows; a new test runs. ${verdict(after)}`;
  if (!alarms && before.state.alarm && after.state.alarm) return `They raised no alarm: the alarm at example ${count(after.state.alarm_at)} is older, and stays on until a reset.`;
  return verdict(after);
}

const post = (name, body) =>
  request(streamPath(name, "/observations"), { method: "POST", body, headers: { "Content-Type": "application/x-ndjson" }, signal: stopping.signal });

/** Retry: observations with numbers can be sent again, because the server counts each once. */
async function withRetries(work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (problem) {
      const transient = problem.code !== "aborted" && [0, 429, 502, 503, 504].includes(problem.status);
      if (!transient || attempt === MAX_ATTEMPTS) throw problem;
      await pause(problem.after ?? Math.min(8000, 250 * 2 ** attempt));
    }
  }
}

function pause(time) {
  return new Promise((done, fail) => {
    setTimeout(done, time);
    stopping.signal.addEventListener("abort", () => fail(new Problem(0, "aborted", "Stopped.")), { once: true });
  });
}

function setSending(active) {
  show($("#stop"), active);
  $("#send").disabled = $("#create").disabled = active;
}

function progress(sent, total, text, name) {
  show($("#sending"), true);
  $("#progress").value = total ? sent / total : 0;
  $("#progress-line").replaceChildren(text, ...(name ? [" ", el("a", { href: pagePath(name), text: "See the stream" })] : []));
}

function droppable(node) {
  const over = (on) => (event) => {
    event.preventDefault();
    node.classList.toggle("over", on);
  };
  node.addEventListener("dragover", over(true));
  node.addEventListener("dragleave", over(false));
  node.addEventListener("drop", (event) => {
    over(false)(event);
    onFile(event.dataTransfer.files[0]);
  });
  addEventListener("dragover", (event) => event.preventDefault()); // a file dropped elsewhere must not replace the page
  addEventListener("drop", (event) => event.preventDefault());
}

startPage(() => {
  $("#measure").append(...Object.entries(MEASURES).map(([value, [text]]) => el("option", { value, text: `${text} (${value})` })));
  $("#bet").append(el("option", { value: "", text: "default for the alarm" }), ...BETS.map((value) => el("option", { value, text: value })));
  $("#alarm").append(...Object.entries(ALARMS).map(([value, [text]]) => el("option", { value, text })));
  $("#name").value = (new URLSearchParams(location.search).get("name") ?? "").slice(0, 64);
  write($("#reference-line"), REFERENCE);
  $("#table-hint").append(el("a", { href: `${DOCS}operations.md#rows-of-a-table`, rel: "noreferrer", text: "How to do this" }));
  $("#form").addEventListener("input", redraw);
  $("#form").addEventListener("submit", onSubmit);
  $("#name").addEventListener("input", checkName);
  $("#measure").addEventListener("change", drawFile);
  $("#reference").addEventListener("change", onReference);
  $("#copy-curl").addEventListener("click", (event) => copy(event.target, $("#curl").textContent));
  $("#csv").addEventListener("change", (event) => onFile(event.target.files[0]));
  $("#csv-header").addEventListener("change", drawFile);
  $("#csv-y").addEventListener("change", drawRows);
  $("#send").addEventListener("click", () => send());
  $("#stop").addEventListener("click", () => stopping?.abort());
  droppable($("#drop"));
  redraw();
  checkName();
  return request("/v1/streams?limit=1").catch((problem) => problem.status === 401 && Promise.reject(problem)); // asks for a token early
});
