// Messages of a topic: pages, live tail, and search with a budget.

import { own, part, stream } from "../api.js";
import { h, icon, payload, put } from "../dom.js";
import { save } from "../download.js";
import { bytes, count, fieldTime, moment, short, timeOf, zone } from "../format.js";
import { attempt, badge, button, empty, failed, heading, loading, problemBox, searchBox, select, tabs, showError } from "../parts.js";
import { open } from "./message.js";
import { produce } from "./produce.js";

const TAIL_MAX = 500;
const BROWSE_MAX = 2000;
const COLUMNS = () => [`Time (${zone()})`, "Partition", "Offset", "Key", "Value", "Size"];

export async function show(page) {
  const topic = page.parts[1];
  const path = `/topics/${part(topic)}`;
  const about = await own(path);
  const given = (name, otherwise = "") => page.query.get(name) ?? otherwise;
  const state = { mode: given("mode", "browse"), partition: given("partition"), from: given("from", "latest"), offset: given("offset", "0"), time: Number(given("time")) || Date.now() - 3600000 };
  const body = h("div", { class: "messages" });
  const controls = h("div", { class: "toolbar" });
  const partition = () => select([["", "all partitions"], ...about.partitions.map((row) => [row.partition, `partition ${row.partition}`])], state.partition, (value) => { state.partition = value; begin(); }, { "aria-label": "Partition", name: "partition" });
  let running = new AbortController();

  function where() {
    const values = { partition: state.partition, from: state.from };
    if (state.from === "offset") values.offset = state.offset || "0";
    if (state.from === "time") values.time_ms = state.time;
    return values;
  }
  function remember() {
    page.remember({ mode: state.mode === "browse" ? "" : state.mode, partition: state.partition, from: state.from === "latest" ? "" : state.from, offset: state.from === "offset" ? state.offset : "", time: state.from === "time" ? state.time : "" });
  }

  function place(again) {
    const offset = h("input", { type: "number", min: 0, value: state.offset, "aria-label": "Offset", name: "offset", onchange: () => { state.offset = offset.value; remember(); again?.(); } });
    const time = h("input", { type: "datetime-local", step: 1, value: fieldTime(state.time), "aria-label": `Time (${zone()})`, name: "time", onchange: () => { if (time.value) { state.time = timeOf(time.value); remember(); again?.(); } } });
    return [select([["latest", "newest first"], ["earliest", "oldest first"], ["offset", "from offset…"], ["time", "from time…"]], state.from, (value) => { state.from = value; begin(); }, { "aria-label": "Start", name: "from" }),
      state.from === "offset" && offset, state.from === "time" && time];
  }

  function begin() {
    running.abort();
    running = new AbortController();
    page.signal.addEventListener("abort", () => running.abort());
    remember();
    modes[state.mode](running.signal);
  }

  const mayWrite = about.may?.write ?? true;
  const again = mayWrite ? (message) => produce(topic, message) : null;
  const look = (at) => {
    page.remember({ message: at });
    open(topic, ...at.split(":"), again, () => page.remember({ message: "" }));
  };
  const row = (message) => line(message, () => look(`${message.partition}:${message.offset}`));
  const shared = { topic, path, where, place, partition, body, controls, row, state, page };
  const modes = {
    browse: (signal) => browse({ ...shared, signal }),
    tail: (signal) => tail({ ...shared, signal }),
    search: (signal) => search({ ...shared, signal }),
  };
  if (!modes[state.mode]) state.mode = "browse";
  page.show(
    heading(h("span", {}, h("a", { href: `#${path}` }, topic), " messages"), null,
      button("Produce", () => produce(topic, {}, () => { if (state.mode === "browse") begin(); }), { kind: "primary", name: "plus", changes: true, may: mayWrite })),
    tabs([["browse", "Browse"], ["tail", "Live tail"], ["search", "Search"]], state.mode, (key) => { state.mode = key; begin(); }),
    controls, body);
  begin();
  if (/^\d+:\d+$/.test(given("message"))) look(given("message"));
}

function list(rows) {
  return h("div", { class: "card flush table-box" }, h("table", { class: "message-table list", "aria-label": "Messages" },
    h("thead", {}, h("tr", {}, COLUMNS().map((name, at) => h("th", { scope: "col", class: at === 5 ? "right" : "" }, name)))), rows));
}

// Buttons that save what is listed.
function downloads({ topic, signal }, messages) {
  const one = (format) => {
    const root = button(format.toUpperCase(), () => attempt(root, { clear() {}, show: showError }, () => save(topic, messages(), format, signal)), { kind: "ghost", name: "download", title: `Download the listed messages as ${format.toUpperCase()}` });
    return root;
  };
  return h("span", { class: "downloads" }, one("json"), one("csv"));
}

