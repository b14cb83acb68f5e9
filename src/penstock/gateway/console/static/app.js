// Frame of all pages: session, navigation, keyboard shortcuts, theme.

import { onUnauthenticated, own, ownPost, session } from "./api.js";
import { h, icon, put } from "./dom.js";
import { closeDrawer, dialog, failed, loading, showError } from "./parts.js";
import * as login from "./pages/login.js";

const PAGES = [
  { key: "o", path: "", name: "Overview", icon: "overview", module: "overview" },
  { key: "t", path: "topics", name: "Topics", icon: "topics", module: "topics" },
  { key: "g", path: "groups", name: "Groups", icon: "groups", module: "groups" },
  { key: "q", path: "queues", name: "Queues", icon: "queues", module: "queues" },
  { key: "d", path: "dlq", name: "Dead letters", icon: "dlq", module: "dlq" },
  { key: "s", path: "schemas", name: "Schemas", icon: "schemas", module: "schemas" },
  { key: "p", path: "pipelines", name: "Pipelines", icon: "pipelines", module: "pipelines" },
  { key: "n", path: "nodes", name: "Nodes", icon: "nodes", module: "nodes" },
  { key: "u", path: "security", name: "Security", icon: "security", module: "security" },
];
const DEEPER = [
  { test: (parts) => parts[0] === "topics" && parts[2] === "messages", module: "messages" },
  { test: (parts) => parts[0] === "topics" && parts[1], module: "topic" },
  { test: (parts) => parts[0] === "groups" && parts[1], module: "group" },
  { test: (parts) => parts[0] === "dlq" && parts[1], module: "dead_letters" },
  { test: (parts) => parts[0] === "schemas" && parts[1], module: "schema" },
];
const root = document.getElementById("root");
let leave = new AbortController();
let main;

// -- pages -------------------------------------------------------------------------------------

class Page {
  constructor(parts, query, signal, element) {
    this.parts = parts;
    this.query = query;
    this.signal = signal;
    this.element = element;
  }

  // Calls `act` now and every `ms` milliseconds while the page is shown and the window is visible.
  every(ms, act) {
    const tick = async () => {
      if (this.signal.aborted) return;
      if (!document.hidden) {
        try { await act(); } catch (error) { if (!this.signal.aborted && error.status !== 401) this.fail(error); }
      }
      if (!this.signal.aborted) setTimeout(tick, ms);
    };
    return tick();
  }

  fail(error) {
    if (this.element.dataset.shown) showError(error);
    else put(this.element, failed(error, route));
  }

  show(...children) {
    this.element.dataset.shown = "1";
    put(this.element, ...children);
  }
}

// -- routing -----------------------------------------------------------------------------------

export function here() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(search) };
}

async function route() {
  if (!main) return;
  leave.abort();
  leave = new AbortController();
  closeDrawer();
  const { parts, query } = here();
  const top = PAGES.find((page) => page.path === (parts[0] ?? "")) ?? PAGES[0];
  for (const link of document.querySelectorAll(".nav a")) {
    link.toggleAttribute("aria-current", link.dataset.path === top.path);
    if (link.dataset.path === top.path) link.setAttribute("aria-current", "page");
  }
  const deeper = DEEPER.find((one) => one.test(parts));
  const element = h("div", { class: "page" }, loading());
  put(main, element);
  main.scrollTop = 0;
  document.title = `${parts[1] ?? top.name} · Penstock`;
  const page = new Page(parts, query, leave.signal, element);
  try {
    const module = await import(`./pages/${(deeper ?? top).module}.js`);
    await module.show(page);
    if (!page.signal.aborted) main.querySelector("h1")?.focus({ preventScroll: true });
  } catch (error) {
    if (!page.signal.aborted && error.status !== 401) page.fail(error);
  }
}

// -- the frame ---------------------------------------------------------------------------------

