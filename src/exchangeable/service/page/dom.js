// Helpers for DOM elements. Text is always inserted as text, never as markup.

export const $ = (selector, root = document) => root.querySelector(selector);

/** Create an element with attributes (`on…` are listeners, `text` is its text) and children (nodes or strings). */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an SVG element in the same way. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) attribute(node, name, value);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function attribute(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "text") node.textContent = value;
  else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else node.setAttribute(name, value === true ? "" : value);
}

/** Set the text of a node if it has changed: an unchanged node costs no layout and is not announced again. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Show or hide a node. */
export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

/** Run `work` once in the next frame, however often it is requested. */
export function perFrame(work) {
  let requested = false;
  return () => {
    if (requested) return;
    requested = true;
    requestAnimationFrame(() => {
      requested = false;
      work();
    });
  };
}

/** Run `work` at most once in `pause` milliseconds: immediately if possible, and again if it was requested since. */
export function throttled(work, pause) {
  let last = -Infinity;
  let timer = null;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      last = performance.now();
      work();
    }, Math.max(0, last + pause - performance.now()));
  };
}

/** Run `work` after `pause` milliseconds without another request. */
export function settled(work, pause) {
  let timer = null;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), pause);
  };
}

/** Offer a file to save. */
export function save(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Copy a text, and confirm it on the button for a moment. */
export async function copy(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copying is not allowed";
  }
  setTimeout(() => (button.textContent = label), 1600);
}