function line(message, look) {
  const cells = [
    [moment(message.timestamp_ms), "time"],
    [String(message.partition)],
    [h("button", { class: "linkish mono", onclick: look, "aria-label": `Message ${message.partition}:${message.offset}` }, String(message.offset))],
    [shown(message.key, 60), "mono key"],
    [[shown(message.value, 240), message.headers.length > 0 && badge(`${message.headers.length} headers`)], "mono value"],
    [bytes(message.size), "right"],
  ];
  return h("tr", { class: "pick", "data-place": `${message.partition}:${message.offset}`, onclick: (event) => { if (!event.target.closest("button") && getSelection().isCollapsed) look(); } },
    cells.map(([content, name], at) => h("td", { class: name, "data-label": COLUMNS()[at] }, content)));
}

export function shown(value, chars) {
  if (value.form === "null") return h("span", { class: "muted" }, "null");
  const text = value.text.length > chars ? value.text.slice(0, chars) : value.text;
  const more = value.is_cut || value.text.length > chars;
  const mark = value.form === "binary" ? badge("hex") : !["text", "json"].includes(value.form) && badge(value.form, "accent");
  return h("span", { class: "payload", dir: "auto" }, mark, mark && " ", payload(text.replace(/\s+/g, " ")), more && "…");
}

// -- pages -------------------------------------------------------------------------------------

// Pages are added to the list, up to BROWSE_MAX messages.
async function browse(shared) {
  const { path, where, place, partition, body, controls, signal, row } = shared;
  const rows = h("tbody");
  const note = h("span", { class: "muted", role: "status" });
  const problem = problemBox();
  const more = button("Load more", () => attempt(more, problem, () => add(isBack ? { before: next } : { after: next })), { name: "plus" });
  const earlier = button("Load earlier", () => attempt(earlier, problem, () => add({ before: first }, true)), { kind: "small" });
  const isBack = where().from === "latest";
  let all = [];
  let next = "";
  let first = "";

  async function add(values, atTop = false) {
    const seen = await own(`${path}/messages`, { ...where(), ...values }, { signal });
    if (atTop) {
      all = [...seen.messages.toReversed(), ...all];
      rows.prepend(...seen.messages.toReversed().map(row));
      first = seen.older;
    } else {
      all.push(...seen.messages);
      rows.append(...seen.messages.map(row));
      next = isBack ? seen.older : seen.messages.length ? seen.newer : "";
      if (!isBack && !values.after) first = seen.older;
    }
    const isFull = all.length >= BROWSE_MAX;
    more.hidden = !next || isFull;
    earlier.hidden = isBack || !first || isFull;
    note.textContent = [`${count(all.length)} of about ${short(seen.total)}`, isFull && "the most that are listed at once: choose another start",
      seen.is_cut && "not all messages could be read, because some are large", seen.partitions_shown < seen.partitions && `the first ${seen.partitions_shown} partitions: choose one for the rest`].filter(Boolean).join(" · ");
  }
  async function load() {
    put(body, loading("Reading…"));
    all = [];
    put(rows);
    try {
      await add({});
      if (signal.aborted) return;
      put(body, earlier, all.length ? list(rows) : empty("No messages here", "No messages were written here, or they were deleted. Produce one, or choose another start."), problem.root, h("div", { class: "pager" }, more, note));
    } catch (error) { if (!signal.aborted) put(body, failed(error, load)); }
  }
  put(controls, place(load), partition(), button("Refresh", load, { kind: "ghost" }), h("span", { class: "grow" }), downloads(shared, () => all));
  await load();
}

// -- live --------------------------------------------------------------------------------------