function shell() {
  main = h("main", { id: "main", tabindex: "-1" });
  put(root,
    h("div", { class: "shell" },
      h("nav", { class: "nav", "aria-label": "Pages" },
        h("a", { class: "brand", href: "#/" }, h("img", { src: "/console/static/icon.svg", alt: "", width: 28, height: 28 }), h("span", {}, "Penstock")),
        h("ul", {}, PAGES.map((page) => h("li", {}, h("a", { href: `#/${page.path}`, "data-path": page.path, "aria-label": page.name, title: `${page.name} (g ${page.key})` }, icon(page.icon), h("span", {}, page.name))))),
        h("div", { class: "nav-foot" }, h("div", {}, `node ${session.node_id} · ${session.version}`), h("div", { class: "mono" }, session.kafka))),
      h("div", { class: "body" },
        h("div", { class: "topbar" },
          h("div", { class: "where" }, h("span", { class: "live-dot", id: "live", title: "Connection to the node" }), h("span", { class: "mono" }, session.cluster_id)),
          session.is_read_only && h("span", { class: "badge warn", id: "read-only" }, "read only"),
          h("span", { class: "grow" }),
          h("button", { class: "ghost icon-button", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)", onclick: help }, icon("help")),
          h("button", { class: "ghost icon-button", id: "theme", "aria-label": "Switch between light and dark", onclick: toggleTheme }, icon("moon")),
          session.is_logged_in
            ? h("button", { class: "button ghost small", id: "logout", onclick: logOut }, icon("out"), session.principal.replace(/^User:/, ""))
            : session.can_log_in && h("button", { class: "button ghost small", onclick: () => enter() }, "Log in")),
        main)),
    h("div", { id: "toasts", class: "toasts" }));
  applyTheme();
}

async function logOut() {
  try { await ownPost("/logout"); } catch (error) { return showError(error); }
  location.reload();
}

function enter(why) {
  leave.abort();
  main = null;
  login.show(root, why, start);
}

async function start() {
  put(root, loading("Penstock console"));
  try {
    Object.assign(session, await own("/session"));
  } catch (error) {
    put(root, failed(error, start));
    return;
  }
  if (session.must_log_in) return enter();
  shell();
  await route();
}

// -- theme -------------------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => localStorage.getItem("penstock-theme") ?? (dark.matches ? "dark" : "light");
function applyTheme() {
  document.documentElement.dataset.theme = theme();
  const toggle = document.getElementById("theme");
  if (toggle) put(toggle, icon(theme() === "dark" ? "sun" : "moon"));
}
function toggleTheme() {
  localStorage.setItem("penstock-theme", theme() === "dark" ? "light" : "dark");
  applyTheme();
}
dark.addEventListener("change", applyTheme);

// -- keyboard shortcuts ------------------------------------------------------------------------

let after = null;
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog, [contenteditable]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !main) return;
  if (after) {
    clearTimeout(after);
    after = null;
    const page = PAGES.find((one) => one.key === event.key);
    if (page) { event.preventDefault(); location.hash = `#/${page.path}`; }
    return;
  }
  if (event.key === "g") after = setTimeout(() => { after = null; }, 1500);
  else if (event.key === "?") help();
  else if (event.key === "/") {
    const box = document.querySelector("[data-search]");
    if (box) { event.preventDefault(); box.focus(); box.select(); }
  } else if (event.key === "Escape") closeDrawer();
});

function help() {
  const row = (keys, text) => h("div", { class: "key-row" }, h("span", {}, keys.map((key) => h("kbd", {}, key))), h("span", {}, text));
  dialog("Keyboard shortcuts", () => h("div", { class: "dialog-body keys" },
    PAGES.map((page) => row(["g", page.key], page.name)),
    row(["/"], "Search on this page"), row(["Tab"], "Next control"), row(["Enter"], "Activate the control"), row(["Esc"], "Close the dialog or panel"), row(["?"], "Show this help")));
}

export function setConnected(isUp) {
  document.getElementById("live")?.classList.toggle("lost", !isUp);
}

onUnauthenticated((why) => { if (main) enter(why); });
addEventListener("hashchange", route);
applyTheme();
start();
