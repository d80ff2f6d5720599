// A new stream: its configuration, and a first try with a file.

import { Problem, curl, pagePath, query, request, streamPath } from "./api.js";
import { BadFile, columns, hasHeader, observations, readFile } from "./csv.js";
import { $, copy, el, settled, show, write } from "./dom.js";
import { count, verdict } from "./format.js";
import { begin } from "./shell.js";

const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/;
const BATCH = 1000;
const BATCH_CHARACTERS = 2 ** 20;
const PATIENCE = 8; // attempts for a batch
const PREVIEW = 5;
const SHOWN = 8; // columns of the preview

const MEASURES = {
  value: ["Numbers, one at a time", "Each number is ranked among all before it: latencies, a model's losses, a sensor. Memory stays small.", { scalar: true }],
  "nearest-neighbour": ["Rows of numbers with a class label", "How near is the nearest example of the same class, compared with the other classes? The measure of the paper.", { cap: true, label: true }],
  "nearest-distance": ["Rows of numbers without labels", "How far is the nearest example? Finds inputs that are unlike those before.", { cap: true }],
  "nearest-residual": ["Rows of numbers with a number to predict", "How far is the label from that of the nearest example?", { cap: true, label: true, numericLabel: true }],
  "conditional-nearest-neighbour": ["As nearest-neighbour, each class by itself", "A change in how often classes come is no evidence, a change within a class is.", { cap: true, label: true }],
  "conditional-nearest-distance": ["As nearest-distance, each class by itself", "A change in how often classes come is no evidence, a change within a class is.", { cap: true, label: true }],
  frozen: ["Scores of a fixed model, with reference scores", "Scores are ranked in bins between quantiles of reference scores that you upload. Constant time and memory.", { scalar: true, reference: true }],
  "p-values": ["p-values of your own", "You bring the p-values, in (0, 1]; they are only bet on.", { scalar: true, unit: true }],
};
const BETS = ["adaptive", "watchful", "plugin", "simple-mixture", "gamma-mixture", "power", "simple-jumper", "composite-jumper",
  "sleepy-jumper", "histogram", "tree", "kernel", "markov", "beta", "blend", "switching", "cautious", "idle"];
const ALARMS = {
  ville: ["Once, for good (ville)", "The chance that it is ever raised on exchangeable data is at most alpha, however long one watches."],
  "shiryaev-roberts": ["Watching without end (shiryaev-roberts)", "False alarms come at most once a period on average; a change is found soon even after a long quiet time."],
  cusum: ["Watching without end (cusum)", "As shiryaev-roberts, a little later; simple to explain: the capital is that many times its lowest value."],
};

let reference = null;
let table = null;
let stopping = null;

const kind = () => $("#measure").value;
const needs = () => MEASURES[kind()][2];

/* The form. */

function configuration() {
  const alarm = $("#alarm").value;
  const made = {
    measure: { kind: kind() },
    alarm: alarm === "ville" ? { kind: alarm, alpha: valueOf("alpha") } : { kind: alarm, period: valueOf("period") },
    on_alarm: $("input[name=on_alarm]:checked").value,
  };
  if ($("#bet").value) made.bet = { kind: $("#bet").value };
  if (valueOf("seed") !== null) made.seed = valueOf("seed");
  if (needs().cap) made.measure.cap = valueOf("cap");
  if (needs().reference) made.measure.reference = reference ?? [];
  if (needs().label) made.labels = { wait: valueOf("wait") ?? "forever", clock: $("#clock").value, most: valueOf("most") };
  return made;
}

const valueOf = (id) => ($(`#${id}`).value.trim() === "" ? null : Number($(`#${id}`).value));

