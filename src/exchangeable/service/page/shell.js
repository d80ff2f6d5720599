// Shared by all pages: sign-in, connection status, notifications, and messages for screen readers.

import { Problem, request, token } from "./api.js";
import { $, el, show, write } from "./dom.js";

const PATIENCE = 1200; // ms: a connection that is restored sooner is not reported

/** Start a page: `work` draws it. If a token is needed, the sign-in form is shown instead. */
export async function startPage(work) {
  document.addEventListener("unauthorised", () => signIn(), { once: true });
  $("#sign-out").addEventListener("click", signOut);
  show($("#sign-out"), token.get() !== null);
  try {
    await work();
  } catch (problem) {
    if (problem.status !== 401) throw problem;
  }
}

function signOut() {
  token.drop();
  location.reload();
}

/** Replace the page with a form that asks for a token. */
function signIn() {
  const known = token.get() !== null;
  show($("#content"), false);
  show($("#connection"), false);
  show($("#live"), false);
  const form = $("#sign-in") ?? $("main").appendChild(signInForm());
  if (known) showError(form, "This token is no longer valid. It may have been revoked.");
  token.drop();
  show($("#sign-out"), false);
  $("input", form).focus();
}

function signInForm() {
  const input = el("input", {
    id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    placeholder: "ex_…", "aria-describedby": "token-hint token-problem",
  });
  const form = el("form", { id: "sign-in", class: "card narrow" },
    el("h1", { text: "Sign in" }),
    el("p", { id: "token-hint", class: "muted" },
      "This server requires a token. Its operator creates one with ", el("code", { text: "exchangeable token" }),
      "; this page needs the scope ", el("code", { text: "read" }), "."),
    el("label", { for: "token", text: "Token" }),
    input,
    el("p", { id: "token-problem", class: "problem", role: "alert" }),
    el("button", { class: "primary", text: "Sign in" }),
    el("p", { class: "hint", text: "The token is kept in this tab only, and removed when you close it." }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tryToken(form, input.value.trim());
  });
  return form;
}

async function tryToken(form, value) {
  const button = $("button", form);
  if (!value) return showError(form, "Enter a token.");
  if (!/^[\x21-\x7e]+$/.test(value)) return showError(form, "A token contains no spaces or special characters.");
  button.disabled = true;
  token.set(value);
  try {
    await request("/v1/streams?limit=1");
    location.reload();
  } catch (problem) {
    token.drop();
    button.disabled = false;
    showError(form, problem.status === 401 ? "This token is not valid." : problem.message);
  }
}

function showError(form, text) {
  write($("#token-problem", form), text);
  $("input", form).setAttribute("aria-invalid", "true");
}

/** Show the connection status: a dot in the header, and a banner when it is lost, whose button calls `retry`. */
export function connection(retry) {
  const banner = $("#connection");
  const dot = $("#live");
  let bannerTimer = null;
  let until = null;
  $("button", banner).addEventListener("click", retry);
  setInterval(() => until && write($("span", banner), lost(until)), 500);
  return ({ state, until: next, problem }) => {
    dot.dataset.state = state;
    write(dot, STATUS_TEXTS[state]);
    until = state === "waiting" ? next : null;
    if (state === "live" || state === "asleep" || state === "refused") {
      clearTimeout(bannerTimer);
      bannerTimer = null;
      show(banner, false);
    } else if (state === "waiting") {
      write($("strong", banner), problem.status ? problem.message : "Disconnected.");
      write($("span", banner), lost(until));
      bannerTimer ??= setTimeout(() => show(banner, true), PATIENCE);
    } else if (bannerTimer !== null) {
      write($("span", banner), "Connecting…");
    }
  };
}

const STATUS_TEXTS = {
  connecting: "Connecting", live: "Live", waiting: "Reconnecting", asleep: "Asleep", refused: "Not connected", paused: "Paused",
};

function lost(until) {
  const seconds = Math.max(0, Math.ceil((until - Date.now()) / 1000));
  return `This page may be out of date. Retrying${seconds > 1 ? ` in ${seconds} s` : ""}…`;
}

/** Announce a message to screen readers. */
export function announce(text) {
  write($("#announcer"), text);
}

/** Show a message that disappears after a while. */
export function toast(text, kind = "info") {
  const note = el("div", { class: `toast ${kind}`, role: kind === "problem" ? "alert" : "status" },
    el("span", { text }), el("button", { class: "quiet", "aria-label": "Dismiss", text: "✕", onclick: () => note.remove() }));
  $("#toasts").append(note);
  setTimeout(() => note.remove(), kind === "problem" ? 12_000 : 5_000);
}

/** Build a panel that explains an error and offers to retry. */
export function troublePanel(problem, again) {
  const { title, advice } = explain(problem);
  return el("div", { class: "panel trouble", role: "alert" },
    el("h2", { text: title }),
    el("p", { text: problem.message }),
    advice && el("p", { class: "muted", text: advice }),
    again && el("button", { text: "Try again", onclick: again }));
}

function explain({ status }) {
  if (status === 0) return { title: "The server cannot be reached", advice: "Check that it is running and that the network works." };
  if (status === 403) return { title: "Not allowed", advice: "Sign in with a token that has the required scope." };
  if (status === 404) return { title: "Not found" };
  if (status === 429) return { title: "The server is busy", advice: "Wait a moment." };
  if (status === 503) return { title: "The server is not ready", advice: "It may be starting, or its disk may have failed. Nothing that it acknowledged is lost." };
  if (status === 507) return { title: "The server's disk is full", advice: "Nothing that it acknowledged is lost. It continues when there is space again." };
  if (status >= 500) return { title: "The server had an error", advice: "Its log has the details." };
  return { title: "The request failed" };
}

/** Run `work`; a problem becomes a message. Returns whether it succeeded. */
export async function attempt(work, report = (problem) => toast(problem.message, "problem")) {
  try {
    await work();
    return true;
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status !== 401 && problem.code !== "aborted") report(problem);
    return false;
  }
}

/** Run background work, which is repeated anyway, without showing problems. */
export const quietly = (work) => attempt(work, () => {});
