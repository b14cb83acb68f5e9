// Frame of all pages: session, navigation, keyboard shortcuts, theme.

import { onUnauthenticated, own, ownPost, session } from "./api.js";
import { isConnected, onConnection } from "./connection.js";
import { h, icon, morph, put } from "./dom.js";
import { LOCAL_ZONE, clock, isUtc, useUtc, zone } from "./format.js";
import { closeDrawer, dialog, empty, failed, loading, searchBox, select, showError } from "./parts.js";
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
  { key: "a", path: "audit", name: "Audit log", icon: "audit", module: "audit", hidden: () => !session.may.read_audit },
];
const DEEPER = [
  { test: (parts) => parts[0] === "topics" && parts[2] === "messages" && parts.length === 3, module: "messages" },
  ...[["topics", "topic"], ["groups", "group"], ["dlq", "dead_letters"], ["schemas", "schema"], ["nodes", "node"]]
    .map(([path, module]) => ({ test: (parts) => parts[0] === path && parts.length === 2, module })),
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

  // Without a connection the banner says so.
  fail(error) {
    if (!this.element.dataset.shown) put(this.element, failed(error, route));
    else if (error.status !== 0) showError(error);
  }

  // Keeps values in the page's address, so that it can be shared; empty ones are left out.
  remember(values) {
    if (this.signal.aborted) return;
    for (const [name, value] of Object.entries(values)) {
      if (value === undefined || value === null || value === "" || value === false) this.query.delete(name);
      else this.query.set(name, value);
    }
    const search = this.query.toString();
    history.replaceState(null, "", `#/${this.parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`);
  }

  // Search field of a table; its text is kept in the address.
  finder(placeholder, list) {
    const given = this.query.get("find") ?? "";
    if (given) list.filter(given);
    return searchBox(placeholder, (text) => { list.filter(text); this.remember({ find: text }); }, given);
  }

  show(...children) {
    this.element.dataset.shown = "1";
    put(this.element, ...children);
  }
}

// -- routing -----------------------------------------------------------------------------------

export function here() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  let parts = path.split("/").filter(Boolean);
  try { parts = parts.map(decodeURIComponent); } catch { parts = ["", path]; }
  return { parts, query: new URLSearchParams(search) };
}

function notFound() {
  return empty("There is no such page", `${location.hash} does not name a page of the console.`, h("a", { class: "button", href: "#/" }, "Open the overview"));
}