/** What is wrong with the form, as [field, sentence], or null. The server has the last word. */
function fault(made) {
  const name = $("#name").value;
  if (!NAME.test(name)) return ["name", nameFault(name) || "Give the stream a name."];
  if (needs().reference && (reference?.length ?? 0) < 2) return ["reference", "Choose a file with at least two reference scores."];
  if (made.alarm.kind === "ville" && !(made.alarm.alpha > 0 && made.alarm.alpha < 1)) return ["alpha", "Alpha must lie between 0 and 1."];
  if (made.alarm.kind !== "ville" && !(made.alarm.period > 1)) return ["period", "The period must be greater than 1."];
  if (needs().label && valueOf("wait") !== null && !(valueOf("wait") > 0)) return ["wait", "The longest wait must be greater than 0, or empty."];
  for (const id of [...(valueOf("seed") === null ? [] : ["seed"]), ...(needs().cap ? ["cap"] : []), ...(needs().label ? ["most"] : [])]) {
    if (valueOf(id) === null || !Number.isInteger(valueOf(id)) || valueOf(id) < 0) return [id, `${$(`label[for=${id}]`).firstChild.textContent.trim()} must be an integer.`];
  }
  return null;
}

function nameFault(name) {
  if (!name || NAME.test(name)) return "";
  if (name.length > 64) return "A name has at most 64 characters.";
  if (!/^[a-z0-9]/.test(name)) return "A name begins with a small letter or a digit.";
  const odd = [...name].find((letter) => !/[a-z0-9._-]/.test(letter));
  return odd === " " ? "A name has no spaces." : `A name has no “${odd}”: small letters, digits and . _ - only.`;
}

function checkName() {
  const name = $("#name").value;
  const problem = nameFault(name);
  write($("#name-problem"), problem);
  $("#name").setAttribute("aria-invalid", String(Boolean(problem)));
  write($("#name-hint"), NAME_HINT);
  if (name && !problem) lookUp(name);
}

const NAME_HINT = "Small letters, digits and . _ - only, at most 64, a letter or digit first.";

const lookUp = settled(async (name) => {
  try {
    const { streams } = await request(query("/v1/streams", { q: name, order: "name", limit: 500 }));
    if (name !== $("#name").value || !streams.some((stream) => stream.name === name)) return;
    write($("#name-hint"), "There is a stream of this name. With the same configuration it is used as it is.");
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem; // the name will be judged when the stream is made
  }
}, 300);

function redraw() {
  const [, hint, wants] = MEASURES[kind()];
  write($("#measure-hint"), hint);
  write($("#alarm-hint"), ALARMS[$("#alarm").value][1]);
  const shown = { cap: wants.cap, reference: wants.reference, wait: wants.label, clock: wants.label && valueOf("wait") !== null, most: wants.label, alpha: $("#alarm").value === "ville", period: $("#alarm").value !== "ville" };
  for (const field of document.querySelectorAll("[data-for]")) show(field, Boolean(shown[field.dataset.for]));
  preview();
}

function preview() {
  const made = configuration();
  const long = (made.measure.reference?.length ?? 0) > 8;
  const shown = long ? { ...made, measure: { ...made.measure, reference: [...made.measure.reference.slice(0, 3), `… ${count(made.measure.reference.length - 3)} more`] } } : made;
  write($("#preview"), JSON.stringify(shown, null, 2));
  const name = NAME.test($("#name").value) ? $("#name").value : "NAME";
  write($("#curl"), curl(streamPath(name), long ? "@configuration.json" : JSON.stringify(made), "PUT"));
}

/** Create the stream and give back what the server says of it; a fault is shown and gives null. */
async function create() {
  const made = configuration();
  const wrong = fault(made);
  write($("#form-problem"), "");
  for (const field of document.querySelectorAll("#form [aria-invalid]")) field.setAttribute("aria-invalid", "false");
  if (wrong) return refuse(...wrong);
  const name = $("#name").value;
  try {
    return await request(streamPath(name), { method: "PUT", json: made });
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status !== 401) write($("#form-problem"), problem.message);
    return null;
  }
}

function refuse(id, sentence) {
  const field = $(`#${id}`);
  write(id === "name" ? $("#name-problem") : $("#form-problem"), sentence);
  field.setAttribute("aria-invalid", "true");
  field.closest("details")?.setAttribute("open", "");
  field.focus();
  return null;
}

