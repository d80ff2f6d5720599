// What all pages share: signing in, the state of the connection, notices, and messages for screen readers.

import { Problem, request, token } from "./api.js";
import { $, el, show, write } from "./dom.js";

const PATIENCE = 1200; // a connection that is back before then was never worth a word

/** Begin a page: `work` draws it; a refusal for want of a token becomes the sign-in form. */
export async function begin(work) {
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

/** The form that asks for a token, in place of the page. */
function signIn() {
  const known = token.get() !== null;
  show($("#content"), false);
  show($("#connection"), false);
  show($("#live"), false);
  const form = $("#sign-in") ?? $("main").appendChild(signInForm());
  if (known) complain(form, "The server does not know this token any more. It may have been revoked.");
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
      "This server wants a token. Who runs it makes one with ", el("code", { text: "exchangeable token" }),
      "; reading needs the scope ", el("code", { text: "read" }), "."),
    el("label", { for: "token", text: "Token" }),
    input,
    el("p", { id: "token-problem", class: "problem", role: "alert" }),
    el("button", { class: "primary", text: "Sign in" }),
    el("p", { class: "hint", text: "It is kept in this tab only and forgotten when you close it." }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tryToken(form, input.value.trim());
  });
  return form;
}

async function tryToken(form, value) {
  const button = $("button", form);
  if (!value) return complain(form, "Type or paste a token.");
  if (!/^[\x21-\x7e]+$/.test(value)) return complain(form, "A token has no spaces and no special letters.");
  button.disabled = true;
  token.set(value);
  try {
    await request("/v1/streams?limit=1");
    location.reload();
  } catch (problem) {
    token.drop();
    button.disabled = false;
    complain(form, problem.status === 401 ? "The server does not know this token." : problem.message);
  }
}

function complain(form, text) {
  write($("#token-problem", form), text);
  $("input", form).setAttribute("aria-invalid", "true");
}

/** Show how the connection is: a dot in the head, and a banner once it is lost. `retry` is what its button does. */
export function connection(retry) {
  const banner = $("#connection");
  const dot = $("#live");
  let late = null;
  let until = null;
  $("button", banner).addEventListener("click", retry);
  setInterval(() => until && write($("span", banner), lost(until)), 500);
  return ({ state, until: next, problem }) => {
    dot.dataset.state = state;
    write(dot, WORDS[state]);
    until = state === "waiting" ? next : null;
    if (state === "live" || state === "asleep" || state === "refused") {
      clearTimeout(late);
      late = null;
      show(banner, false);
    } else if (state === "waiting") {
      write($("strong", banner), problem.status ? problem.message : "Disconnected.");
      write($("span", banner), lost(until));
      late ??= setTimeout(() => show(banner, true), PATIENCE);
    } else if (late !== null) {
      write($("span", banner), "Trying to connect…");
    }
  };
}

const WORDS = {
  connecting: "Connecting", live: "Live", waiting: "Reconnecting", asleep: "Asleep", refused: "Not connected", paused: "Paused",
};

function lost(until) {
  const seconds = Math.max(0, Math.ceil((until - Date.now()) / 1000));
  return `What you see may be old. Trying again${seconds > 1 ? ` in ${seconds} s` : ""}…`;
}

/** A message for screen readers. */
export function announce(text) {
  write($("#announcer"), text);
}

/** A message that goes away by itself. */
export function toast(text, kind = "info") {
  const note = el("div", { class: `toast ${kind}`, role: kind === "problem" ? "alert" : "status" },
    el("span", { text }), el("button", { class: "quiet", "aria-label": "Dismiss", text: "✕", onclick: () => note.remove() }));
  $("#toasts").append(note);
  setTimeout(() => note.remove(), kind === "problem" ? 12_000 : 5_000);
}

/** A panel that says what went wrong, with a way on. */
export function troublePanel(problem, again) {
  const { title, advice } = explained(problem);
  return el("div", { class: "panel trouble", role: "alert" },
    el("h2", { text: title }),
    el("p", { text: problem.message }),
    advice && el("p", { class: "muted", text: advice }),
    again && el("button", { text: "Try again", onclick: again }));
}

function explained({ status }) {
  if (status === 0) return { title: "The server cannot be reached", advice: "Is it running? Is the network there?" };
  if (status === 403) return { title: "Not allowed", advice: "Sign in with a token that has the scope for this." };
  if (status === 404) return { title: "Not found" };
  if (status === 429) return { title: "The server is busy", advice: "Wait a moment." };
  if (status === 503) return { title: "The server is not ready", advice: "It may be starting, or its disk may fail. Nothing that it acknowledged is lost." };
  if (status === 507) return { title: "The server's disk is full", advice: "Nothing that it acknowledged is lost. It goes on when there is room." };
  if (status >= 500) return { title: "The server met an error", advice: "Its log says more." };
  return { title: "This did not work" };
}

/** Do something that may be refused; a refusal becomes a message. True if it worked. */
export async function attempt(work, tell = (problem) => toast(problem.message, "problem")) {
  try {
    await work();
    return true;
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status !== 401 && problem.code !== "aborted") tell(problem);
    return false;
  }
}

/** The same for what nobody asked for: it is tried again by itself, and the banner says if the server is away. */
export const quietly = (work) => attempt(work, () => {});
