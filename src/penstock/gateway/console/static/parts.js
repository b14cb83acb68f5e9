// Components of pages: cards, tables that keep their state, tabs, drawers, dialogs, toasts.

import { session } from "./api.js";
import { append, h, icon, put } from "./dom.js";
export { table } from "./tables.js";

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

// `changes`: it changes something, so it is off in a read-only console. `may`: false without the
// permission; then there is no button.
export function button(text, act, { kind = "", name, title, changes = false, disabled = false, may = true } = {}) {
  if (!may) return null;
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
    role: "tab", type: "button", "aria-selected": String(key === active), tabindex: key === active ? 0 : -1, class: key === active ? "active" : "", "data-tab": key,
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

export function searchBox(placeholder, act, value = "") {
  const input = h("input", { type: "search", placeholder, value, "data-search": true, "aria-label": placeholder, oninput: () => act(input.value) });
  return h("div", { class: "searchbox" }, icon("search"), input, h("kbd", { "aria-hidden": "true" }, "/"));
}

// -- overlays ----------------------------------------------------------------------------------

export function toast(text, tone = "good") {
  const box = document.getElementById("toasts");
  const one = h("div", { class: `toast ${tone}`, role: tone === "bad" ? "alert" : "status" }, icon(tone === "good" ? "check" : "warn"), h("span", {}, text),
    h("button", { class: "ghost icon-button", "aria-label": "Close", onclick: () => one.remove() }, icon("close")));
  box.append(one);
  if (box.matches(":popover-open")) box.hidePopover();
  box.showPopover();  // Again, so that it is above a dialog opened since.
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

// Place for an error beside what caused it; read out by screen readers.
export function problemBox() {
  const root = h("div", { role: "alert", class: "problem-box" });
  return {
    root,
    clear() { put(root); },
    show(error) {
      put(root, h("p", { class: "note bad" }, icon("warn"), h("span", {}, error.message)));
      root.scrollIntoView({ block: "nearest" });
    },
  };
}

// Runs `act` while the button is busy; shows its error in `problem`. Returns true if it succeeded.
export async function attempt(button, problem, act) {
  problem.clear();
  button.disabled = true;
  try {
    await act();
    return true;
  } catch (error) {
    problem.show(error);
    return false;
  } finally {
    button.disabled = false;
  }
}

// Opens a dialog with a form. An error of `act` is shown inside the dialog, which stays open.
// `ready()` false: the form cannot be sent yet.
export function formDialog(title, fields, verb, act, { wide = false, kind = "primary", name, more = [], ready = () => true } = {}) {
  const problem = problemBox();
  const submit = h("button", { class: `button ${kind}`, type: "submit", name, disabled: !ready() }, verb);
  const close = dialog(title, (shut) => h("form", { class: "dialog-body", oninput: () => { submit.disabled = !ready(); }, onsubmit: async (event) => {
    event.preventDefault();
    if (await attempt(submit, problem, act)) shut();
  } }, fields, problem.root, h("footer", {}, button("Cancel", shut, { kind: "ghost" }), more, submit)), { wide });
  return { close, problem, submit };
}

// Asks before a loss. With `typed`, the button works once that name was typed.
export function confirm(title, text, verb, act, { kind = "danger", typed = null } = {}) {
  const input = typed !== null && h("input", { class: "mono", name: "typed", autocomplete: "off", spellcheck: "false", autofocus: true });
  const fields = [typeof text === "string" ? h("p", {}, text) : text, input && field(h("span", {}, "Type ", h("code", { class: "typed" }, typed), " to confirm"), input)];
  formDialog(title, fields, verb, act, { kind, name: "confirm", ready: () => !input || input.value === typed });
}

// Opens a panel at the right, one at a time. Escape closes it.
let openDrawer = null;
export function drawer(title, build, closed = () => {}) {
  closeDrawer();
  const before = document.activeElement;
  const root = h("aside", { class: "drawer", role: "dialog", "aria-label": title, tabindex: "-1" });
  const close = () => { if (openDrawer === close) openDrawer = null; root.remove(); closed(); before?.focus?.({ preventScroll: true }); };
  append(root, [h("header", {}, h("h2", {}, title), h("button", { class: "ghost icon-button", "aria-label": "Close", onclick: close }, icon("close"))), build(close)]);
  root.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); close(); } });
  document.getElementById("main").append(root);
  root.focus({ preventScroll: true });
  openDrawer = close;
  return { root, close };
}
export function closeDrawer() { openDrawer?.(); }