async function submitted(event) {
  event.preventDefault();
  $("#create").disabled = true;
  const stream = await create();
  $("#create").disabled = false;
  show($("#created"), stream !== null);
  if (stream === null) return;
  const link = el("a", { href: pagePath(stream.name), text: `See ${stream.name}` });
  const words = stream.next_seq > 1 ? `It is there already, with ${count(stream.next_seq - 1)} observations. ` : "Created. ";
  $("#created").replaceChildren(words, link, ", or drop a CSV below to fill it.");
  link.focus();
}

/* Reference scores. */

const REFERENCE = "One number a line, or a CSV of which the first column of numbers is taken: scores of a time when all was well.";

async function referenceChosen() {
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
  const column = columns(read, header).findIndex(({ numeric }) => numeric);
  if (column < 0) throw new BadFile("No column of the file begins with a number.");
  return [...observations(read, { header, x: [column], y: null, scalar: true })].map(({ x }) => x);
}

/* A file to try it with. */

async function fileChosen(file) {
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

/** The file's name makes a name. */
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
  const first = named.findIndex(({ numeric }) => numeric);
  const taken = (i) => (needs().scalar ? i === first : named[i].numeric && i !== label);
  $("#csv-x").replaceChildren(...named.map(({ name }, i) => el("label", {},
    el("input", { type: needs().scalar ? "radio" : "checkbox", name: "x", value: i, checked: taken(i), onchange: drawRows }), el("span", { text: name }))));
  $("#csv-y").replaceChildren(...named.map(({ name }, i) => el("option", { value: i, text: name, selected: i === label })));
  show($("#csv-label"), Boolean(needs().label));
  show($("#csv-body"), true);
  drawRows();
}

/** The column whose name says so, else the last that holds no numbers, else the last. */
function guessLabel(named) {
  const told = named.findIndex(({ name }) => /^(y|label|class|target|klasse)$/i.test(name));
  const words = named.findLastIndex(({ numeric }) => !numeric);
  return told >= 0 ? told : words >= 0 ? words : named.length - 1;
}

const chosen = () => [...document.querySelectorAll("#csv-x input:checked")].map((input) => Number(input.value));

function drawRows() {
  const header = $("#csv-header").checked;
  const taken = new Set([...chosen(), ...(needs().label ? [Number($("#csv-y").value)] : [])]);
  const named = columns(table, header).slice(0, SHOWN);
  const cells = (tag, texts) => texts.slice(0, SHOWN).map((text, i) => el(tag, { class: taken.has(i) ? "taken" : null, scope: tag === "th" ? "col" : null, text }));
  const more = table.rows[0].length > SHOWN ? [el("td", { class: "muted", text: `and ${count(table.rows[0].length - SHOWN)} more` })] : [];
  const start = header ? 1 : 0;
  $("#csv-rows").replaceChildren(
    el("thead", {}, el("tr", {}, cells("th", named.map(({ name }) => name)), more)),
    el("tbody", {}, table.rows.slice(start, start + PREVIEW).map((row) => el("tr", {}, cells("td", row)))));
  write($("#send-problem"), "");
}

/** Everything is checked before anything is sent. */
function* batches() {
  const header = $("#csv-header").checked;
  const x = chosen();
  if (!x.length) throw new BadFile("Choose at least one column of x.");
  const y = needs().label ? Number($("#csv-y").value) : null;
  if (x.includes(y)) throw new BadFile("The column of the label cannot be a column of x too.");
  const length = table.rows.length - (header ? 1 : 0);
  if (needs().cap && length > valueOf("cap")) throw new BadFile(`The file has ${count(length)} rows and the stream takes ${count(valueOf("cap"))}: raise the cap above, or take another measure.`);
  let batch = [];
  let characters = 0;
  for (const made of observations(table, { header, x, y, ...needs() })) {
    const text = JSON.stringify(made).slice(1);
    batch.push(text);
    characters += text.length;
    if (batch.length === BATCH || characters > BATCH_CHARACTERS) {
      yield batch;
      [batch, characters] = [[], 0];
    }
  }
  if (batch.length) yield batch;
}