async function tail(shared) {
  const { path, partition, body, controls, signal, row, state } = shared;
  const kept = [];
  const rows = h("tbody");
  const note = h("span", { class: "muted", role: "status" }, "connecting…");
  const blank = h("div", {}, empty("Waiting for messages", "New messages appear here."));
  let paused = false;
  let filter = "";
  let seen = 0;
  let skipped = 0;
  const hold = button("Pause", () => { paused = !paused; put(hold, icon(paused ? "play" : "pause"), paused ? "Resume" : "Pause"); }, { name: "pause" });
  put(controls, partition(), searchBox("Filter by key or value", (text) => { filter = text.toLowerCase(); }), hold, note, h("span", { class: "grow" }), downloads(shared, () => kept));
  put(body, blank, list(rows));
  const fits = (one) => (state.partition === "" || String(one.partition) === state.partition)
    && (!filter || `${one.key.text} ${one.value.text}`.toLowerCase().includes(filter));
  try {
    await stream(`/console/api${path}/tail`, {}, {
      open: () => { note.textContent = "live"; },
      messages: (news) => {
        skipped += news.skipped;
        if (paused) return;
        const fresh = news.messages.filter(fits);
        seen += fresh.length;
        blank.hidden = seen > 0;
        for (const one of fresh) { const element = row(one); element.classList.add("new"); rows.prepend(element); kept.unshift(one); }
        kept.length = Math.min(kept.length, TAIL_MAX);
        while (rows.children.length > TAIL_MAX) rows.lastChild.remove();
        note.textContent = `live · ${count(seen)} shown${skipped ? ` · ${count(skipped)} skipped: messages arrive faster than they can be shown` : ""}`;
      },
      problem: (problem) => { note.textContent = problem.detail; },
    }, signal);
    if (!signal.aborted) note.textContent = "The tail has ended.";
  } catch (error) { if (!signal.aborted) put(body, failed(error)); }
}

// -- search ------------------------------------------------------------------------------------

const ENDS = { all: "all records searched", found: "maximum number of matches found", records: "record budget used up", bytes: "byte budget used up", time: "time limit reached" };

async function search(shared) {
  const { path, where, place, partition, body, controls, signal, row, page } = shared;
  const given = (name, otherwise = "") => page.query.get(name) ?? otherwise;
  const text = h("input", { type: "search", name: "text", placeholder: "Search for…", required: true, value: given("text"), "data-search": true, "aria-label": "Search for" });
  const without = given("without").split(",");
  const places = ["key", "value", "headers"].map((name) => [name, h("input", { type: "checkbox", name, checked: !without.includes(name) })]);
  const pattern = h("input", { type: "checkbox", name: "pattern", checked: given("pattern") === "1" });
  const budget = select([[10000, "10 k records"], [100000, "100 k records"], [1000000, "1 M records"], [2000000, "2 M records"]], given("budget", "100000"), null, { "aria-label": "Scan budget", name: "budget" });
  let found = [];
  const rows = h("tbody");
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Progress" });
  const note = h("span", { class: "muted", role: "status" }, "Searches the bytes of keys, values and headers, newest first by default.");
  let stop = null;
  const go = h("button", { class: "button primary", type: "submit" }, icon("search"), "Search");
  const form = h("form", { class: "toolbar grow", onsubmit: (event) => { event.preventDefault(); if (stop) stop.abort(); else run(); } },
    text, places.map(([name, input]) => h("label", { class: "check" }, input, name)), h("label", { class: "check" }, pattern, "pattern (RE2)"), place(), partition(), budget, go);
  put(controls, form);
  put(body, h("div", { class: "scan" }, bar, note, h("span", { class: "grow" }), downloads(shared, () => found)), list(rows));
  if (text.value) run(); else text.focus();

  async function run() {
    stop = new AbortController();
    signal.addEventListener("abort", () => stop?.abort());
    put(go, icon("close"), "Stop");
    put(rows);
    found = [];
    page.remember({ text: text.value, without: places.filter(([, input]) => !input.checked).map(([name]) => name).join(","), pattern: pattern.checked ? "1" : "", budget: budget.value === "100000" ? "" : budget.value });
    bar.value = 0;
    note.textContent = "searching…";
    let ended = "stopped";
    const values = { ...where(), text: text.value, budget: budget.value, pattern: pattern.checked || undefined };
    for (const [name, input] of places) if (!input.checked) values[name] = "false";
    try {
      await stream(`/console/api${path}/search`, values, {
        progress: (step) => {
          bar.value = step.ended ? 1 : step.total ? Math.min(1, step.scanned / Math.min(step.total, Number(budget.value))) : 1;
          for (const one of step.messages) { rows.append(row(one)); found.push(one); }
          if (step.ended) ended = ENDS[step.ended];
          note.textContent = `${count(step.found)} found in ${count(step.scanned)} of ${count(step.total)} records (${bytes(step.size_bytes)})${step.ended ? ` · ${ended}` : "…"}`;
        },
        problem: (problem) => { ended = problem.detail; note.textContent = problem.detail; },
      }, stop.signal);
      if (ended === "stopped") note.textContent += " · stopped";
    } catch (error) { note.textContent = error.message; if (!signal.aborted) showError(error); }
    stop = null;
    put(go, icon("search"), "Search");
  }
}
