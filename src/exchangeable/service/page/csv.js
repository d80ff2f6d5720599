// Reads CSV files in the browser: rows of text, or an error with a clear message.

export const MAX_BYTES = 20 * 2 ** 20;
export const MAX_ROWS = 500_000;
const MAX_COLUMNS = 4096;
const MAX_LABEL = 256;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const SLICE = 40; // ms of work before the page may respond

/** The file cannot be used; the message says why. */
export class BadFile extends Error {}

/** Parse a number; null for anything else, also "", "NaN" and "inf". */
export function number(text) {
  const trimmed = text.trim();
  if (!NUMBER.test(trimmed)) return null;
  const value = Number(trimmed);
  return Number.isFinite(value) ? value : null;
}

/** Read a file: `{rows: [[text]], lines: [row number as in a spreadsheet]}`. */
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
  const rows = [];
  const lines = [];
  let line = 0;
  let since = performance.now();
  for (const row of records(text, delimiter(text))) {
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

/** Detect the delimiter: the one of , ; tab | that is most frequent in the first line. */
export function delimiter(text) {
  const [first] = text.slice(0, 65_536).replace(/"[^"]*"/g, "").split(/\r?\n|\r/).filter((line) => line.trim());
  const frequency = (mark) => (first ?? "").split(mark).length;
  return [",", ";", "\t", "|"].reduce((best, mark) => (frequency(mark) > frequency(best) ? mark : best));
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

/** Return whether the first row holds column names, that is, no number. */
export const hasHeader = ({ rows }) => rows.length > 1 && rows[0].every((text) => number(text) === null);

/** Return the names of the columns, and whether the first value of each is a number. */
export function columns({ rows }, header) {
  const first = rows[header ? 1 : 0] ?? rows[0];
  return rows[0].map((text, i) => ({ name: header && text.trim() ? text.trim() : `column ${i + 1}`, numeric: number(first[i]) !== null }));
}

/** Yield the observations: `x` is a number or a list, `y` a label. Throws at the first invalid field. */
export function* observations({ rows, lines }, { header, x, y, scalar, unit, event, numericLabel }) {
  const names = columns({ rows }, header);
  const where = (row, column) => `Row ${lines[row]}, column “${names[column].name}”`;
  for (let row = header ? 1 : 0; row < rows.length; row++) {
    const values = x.map((column) => numberAt(rows[row][column], () => where(row, column)));
    if (unit && !(values[0] > 0 && values[0] <= 1)) throw new BadFile(`${where(row, x[0])}: a p-value must be in (0, 1], got ${values[0]}.`);
    if (event && values[0] !== 0 && values[0] !== 1) throw new BadFile(`${where(row, x[0])}: an event must be 0 or 1, got ${values[0]}.`);
    const observation = { x: scalar ? values[0] : values };
    if (y !== null) observation.y = numericLabel ? numberAt(rows[row][y], () => where(row, y)) : labelAt(rows[row][y].trim(), () => where(row, y));
    yield observation;
  }
}

function numberAt(text, where) {
  const value = number(text);
  if (value !== null) return value;
  if (!text.trim()) throw new BadFile(`${where()}: a number is missing.`);
  const advice = /^[+-]?\d+,\d+$/.test(text.trim()) ? " Use a point for decimals." : "";
  throw new BadFile(`${where()}: “${short(text)}” is not a finite number.${advice}`);
}

function labelAt(text, where) {
  if (!text) throw new BadFile(`${where()}: the label is missing.`);
  if (text.length > MAX_LABEL) throw new BadFile(`${where()}: a label must have at most ${MAX_LABEL} characters, got ${text.length}.`);
  return text;
}

const short = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);
