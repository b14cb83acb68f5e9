// Creates elements from data. Strings only ever become text nodes, never markup; the page's
// Content-Security-Policy makes the browser refuse any other way.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else if (name === "value" && "value" in element) element.value = value;
    else if (name === "checked") element.checked = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function put(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

// Replaces children as `put` does, but keeps elements that did not change: they keep their focus,
// scroll position and selected text. Controls that changed are replaced whole, with their handlers.
export function morph(element, ...children) {
  const next = append(document.createDocumentFragment(), children);
  return keepingFocus(element, () => sync(element, [...next.childNodes]));
}

const WHOLE = new Set(["BUTTON", "INPUT", "SELECT", "TEXTAREA"]);
const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

export function sync(element, next) {
  next.forEach((node, at) => {
    const now = element.childNodes[at];
    if (!now) element.append(node);
    else if (now.isEqualNode(node)) return;
    else if (now.nodeName !== node.nodeName || WHOLE.has(now.nodeName)) now.replaceWith(node);
    else if (now.nodeType === Node.TEXT_NODE) now.data = node.data;
    else {
      for (const { name } of [...now.attributes]) if (!node.hasAttribute(name)) now.removeAttribute(name);
      for (const { name, value } of node.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
      sync(now, [...node.childNodes]);
    }
  });
  while (element.childNodes.length > next.length) element.lastChild.remove();
}

export function keepingFocus(element, act) {
  const focused = document.activeElement;
  const at = element.contains(focused) ? [...element.querySelectorAll(FOCUSABLE)].indexOf(focused) : -1;
  act();
  if (at >= 0 && document.activeElement !== focused) (focused.isConnected ? focused : element.querySelectorAll(FOCUSABLE)[at])?.focus({ preventScroll: true });
  return element;
}

// Invisible characters, and those that change the text direction: shown by their code points.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffc]/g;

export function payload(text) {
  const parts = document.createDocumentFragment();
  let at = 0;
  for (const match of text.matchAll(HIDDEN)) {
    parts.append(text.slice(at, match.index));
    const code = match[0].codePointAt(0).toString(16).padStart(4, "0");
    parts.append(h("span", { class: "hidden-char", title: `U+${code.toUpperCase()}` }, `\\u${code}`));
    at = match.index + match[0].length;
  }
  parts.append(text.slice(at));
  return parts;
}

const ICONS = {
  overview: "M3 13h5V3H3zM12 17h5V8h-5zM3 17h5v-2H3zM12 6h5V3h-5z",
  topics: "M3 5h14M3 10h14M3 15h9",
  messages: "M3 4h14v9H9l-4 4v-4H3z",
  groups: "M7 9a3 3 0 100-6 3 3 0 000 6zM1.500 17c0-3 2.500-5 5.500-5s5.500 2 5.500 5M13 4a3 3 0 010 5M15 12c2 .6 3.500 2.500 3.500 5",
  queues: "M3 4h10v4H3zM3 12h14v4H3zM16 4v4",
  dlq: "M3 5h14v11H3zM3 6l7 5 7-5M8 2l4 0",
  schemas: "M7 3C4 3 6 9 3 10c3 1 1 7 4 7M13 3c3 0 1 6 4 7-3 1-1 7-4 7",
  nodes: "M4 3h12v5H4zM4 12h12v5H4zM7 5.500h.01M7 14.500h.01",
  pipelines: "M2 6h5v8H2zM13 6h5v8h-5zM7 10h6",
  security: "M10 2l7 3v5c0 4-3 7-7 8-4-1-7-4-7-8V5z",
  sun: "M10 6a4 4 0 100 8 4 4 0 000-8zM10 1v2M10 17v2M1 10h2M17 10h2M3.600 3.600L5 5M15 15l1.400 1.400M16.400 3.600L15 5M5 15l-1.400 1.400",
  moon: "M16 12A7 7 0 018 4a7 7 0 108 8z",
  help: "M7.500 7.500a2.500 2.500 0 113.500 2.300c-.7.3-1 .8-1 1.700M10 14.500h.01M10 18a8 8 0 100-16 8 8 0 000 16z",
  close: "M5 5l10 10M15 5L5 15",
  search: "M9 15A6 6 0 109 3a6 6 0 000 12zM13.500 13.500L18 18",
  plus: "M10 4v12M4 10h12",
  play: "M6 4l9 6-9 6z",
  pause: "M6 4v12M14 4v12",
  check: "M4 10l4 4 8-9",
  warn: "M10 3l8 14H2zM10 8v4M10 14.500h.01",
  copy: "M7 7h9v10H7zM4 13V3h9",
  out: "M8 4H4v12h4M12 6l4 4-4 4M16 10H8",
  menu: "M3 5h14M3 10h14M3 15h14",
  audit: "M5 2h10v16H5zM8 6h4M8 10h4M8 14h2",
  download: "M10 3v10M6 9l4 4 4-4M4 17h12",
  link: "M8 12l4-4M9 5l2-2a3.500 3.500 0 015 5l-2 2M11 15l-2 2a3.500 3.500 0 01-5-5l2-2",
  undo: "M7 5L3 9l4 4M3 9h9a5 5 0 010 10h-2",
};

export function icon(name) {
  return svg("svg", { viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}