async function send() {
  write($("#send-problem"), "");
  let all;
  try {
    all = await collected(batches());
  } catch (error) {
    if (!(error instanceof BadFile)) throw error;
    return write($("#send-problem"), error.message);
  }
  const stream = await create();
  if (stream === null) return write($("#send-problem"), $("#form-problem").textContent || $("#name-problem").textContent);
  await sendAll(stream, all);
}

/** All of it, with pauses in which the page stays alive. */
async function collected(parts) {
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
  let [seq, sent, state] = [stream.next_seq, 0, stream.state];
  working(true);
  progress(0, total, `Sending ${count(total)} rows…`);
  try {
    for (const batch of all) {
      const body = batch.map((text, i) => `{"seq":${seq + i},${text}`).join("\n");
      ({ state } = await persistently(() => post(stream.name, body)));
      seq += batch.length;
      sent += batch.length;
      progress(sent, total, `${count(sent)} of ${count(total)} rows sent.`);
    }
    progress(sent, total, `All ${count(total)} rows sent. ${verdict({ ...stream, state })}`, stream.name);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    const stopped = problem.code === "aborted";
    if (!stopped) write($("#send-problem"), problem.message);
    progress(sent, total, `${stopped ? "Stopped" : "It ended"} after ${count(sent)} of ${count(total)} rows; those are kept.`, stream.name);
  } finally {
    working(false);
  }
}

const post = (name, body) =>
  request(streamPath(name, "/observations"), { method: "POST", body, headers: { "Content-Type": "application/x-ndjson" }, signal: stopping.signal });

/** Numbered observations may be sent again without harm: the server counts each of them once. */
async function persistently(work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (problem) {
      const passing = problem.code !== "aborted" && [0, 429, 502, 503, 504].includes(problem.status);
      if (!passing || attempt === PATIENCE) throw problem;
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

function working(now) {
  show($("#stop"), now);
  $("#send").disabled = $("#create").disabled = now;
}

function progress(sent, total, words, name) {
  show($("#sending"), true);
  $("#progress").value = total ? sent / total : 0;
  $("#progress-line").replaceChildren(words, ...(name ? [" ", el("a", { href: pagePath(name), text: "See the stream" })] : []));
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
    fileChosen(event.dataTransfer.files[0]);
  });
  addEventListener("dragover", (event) => event.preventDefault()); // a file dropped beside it must not replace the page
  addEventListener("drop", (event) => event.preventDefault());
}

begin(() => {
  $("#measure").append(...Object.entries(MEASURES).map(([value, [text]]) => el("option", { value, text: `${text} (${value})` })));
  $("#bet").append(el("option", { value: "", text: "the one that suits the alarm" }), ...BETS.map((value) => el("option", { value, text: value })));
  $("#alarm").append(...Object.entries(ALARMS).map(([value, [text]]) => el("option", { value, text })));
  $("#name").value = (new URLSearchParams(location.search).get("name") ?? "").slice(0, 64);
  write($("#reference-line"), REFERENCE);
  $("#form").addEventListener("input", redraw);
  $("#form").addEventListener("submit", submitted);
  $("#name").addEventListener("input", checkName);
  $("#measure").addEventListener("change", drawFile);
  $("#reference").addEventListener("change", referenceChosen);
  $("#copy-curl").addEventListener("click", (event) => copy(event.target, $("#curl").textContent));
  $("#csv").addEventListener("change", (event) => fileChosen(event.target.files[0]));
  $("#csv-header").addEventListener("change", drawFile);
  $("#csv-y").addEventListener("change", drawRows);
  $("#send").addEventListener("click", send);
  $("#stop").addEventListener("click", () => stopping?.abort());
  droppable($("#drop"));
  redraw();
  checkName();
  return request("/v1/streams?limit=1").catch((problem) => problem.status === 401 && Promise.reject(problem)); // asks for a token early
});
