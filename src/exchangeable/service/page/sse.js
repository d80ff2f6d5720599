// Server-sent events over fetch: EventSource cannot send a token.

import { Problem, open } from "./api.js";

const MAX_SILENCE = 45_000; // three missed heartbeats
const FIRST = 500;
const LONGEST = 15_000;
const STEADY = 5_000; // ms: a connection that lasted this long resets the delay
const HIDDEN = 30_000; // ms: a hidden tab closes its connection, since a browser has only six for a server

/** Parses events from text that arrives in arbitrary parts. */
export class Parser {
  #rest = "";
  #event = { type: "message", data: [], id: null };

  /** Return the events that this text completes. */
  feed(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    return lines.map((line) => this.#line(line)).filter(Boolean);
  }

  #line(line) {
    if (line === "") return this.#complete();
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
    if (field === "event") this.#event.type = value;
    if (field === "data") this.#event.data.push(value ?? "");
    if (field === "id") this.#event.id = value;
    return null;
  }

  #complete() {
    const { type, data, id } = this.#event;
    this.#event = { type: "message", data: [], id: null };
    return data.length ? { type, id, data: JSON.parse(data.join("\n")) } : null;
  }
}

/**
 * Listens to the events at `path` and reconnects without end, resuming after the last id.
 *
 * `onEvent(type, data)`; `onStatus({state, problem, until})` with a state of connecting, live, waiting (until the next
 * attempt), asleep (hidden tab) or refused (no further attempts).
 */
export class Listener {
  #abort = null;
  #attempts = 0;
  #since = Infinity;
  #lastId = null;
  #retry = null;
  #silence = null;
  #asleep = null;
  #closed = false;

  constructor(path, { onEvent, onStatus }) {
    Object.assign(this, { path, onEvent, onStatus });
    this.onVisibility = () => this.#visibility();
    document.addEventListener("visibilitychange", this.onVisibility);
    this.onOnline = () => this.retry();
    addEventListener("online", this.onOnline);
    this.#connect();
  }

  /** Reconnect now. */
  retry() {
    if (this.#retry === null || this.#closed) return;
    clearTimeout(this.#retry);
    this.#retry = null;
    this.#connect();
  }

  close() {
    this.#closed = true;
    document.removeEventListener("visibilitychange", this.onVisibility);
    removeEventListener("online", this.onOnline);
    clearTimeout(this.#retry);
    clearTimeout(this.#asleep);
    this.#abort?.abort();
  }

  async #connect() {
    const abort = (this.#abort = new AbortController());
    this.onStatus({ state: "connecting" });
    try {
      const resumed = this.#lastId === null ? {} : { "Last-Event-ID": this.#lastId };
      const reply = await open(this.path, { headers: { Accept: "text/event-stream", ...resumed }, signal: abort.signal });
      this.#since = performance.now();
      this.onStatus({ state: "live" });
      await this.#read(reply.body.pipeThrough(new TextDecoderStream()).getReader());
      throw new Problem(0, "closed", "The server closed the connection.");
    } catch (problem) {
      if (this.#abort === abort) this.#failed(problem);
    } finally {
      clearTimeout(this.#silence);
    }
  }

  async #read(reader) {
    const parser = new Parser();
    for (;;) {
      this.#listenFor(MAX_SILENCE);
      const { done, value } = await reader.read();
      if (done) return;
      for (const event of parser.feed(value)) {
        if (event.id !== null) this.#lastId = event.id;
        if (this.#closed) return;
        this.onEvent(event.type, event.data);
      }
    }
  }

  #listenFor(silence) {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#abort?.abort(), silence);
  }

  #failed(problem) {
    if (this.#closed) return;
    if (this.#asleep === "asleep") return this.onStatus({ state: "asleep" });
    if ([400, 401, 403, 404, 410].includes(problem.status)) return this.onStatus({ state: "refused", problem });
    if (performance.now() - this.#since > STEADY) this.#attempts = 0;
    this.#since = Infinity;
    const delay = problem.after ?? Math.min(LONGEST, FIRST * 2 ** this.#attempts++) * (0.75 + Math.random() / 2);
    this.#retry = setTimeout(() => this.retry(), delay);
    this.onStatus({ state: "waiting", problem, until: Date.now() + delay });
  }

  #visibility() {
    if (document.hidden) {
      this.#asleep ??= setTimeout(() => this.#sleep(), HIDDEN);
    } else {
      const slept = this.#asleep === "asleep";
      if (!slept) clearTimeout(this.#asleep);
      this.#asleep = null;
      if (slept) this.#connect();
      else this.retry();
    }
  }

  #sleep() {
    this.#asleep = "asleep";
    clearTimeout(this.#retry);
    this.#retry = null;
    this.#abort?.abort();
    this.onStatus({ state: "asleep" });
  }
}
