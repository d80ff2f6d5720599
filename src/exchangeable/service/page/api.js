// Requests: the token, errors as problems with one sentence, no request without an end.

const KEY = "exchangeable.token";
const PATIENCE = 30_000;

/** A refusal, or no answer (status 0). */
export class Problem extends Error {
  constructor(status, code, message, extra = {}) {
    super(message);
    Object.assign(this, { status, code, extra, after: null });
  }
}

/** The token lives as long as the tab. */
export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  drop: () => sessionStorage.removeItem(KEY),
};

/** The reply to a request, or a Problem; for bodies that are read piece by piece. */
export async function open(path, { method = "GET", body, headers = {}, signal } = {}) {
  const bearer = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  let reply;
  try {
    reply = await fetch(path, { method, body, signal, cache: "no-store", headers: { ...headers, ...bearer } });
  } catch (error) {
    throw signal?.aborted ? aborted(signal) : unreachable(error);
  }
  if (!reply.ok) throw await refusal(reply);
  return reply;
}

/** The reply's JSON (or null where there is none). */
export async function request(path, { json, signal, ...rest } = {}) {
  const given = json === undefined ? {} : { body: JSON.stringify(json), headers: { "Content-Type": "application/json" } };
  return (await whole(path, { ...given, ...rest, signal })).json;
}

/** The reply's bytes. */
export async function bytes(path) {
  return (await open(path, { signal: AbortSignal.timeout(4 * PATIENCE) })).arrayBuffer();
}

async function whole(path, options) {
  const limit = AbortSignal.timeout(PATIENCE);
  const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
  const reply = await open(path, { ...options, signal });
  if (reply.status === 204) return { json: null };
  try {
    return { json: await reply.json() };
  } catch (error) {
    throw signal.aborted ? aborted(signal) : unreachable(error);
  }
}

async function refusal(reply) {
  let body = {};
  try {
    body = await reply.json();
  } catch {
    // the answer of a proxy, or an internal error: the status has to do
  }
  const said = typeof body.message === "string" ? body.message : SAID[reply.status] ?? `The server answered ${reply.status}.`;
  const problem = new Problem(reply.status, body.error ?? "unknown", said, body);
  const seconds = Number(reply.headers.get("Retry-After"));
  if (seconds > 0) problem.after = Math.min(60, seconds) * 1000;
  if (reply.status === 401) document.dispatchEvent(new CustomEvent("unauthorised", { detail: problem }));
  return problem;
}

const SAID = {
  500: "The server met an error of its own.",
  502: "The server behind the proxy does not answer.",
  503: "The server is not ready.",
  504: "The server behind the proxy took too long.",
  507: "The server's disk is full.",
};

function aborted(signal) {
  if (signal.reason?.name !== "TimeoutError") return new Problem(0, "aborted", "The request was given up.");
  return new Problem(0, "timeout", "The server took too long to answer.");
}

const unreachable = () =>
  new Problem(0, "offline", navigator.onLine ? "The server cannot be reached." : "This device is offline.");

export const streamPath = (name, rest = "") => `/v1/streams/${encodeURIComponent(name)}${rest}`;
export const pagePath = (name) => `/streams/${encodeURIComponent(name)}`;

/** The same request by hand. */
export function curl(path, body, method = "POST") {
  const secret = token.get() ? `  -H "Authorization: Bearer $EXCHANGEABLE_TOKEN" \\\n` : "";
  const how = method === "POST" ? "" : `-X ${method} `;
  return `curl ${how}${location.origin}${path} \\\n${secret}  -H 'Content-Type: application/json' \\\n  -d ${body.startsWith("@") ? body : `'${body}'`}`;
}

/** `path?key=value`, leaving out what is empty. */
export function query(path, values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
