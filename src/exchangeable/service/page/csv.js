// Reads CSV files in the browser: rows of text, or an error with a clear message. What may be read in two ways is refused.

export const MAX_BYTES = 20 * 2 ** 20;
export const MAX_ROWS = 500_000;
const MAX_COLUMNS = 4096;
const MAX_LABEL = 256;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const COMMA_NUMBER = /^\s*[+-]?(\d+,?\d*|,\d+)(e[+-]?\d+)?\s*$/i;
const GROUPED = /^[+-]?\d{1,3}(,\d{3})*$/;
// a value rather than a name: a number in any notation, a date or a boolean
const VALUE = /^([+-]?(\d+([., \u00a0\u202f]\d+)*[.,]?|[.,]\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|true|false|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([t ].*)?)$/i;
const STATED = /^"?sep=([,;|\t])"?[,;|\t]*\r?\n/; // a first line for Excel
const DELIMITERS = [",", ";", "\t", "|"];
const ONE_COLUMN = "\u001f"; // a character that text does not contain
const SAMPLE = 65_536; // characters, and
const SAMPLE_ROWS = 200; // from which the delimiter is detected
const RISING_ROWS = 8; // fewer rows may rise by chance
const SLICE = 40; // ms of work before the page may respond

/** The file cannot be used; the message says why. */
export class BadFile extends Error {}

/** Parse a number; null for anything else, also "", "NaN" and "inf". `decimal` is its decimal mark. */
export function number(text, decimal = ".") {
  const trimmed = text.trim();
  if (decimal === "," && trimmed.includes(".")) return null; // 1.234 might be 1234
  const pointed = decimal === "," ? trimmed.replace(",", ".") : trimmed;
  if (!NUMBER.test(pointed)) return null;
  const value = Number(pointed);
  return Number.isFinite(value) ? value : null;
}

/** Read a file: `{rows: [[text]], lines: [row number as in a spreadsheet], decimal: "." or ","}`. */
export async function readFile(file) {
  if (file.size > MAX_BYTES) throw new BadFile(`${file.name} has ${(file.size / 2 ** 20).toFixed(1)} MB; at most ${MAX_BYTES / 2 ** 20} MB are allowed here.`);
  const text = new TextDecoder().decode(await file.arrayBuffer());
  if (text.includes("\u0000")) throw new BadFile(`${file.name} is not a text file.`);
  const table = await parse(text);
  if (!table.rows.length) throw new BadFile(`${file.name} is empty.`);
  return table;
}

/** Split a text into rows of fields, with quotes as in RFC 4180. */
export async function parse(text) {
  const stated = STATED.exec(text);
  const body = stated ? text.slice(stated[0].length) : text;
  const mark = stated ? stated[1] : delimiter(body);
  const table = await split(body, mark, stated ? 1 : 0);
  return { ...table, decimal: decimalMark(table.rows, mark) };
}

async function split(text, mark, above) {
  const rows = [];
  const lines = [];
  let line = above;
  let since = performance.now();
  for (const row of records(text, mark)) {
    line++;
    if (row.length === 1 && row[0].trim() === "") continue;
    if (rows.length && row.length !== rows[0].length) throw new BadFile(`Row ${line} has ${fields(row.length)}, the first row has ${fields(rows[0].length)}.`);
    if (row.length > MAX_COLUMNS) throw new BadFile(`Row ${line} has ${row.length} fields; at most ${MAX_COLUMNS} are allowed.`);
    if (rows.length > MAX_ROWS) throw new BadFile(`The file has more than ${MAX_ROWS.toLocaleString("en")} rows.`);
    rows.push(row);
    lines.push(line);
    if (line % 1000 === 0 && performance.now() - since > SLICE) {
      await new Promise((done) => setTimeout(done));
      since = performance.now();
    }
  }
  return { rows, lines };
}

const fields = (k) => (k === 1 ? "1 field" : `${k} fields`);

/**
 * Detect the delimiter as the package's own reader does: most rows have the same number of fields with it; then the
 * first row has as many too; then most fields are values; then it is a comma. A comma that may be a decimal mark as well
 * is never guessed.
 */
export function delimiter(text) {
  const sample = text.length > SAMPLE ? text.slice(0, text.lastIndexOf("\n", SAMPLE) + 1 || SAMPLE) : text;
  const lines = sample.split(/\r?\n|\r/).filter((line) => line.trim()).slice(0, SAMPLE_ROWS);
  const mark = DELIMITERS.map((candidate) => score(sample, candidate)).reduce((best, one) => (better(one, best) ? one : best)).mark;
  return mark === "," ? comma(lines) : mark;
}

/** Return the comma, or no delimiter if it is the decimal mark of a single column; refuse what can be read either way. */
function comma(lines) {
  if (!lines.some((line) => line.includes(","))) return ",";
  const named = lines.length > 1 && !VALUE.test(lines[0].trim());
  const below = named ? lines.slice(1) : lines;
  if ((named && lines[0].includes(",")) || !below.every((line) => COMMA_NUMBER.test(line))) return ",";
  const example = below.find((line) => line.includes(",")).trim();
  const grouped = below.every((line) => !line.includes(",") || /^\s*[+-]?\d{1,3},\d{3}\s*$/.test(line));
  if (named && !grouped) return ONE_COLUMN;
  const other = named ? `${example.replace(",", "")} with a comma for thousands` : "two columns";
  throw new BadFile(`Is “${example}” one number with a decimal comma, or ${other}? Write decimals with a point${named ? ", and thousands without a comma" : ", or name the columns in the first row"}.`);
}

/** Rate a delimiter, in order of importance. */
function score(sample, mark) {
  const rows = [];
  try {
    for (const row of records(sample, mark)) {
      if (row.length > 1 || row[0].trim()) rows.push(row);
      if (rows.length === SAMPLE_ROWS) break;
    }
  } catch (error) {
    if (!(error instanceof BadFile)) throw error; // a quotation mark that is never closed: reported when the rows are read
  }
  const below = rows.length > 1 ? rows.slice(1) : rows;
  const [width, times] = mostFrequent(below.map((row) => row.length));
  const cells = below.flat();
  const used = width > 1 && 2 * times >= below.length;
  return { mark, order: [used, used ? times / below.length : 0, used && rows[0].length === width, cells.filter(isValue).length / Math.max(1, cells.length), mark === ","].map(Number) };
}

function better(one, other) {
  const i = one.order.findIndex((value, k) => value !== other.order[k]);
  return i >= 0 && one.order[i] > other.order[i];
}

/** Return the most frequent number, the first of equal ones, and how often it occurs. */
function mostFrequent(numbers) {
  const counts = new Map();
  for (const one of numbers) counts.set(one, (counts.get(one) ?? 0) + 1);
  return [...counts].reduce((best, one) => (one[1] > best[1] ? one : best), [0, 0]);
}

/** Return the decimal mark: a comma if some column has numbers only with it, and no column has decimals with a point. */
function decimalMark(rows, mark) {
  if (!rows.length) return ".";
  const body = rows.slice(rows.length > 1 && !rows[0].some(isValue) ? 1 : 0);
  const cells = (i) => body.map((row) => row[i].trim()).filter(Boolean);
  const has = (i, sign) => body.some((row) => row[i].includes(sign));
  const commas = (_, i) => has(i, ",") && cells(i).every((cell) => COMMA_NUMBER.test(cell)) && (mark !== "," || !cells(i).every((cell) => GROUPED.test(cell)));
  const points = (_, i) => has(i, ".") && cells(i).every((cell) => number(cell) !== null);
  return rows[0].some(commas) && !rows[0].some(points) ? "," : ".";
}

function* records(text, mark) {
  let at = 0;
  let row = [];
  while (at < text.length) {
    let field;
    [field, at] = text[at] === '"' ? quoted(text, at, mark) : bare(text, at, mark);
    row.push(field);
    if (text[at] === mark) {
      at++;
      if (at < text.length) continue;
      row.push("");
    }
    if (text[at] === "\r") at++;
    if (text[at] === "\n") at++;
    yield row;
    row = [];
  }
}

function bare(text, start, mark) {
  let stop = start;
  while (stop < text.length && text[stop] !== mark && text[stop] !== "\n" && text[stop] !== "\r") stop++;
  return [text.slice(start, stop), stop];
}

function quoted(text, start, mark) {
  let stop = start + 1;
  for (;;) {
    stop = text.indexOf('"', stop);
    if (stop < 0) throw new BadFile("A quotation mark in the file is never closed.");
    if (text[stop + 1] !== '"') break;
    stop += 2;
  }
  const [rest, end] = bare(text, stop + 1, mark); // text after the closing quote belongs to the field
  return [text.slice(start + 1, stop).replaceAll('""', '"') + rest, end];
}

const isValue = (text) => VALUE.test(text.trim());

/** Return whether the first row holds column names: one is above values only, or none is a value and they differ. */
export function hasHeader({ rows }) {
  if (rows.length < 2) return false;
  const [first, ...below] = [rows[0], ...rows.slice(1, SAMPLE_ROWS)];
  const above = (name, i) => {
    const cells = below.map((row) => row[i]).filter((cell) => cell.trim());
    return name.trim() && !isValue(name) && cells.length > 0 && cells.every(isValue);
  };
  if (first.some(above)) return true;
  const names = first.filter((name) => name.trim());
  return !first.some(isValue) && new Set(names).size === names.length;
}

/**
 * Return the names of the columns, the first value of each, whether it is a number, and whether the values only rise,
 * as those of an index or a time do.
 */
export function columns({ rows, decimal }, header) {
  const body = rows.slice(header && rows.length > 1 ? 1 : 0);
  return rows[0].map((text, i) => ({
    name: header && text.trim() ? text.trim() : `column ${i + 1}`,
    first: body[0][i].trim(),
    numeric: number(body[0][i], decimal) !== null,
    rising: body.length >= RISING_ROWS && body.every((row, k) => number(row[i], decimal) !== null && (k === 0 || number(row[i], decimal) > number(body[k - 1][i], decimal))),
  }));
}

/** Return the position of the column to test first: the first one of numbers that do not only rise, or -1. */
export const firstNumbers = (named) => named.findIndex(({ numeric, rising }) => numeric && !rising);

/** Yield the observations: `x` is a number or a list, `y` a label. Throws at the first invalid field. */
export function* observations({ rows, lines, decimal }, { header, x, y, scalar, unit, event, bounds, numericLabel }) {
  const names = columns({ rows }, header);
  const where = (row, column) => `Row ${lines[row]}, column “${names[column].name}”`;
  for (let row = header ? 1 : 0; row < rows.length; row++) {
    const values = x.map((column) => numberAt(rows[row][column], decimal, () => where(row, column)));
    if (unit && !(values[0] > 0 && values[0] <= 1)) throw new BadFile(`${where(row, x[0])}: a p-value must be in (0, 1], got ${values[0]}.`);
    if (event && values[0] !== 0 && values[0] !== 1) throw new BadFile(`${where(row, x[0])}: an event must be 0 or 1, got ${values[0]}.`);
    if (bounds && !(values[0] >= bounds[0] && values[0] <= bounds[1])) throw new BadFile(`${where(row, x[0])}: a loss must be from ${bounds[0]} to ${bounds[1]}, got ${values[0]}.`);
    const observation = { x: scalar ? values[0] : values };
    if (y !== null) observation.y = numericLabel ? numberAt(rows[row][y], decimal, () => where(row, y)) : labelAt(rows[row][y].trim(), () => where(row, y));
    yield observation;
  }
}

function numberAt(text, decimal, where) {
  const value = number(text, decimal);
  if (value !== null) return value;
  if (!text.trim()) throw new BadFile(`${where()}: a number is missing.`);
  const other = decimal === "," ? "." : ",";
  const advice = /^[+-]?\d+[.,\d]*$/.test(text.trim()) && text.includes(other) ? ` The decimals of this file are written with a ${decimal === "," ? "comma" : "point"}.` : "";
  throw new BadFile(`${where()}: “${short(text)}” is not a finite number.${advice}`);
}

function labelAt(text, where) {
  if (!text) throw new BadFile(`${where()}: the label is missing.`);
  if (text.length > MAX_LABEL) throw new BadFile(`${where()}: a label must have at most ${MAX_LABEL} characters, got ${text.length}.`);
  return text;
}

const short = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);