async function route() {
  if (!main) return;
  leave.abort();
  leave = new AbortController();
  closeDrawer();
  const { parts, query } = here();
  const top = PAGES.find((page) => page.path === (parts[0] ?? ""));
  for (const link of document.querySelectorAll(".nav a")) {
    if (link.dataset.path === top?.path) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showMenu(false);
  const module = DEEPER.find((one) => one.test(parts))?.module ?? (parts.length < 2 && top?.module);
  const element = h("div", { class: "page" }, loading());
  put(main, element);
  main.scrollTop = 0;
  document.title = `${module ? parts[1] ?? top.name : "Not found"} · Penstock`;
  if (!module) { put(element, notFound()); return; }
  const page = new Page(parts, query, leave.signal, element);
  try {
    await (await import(`./pages/${module}.js`)).show(page);
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
      h("nav", { class: "nav", id: "nav", "aria-label": "Pages" },
        h("a", { class: "brand", href: "#/" }, h("img", { src: "/console/static/icon.svg", alt: "", width: 28, height: 28 }), h("span", {}, "Penstock")),
        h("ul", {}, PAGES.filter((page) => !page.hidden?.()).map((page) => h("li", {}, h("a", { href: `#/${page.path}`, "data-path": page.path, title: `${page.name} (g ${page.key})`, onclick: () => showMenu(false) }, icon(page.icon), h("span", {}, page.name))))),
        h("div", { class: "nav-foot" }, h("div", {}, `node ${session.node_id} · ${session.version}`), h("div", { class: "mono" }, session.kafka))),
      h("div", { class: "body" },
        h("header", { class: "topbar" },
          h("button", { class: "ghost icon-button", id: "menu", "aria-label": "Pages", "aria-controls": "nav", "aria-expanded": "false", onclick: () => showMenu(menu().ariaExpanded !== "true") }, icon("menu")),
          h("div", { class: "where" }, h("span", { class: "live-dot", id: "live", role: "img" }), h("span", { class: "mono cluster" }, session.cluster_id)),
          session.is_read_only && h("span", { class: "badge warn", id: "read-only" }, "read only"),
          h("span", { class: "grow" }),
          select([["local", LOCAL_ZONE === "UTC" ? "Local time" : LOCAL_ZONE], ["utc", "UTC"]], isUtc() ? "utc" : "local", (value) => { useUtc(value === "utc"); route(); },
            { id: "zone", "aria-label": "Time zone", title: "Time zone in which times are shown" }),
          h("button", { class: "ghost icon-button", id: "help", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)", onclick: help }, icon("help")),
          h("button", { class: "ghost icon-button", id: "theme", "aria-label": "Switch between light and dark", onclick: toggleTheme }, icon("moon")),
          session.is_logged_in
            ? h("button", { class: "button ghost small", id: "logout", onclick: logOut }, icon("out"), session.principal.replace(/^User:/, ""))
            : session.can_log_in && h("button", { class: "button ghost small", onclick: () => enter() }, "Log in")),
        h("div", { id: "connection", role: "alert" }),
        main)));
  applyTheme();
  showConnection(isConnected(), Date.now());
}

const menu = () => document.getElementById("menu");
function showMenu(isOpen) {
  menu()?.setAttribute("aria-expanded", String(isOpen));
  document.querySelector(".shell")?.classList.toggle("menu-open", isOpen);
}

function showConnection(isUp, heardMs) {
  const dot = document.getElementById("live");
  if (!dot) return;
  dot.classList.toggle("lost", !isUp);
  dot.setAttribute("aria-label", isUp ? "Connected to the node" : "Not connected");
  dot.title = dot.getAttribute("aria-label");
  morph(document.getElementById("connection"), !isUp && h("div", { class: "banner" }, icon("warn"),
    h("span", {}, h("b", {}, "The node does not respond. "), `Everything below is as of ${clock(heardMs)} (${zone()}). Retrying every second…`)));
}

// After an interruption the node may be another one, and sessions may have ended.
async function reconnected() {
  if (!main) return;
  try {
    const now = await own("/session");
    if (session.is_logged_in && !now.is_logged_in) { enter("The session has ended: log in again."); return; }
    Object.assign(session, now);
    if (!document.querySelector(".page")?.dataset.shown) route();
  } catch { /* The next attempt will tell. */ }
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
  document.getElementById("toasts") ?? document.body.append(h("div", { id: "toasts", class: "toasts", popover: "manual", role: "region", "aria-label": "Messages" }));
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
  } else if (event.key === "Escape") { closeDrawer(); showMenu(false); }
});

function help() {
  const row = (keys, text) => h("div", { class: "key-row" }, h("span", {}, keys.map((key) => h("kbd", {}, key))), h("span", {}, text));
  dialog("Keyboard shortcuts", () => h("div", { class: "dialog-body keys" },
    PAGES.map((page) => row(["g", page.key], page.name)),
    row(["/"], "Search on this page"), row(["Tab"], "Next control"), row(["Enter"], "Activate the control"), row(["Esc"], "Close the dialog or panel"), row(["?"], "Show this help")));
}

onConnection((isUp, heardMs) => {
  showConnection(isUp, heardMs);
  if (isUp) reconnected();
});
onUnauthenticated((why) => { if (main) enter(why); });
addEventListener("hashchange", route);
applyTheme();
start();
