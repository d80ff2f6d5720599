// Requests to the API, with the token and a time limit; errors become problems with a message.

const KEY = "exchangeable.token";
const PATIENCE = 30_000;

/** An error response, or no response (status 0). */
export class Problem extends Error {
  constructor(status, code, message, extra = {}) {
    super(message);
    Object.assign(this, { status, code, extra, after: null });
  }
}

/** The token is stored as long as the tab is open. */
export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  drop: () => sessionStorage.removeItem(KEY),
};

/** Send a request and return the response, whose body may be read in parts; throws a Problem. */
export async function open(path, { method = "GET", body, headers = {}, signal } = {}) {
  const bearer = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  let reply;
  try {
    reply = await fetch(path, { method, body, signal, cache: "no-store", headers: { ...headers, ...bearer } });
  } catch (error) {
    throw signal?.aborted ? aborted(signal) : unreachable(error);
  }
  if (!reply.ok) throw await problemFrom(reply);
  return reply;
}

/** Send a request and return the JSON of the response, or null if it has none. */
export async function request(path, { json, signal, ...rest } = {}) {
  const options = json === undefined ? {} : { body: JSON.stringify(json), headers: { "Content-Type": "application/json" } };
  return (await complete(path, { ...options, ...rest, signal })).json;
}

/** Download a file. */
export async function bytes(path) {
  return (await open(path, { signal: AbortSignal.timeout(4 * PATIENCE) })).arrayBuffer();
}

async function complete(path, options) {
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

async function problemFrom(reply) {
  let body = {};
  try {
    body = await reply.json();
  } catch {
    // perhaps the page of a proxy: only the status is known
  }
  const message = typeof body.message === "string" ? body.message : MESSAGES[reply.status] ?? `The server answered ${reply.status}.`;
  const problem = new Problem(reply.status, body.error ?? "unknown", message, body);
  const seconds = Number(reply.headers.get("Retry-After"));
  if (seconds > 0) problem.after = Math.min(60, seconds) * 1000;
  if (reply.status === 401) document.dispatchEvent(new CustomEvent("unauthorised", { detail: problem }));
  return problem;
}

const MESSAGES = {
  500: "The server had an internal error.",
  502: "The server behind the proxy does not respond.",
  503: "The server is not ready.",
  504: "The server behind the proxy took too long.",
  507: "The server's disk is full.",
};

function aborted(signal) {
  if (signal.reason?.name !== "TimeoutError") return new Problem(0, "aborted", "The request was cancelled.");
  return new Problem(0, "timeout", "The server took too long to answer.");
}

const unreachable = () =>
  new Problem(0, "offline", navigator.onLine ? "The server cannot be reached." : "This device is offline.");

export const streamPath = (name, rest = "") => `/v1/streams/${encodeURIComponent(name)}${rest}`;
export const pagePath = (name) => `/streams/${encodeURIComponent(name)}`;

/** Return the curl command of a request. */
export function curl(path, body, method = "POST") {
  const secret = token.get() ? `  -H "Authorization: Bearer $EXCHANGEABLE_TOKEN" \\\n` : "";
  const how = method === "POST" ? "" : `-X ${method} `;
  return `curl ${how}${location.origin}${path} \\\n${secret}  -H 'Content-Type: application/json' \\\n  -d ${body.startsWith("@") ? body : `'${body}'`}`;
}

/** Build `path?key=value`, without empty values. */
export function query(path, values) {
  const filled = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return filled.length ? `${path}?${new URLSearchParams(filled)}` : path;
}
