// Components of pages: cards, tables that keep their state, tabs, drawers, dialogs, toasts.

import { session } from "./api.js";
import { append, h, icon, put } from "./dom.js";

// -- states ------------------------------------------------------------------------------------

export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("div", { class: "empty-mark", "aria-hidden": "true" }, "∅"), h("h3", {}, title), text && h("p", {}, text), ...more);
}

export function loading(text = "Loading…") {
  return h("div", { class: "loading", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), text);
}

export function failed(error, again) {
  const title = error.status === 403 ? "Permission denied" : error.status === 404 ? "Not found" : "Something went wrong";
  return h("div", { class: "empty failed", role: "alert" }, h("div", { class: "empty-mark", "aria-hidden": "true" }, "!"), h("h3", {}, title), h("p", {}, error.message),
    again && h("button", { class: "button", onclick: again }, "Retry"));
}

export function code(text) {
  const copy = h("button", { class: "button small ghost", onclick: () => copyText(text) }, icon("copy"), "Copy");
  return h("div", { class: "code" }, h("pre", {}, text), copy);
}

// -- small components --------------------------------------------------------------------------

export function heading(title, sub, ...actions) {
  return h("header", { class: "page-head" }, h("div", {}, h("h1", { tabindex: "-1" }, title), sub && h("p", { class: "sub" }, sub)), h("div", { class: "actions" }, ...actions));
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title && h("h2", {}, title), ...children);
}

export function stat(name, tone) {
  const value = h("div", { class: "stat-value" }, "–");
  const note = h("div", { class: "stat-note" });
  const root = h("div", { class: `stat ${tone ?? ""}` }, h("div", { class: "stat-name" }, name), value, note);
  return { root, set(text, more = "") { value.textContent = text; note.textContent = more; } };
}

export function badge(text, tone = "") {
  return h("span", { class: `badge ${tone}` }, text);
}

export function button(text, act, { kind = "", name, title, changes = false, disabled = false } = {}) {
  const barred = changes && session.is_read_only;
  return h("button", {
    class: `button ${kind}`, type: "button", onclick: act, disabled: disabled || barred,
    title: barred ? "The console is read-only (console.read.only)" : title,
  }, name && icon(name), text);
}

export function field(label, input, hint) {
  return h("label", { class: "field" }, h("span", {}, label), input, hint && h("small", {}, hint));
}

export function select(options, value, onchange, props) {
  const root = h("select", { onchange: () => onchange?.(root.value), ...props }, options.map((one) => {
    const [key, text] = Array.isArray(one) ? one : [one, one];
    return h("option", { value: key, selected: String(key) === String(value) }, text);
  }));
  return root;
}

export function tabs(choices, chosen, choose) {
  const root = h("div", { class: "tabs", role: "tablist" });
  const show = (active) => put(root, choices.map(([key, text]) => h("button", {
    role: "tab", type: "button", "aria-selected": String(key === active), class: key === active ? "active" : "", "data-tab": key,
    onclick: () => { show(key); choose(key); root.querySelector('[aria-selected="true"]').focus(); },
  }, text)));
  root.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...root.children];
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].click();
  });
  show(chosen);
  return root;
}

// -- tables ------------------------------------------------------------------------------------

// columns: [{name, cell(row) -> node or text, right, sort(row), width}]. Rows keep their elements
// while their key and data stay the same, so that focus and selection survive.
export function table(columns, { key, order, descending = false, none, onrow, label }) {
  let rows = [];
  let by = order;
  let down = descending;
  let filter = "";
  const known = new Map();
  const body = h("tbody");
  const head = h("tr");
  const blank = h("div", { hidden: true });
  const root = h("div", { class: "table-box" }, h("table", { "aria-label": label }, h("thead", {}, head), body), blank);

  function heads() {
    put(head, columns.map((column) => {
      const sorted = by === column.name;
      const text = column.sort
        ? h("button", { type: "button", onclick: () => { down = sorted ? !down : Boolean(column.right); by = column.name; draw(); } }, column.name, sorted ? (down ? " ↓" : " ↑") : "")
        : column.name;
      return h("th", { scope: "col", class: column.right ? "right" : "", "aria-sort": sorted ? (down ? "descending" : "ascending") : undefined }, text);
    }));
  }

  function draw() {
    heads();
    const column = columns.find((one) => one.name === by);
    const shown = rows.filter((row) => !filter || JSON.stringify(row).toLowerCase().includes(filter));
    if (column?.sort) shown.sort((a, b) => compare(column.sort(a), column.sort(b)) * (down ? -1 : 1));
    const kept = new Set();
    const elements = shown.map((row) => {
      const name = String(key(row));
      const state = JSON.stringify(row);
      kept.add(name);
      let entry = known.get(name);
      if (!entry || entry.state !== state) {
        const cells = columns.map((one) => append(h("td", { class: one.right ? "right" : one.class ?? "" }), [one.cell(row)]));
        if (entry && entry.element.contains(document.activeElement)) return entry.element;
        const element = h("tr", onrow ? { class: "pick", onclick: (event) => { if (!event.target.closest("a,button,input")) onrow(row); } } : {}, cells);
        entry = { state, element };
        known.set(name, entry);
      }
      return entry.element;
    });
    for (const name of known.keys()) if (!kept.has(name)) known.delete(name);
    elements.forEach((element, at) => { if (body.children[at] !== element) body.insertBefore(element, body.children[at] ?? null); });
    while (body.children.length > elements.length) body.lastChild.remove();
    blank.hidden = elements.length > 0;
    root.classList.toggle("is-empty", !elements.length);
    if (!elements.length) put(blank, rows.length ? empty("No matches", "No row contains the search text.") : none ?? empty("No entries yet"));
  }
  heads();
  return { root, update(next) { rows = [...next]; draw(); }, filter(text) { filter = text.trim().toLowerCase(); draw(); } };
}

function compare(a, b) {
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b));
}

export function searchBox(placeholder, act) {
  const input = h("input", { type: "search", placeholder, "data-search": true, "aria-label": placeholder, oninput: () => act(input.value) });
  return h("div", { class: "searchbox" }, icon("search"), input, h("kbd", { "aria-hidden": "true" }, "/"));
}

// -- overlays ----------------------------------------------------------------------------------

export function toast(text, tone = "good") {
  const box = document.getElementById("toasts");
  const one = h("div", { class: `toast ${tone}`, role: tone === "bad" ? "alert" : "status" }, icon(tone === "good" ? "check" : "warn"), h("span", {}, text),
    h("button", { class: "ghost icon-button", "aria-label": "Close", onclick: () => one.remove() }, icon("close")));
  box.append(one);
  while (box.children.length > 4) box.firstChild.remove();
  setTimeout(() => one.remove(), tone === "bad" ? 12000 : 5000);
}

export function showError(error) {
  toast(error.message, "bad");
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    const area = h("textarea", { class: "offscreen" }, text);
    document.body.append(area);
    area.select();
    toast(document.execCommand("copy") ? "Copied" : "Press Ctrl+C to copy", "good");
    area.remove();
  }
}

// Opens a modal dialog with the focus on its first field; returns a function that closes it.
export function dialog(title, build, { wide = false } = {}) {
  const before = document.activeElement;
  const root = h("dialog", { class: `dialog ${wide ? "wide" : ""}`, "aria-label": title });
  const close = () => root.close();
  append(root, [h("header", {}, h("h2", {}, title), h("button", { class: "ghost icon-button", type: "button", "aria-label": "Close", onclick: close }, icon("close"))), build(close)]);
  root.addEventListener("close", () => { root.remove(); before?.focus?.(); });
  document.body.append(root);
  root.showModal();
  root.querySelector("[autofocus], .dialog-body input, .dialog-body select, .dialog-body textarea")?.focus();
  return close;
}

export function confirm(title, text, verb, act, { kind = "danger", changes = true } = {}) {
  dialog(title, (close) => h("div", { class: "dialog-body" }, typeof text === "string" ? h("p", {}, text) : text,
    h("footer", {}, button("Cancel", close, { kind: "ghost" }), button(verb, async () => {
      try { await act(); close(); } catch (error) { showError(error); }
    }, { kind, changes }))));
}

// Opens a panel at the right, one at a time. Escape closes it.
let openDrawer = null;
export function drawer(title, build) {
  closeDrawer();
  const before = document.activeElement;
  const root = h("aside", { class: "drawer", role: "dialog", "aria-label": title, tabindex: "-1" });
  const close = () => { if (openDrawer === close) openDrawer = null; root.remove(); before?.focus?.({ preventScroll: true }); };
  append(root, [h("header", {}, h("h2", {}, title), h("button", { class: "ghost icon-button", "aria-label": "Close", onclick: close }, icon("close"))), build(close)]);
  root.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  document.getElementById("main").append(root);
  root.focus({ preventScroll: true });
  openDrawer = close;
  return { root, close };
}
export function closeDrawer() { openDrawer?.(); }
