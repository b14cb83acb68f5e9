// Messages of a topic: pages, live tail, and search with a budget.

import { own, part, stream } from "../api.js";
import { h, icon, payload, put } from "../dom.js";
import { bytes, count, moment, short } from "../format.js";
import { badge, button, empty, failed, heading, loading, searchBox, select, tabs, showError } from "../parts.js";
import { open } from "./message.js";
import { produce } from "./produce.js";

const TAIL_MAX = 500;

export async function show(page) {
  const topic = page.parts[1];
  const path = `/topics/${part(topic)}`;
  const about = await own(path);
  const state = { mode: page.query.get("mode") ?? "browse", partition: page.query.get("partition") ?? "", from: page.query.get("from") ?? "latest", offset: page.query.get("offset") ?? "0", time: "" };
  const body = h("div", { class: "messages" });
  const controls = h("div", { class: "toolbar" });
  const partition = () => select([["", "all partitions"], ...about.partitions.map((row) => [row.partition, `partition ${row.partition}`])], state.partition, (value) => { state.partition = value; begin(); }, { "aria-label": "Partition", name: "partition" });
  let running = new AbortController();

  function where() {
    const values = { partition: state.partition, from: state.from };
    if (state.from === "offset") values.offset = state.offset || "0";
    if (state.from === "time") values.time_ms = new Date(state.time || Date.now() - 3600000).getTime();
    return values;
  }

  function place(again) {
    const offset = h("input", { type: "number", min: 0, value: state.offset, "aria-label": "Offset", name: "offset", onchange: () => { state.offset = offset.value; again?.(); } });
    const time = h("input", { type: "datetime-local", step: 1, value: state.time, "aria-label": "Time", name: "time", onchange: () => { state.time = time.value; again?.(); } });
    return [select([["latest", "newest first"], ["earliest", "oldest first"], ["offset", "from offset…"], ["time", "from time…"]], state.from, (value) => { state.from = value; begin(); }, { "aria-label": "Start", name: "from" }),
      state.from === "offset" && offset, state.from === "time" && time];
  }

  function begin() {
    running.abort();
    running = new AbortController();
    page.signal.addEventListener("abort", () => running.abort());
    modes[state.mode](running.signal);
  }

  const again = (message) => produce(topic, message);
  const row = (message) => line(message, topic, again);
  const modes = {
    browse: (signal) => browse({ path, where, place, partition, body, controls, signal, row }),
    tail: (signal) => tail({ path, partition, body, controls, signal, row, state }),
    search: (signal) => search({ path, where, place, partition, body, controls, signal, row }),
  };
  page.show(
    heading(h("span", {}, h("a", { href: `#${path}` }, topic), " messages"), null,
      button("Produce", () => produce(topic, {}, () => { if (state.mode === "browse") begin(); }), { kind: "primary", name: "plus", changes: true })),
    tabs([["browse", "Browse"], ["tail", "Live tail"], ["search", "Search"]], state.mode, (key) => { state.mode = key; begin(); }),
    controls, body);
  begin();
}

function list(...rows) {
  return h("div", { class: "card flush" }, h("table", { class: "message-table", "aria-label": "Messages" },
    h("thead", {}, h("tr", {}, ["Time", "Partition", "Offset", "Key", "Value", "Size"].map((name, at) => h("th", { scope: "col", class: at === 5 ? "right" : "" }, name)))),
    h("tbody", {}, rows)));
}

function line(message, topic, again) {
  const look = () => open(topic, message, again);
  return h("tr", { class: "pick", "data-place": `${message.partition}:${message.offset}`, onclick: (event) => { if (!event.target.closest("button")) look(); } },
    h("td", { class: "time" }, moment(message.timestamp_ms)),
    h("td", {}, String(message.partition)),
    h("td", {}, h("button", { class: "linkish mono", onclick: look, "aria-label": `Message ${message.partition}:${message.offset}` }, String(message.offset))),
    h("td", { class: "mono key" }, shown(message.key, 60)),
    h("td", { class: "mono value" }, shown(message.value, 240), message.headers.length > 0 && badge(`${message.headers.length} headers`)),
    h("td", { class: "right" }, bytes(message.size)));
}

export function shown(value, chars) {
  if (value.form === "null") return h("span", { class: "muted" }, "null");
  const text = value.text.length > chars ? value.text.slice(0, chars) : value.text;
  const more = value.is_cut || value.text.length > chars;
  const mark = value.form === "binary" ? badge("hex") : !["text", "json"].includes(value.form) && badge(value.form, "accent");
  return h("span", { class: "payload", dir: "auto" }, mark, mark && " ", payload(text.replace(/\s+/g, " ")), more && "…");
}

// -- pages -------------------------------------------------------------------------------------

async function browse({ path, where, place, partition, body, controls, signal, row }) {
  const load = async (values) => {
    put(body, loading("Reading…"));
    try {
      const seen = await own(`${path}/messages`, { ...where(), ...values }, { signal });
      if (signal.aborted) return;
      const isBack = values.before || (!values.after && where().from === "latest");
      const older = button("Older", () => load({ before: seen.older }), { disabled: !seen.older });
      const newer = button("Newer", () => load({ after: seen.newer }), { disabled: !seen.newer || (isBack && !values.before) });
      put(body, seen.messages.length ? list(seen.messages.map(row)) : empty("No messages here", "No messages were written here, or they were deleted. Produce one, or choose another start."),
        h("div", { class: "pager" }, isBack ? [newer, older] : [older, newer],
          h("span", { class: "muted" }, `${count(seen.messages.length)} of about ${short(seen.total)}`,
            seen.is_cut && " · not all messages could be read, because some are large", seen.partitions_shown < seen.partitions && ` · the first ${seen.partitions_shown} partitions: choose one for the rest`)));
    } catch (error) { if (!signal.aborted) put(body, failed(error, () => load(values))); }
  };
  put(controls, place(() => load({})), partition(), button("Refresh", () => load({}), { kind: "ghost" }));
  await load({});
}

// -- live --------------------------------------------------------------------------------------

async function tail({ path, partition, body, controls, signal, row, state }) {
  const rows = h("tbody");
  const note = h("span", { class: "muted", role: "status" }, "connecting…");
  const blank = h("div", {}, empty("Waiting for messages", "New messages appear here."));
  let paused = false;
  let filter = "";
  let seen = 0;
  let skipped = 0;
  const hold = button("Pause", () => { paused = !paused; put(hold, icon(paused ? "play" : "pause"), paused ? "Resume" : "Pause"); }, { name: "pause" });
  put(controls, partition(), searchBox("Filter by key or value", (text) => { filter = text.toLowerCase(); }), hold, note);
  put(body, blank, h("div", { class: "card flush" }, h("table", { class: "message-table", "aria-label": "Live messages" },
    h("thead", {}, h("tr", {}, ["Time", "Partition", "Offset", "Key", "Value", "Size"].map((name, at) => h("th", { scope: "col", class: at === 5 ? "right" : "" }, name)))), rows)));
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
        for (const one of fresh) { const element = row(one); element.classList.add("new"); rows.prepend(element); }
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

async function search({ path, where, place, partition, body, controls, signal, row }) {
  const text = h("input", { type: "search", name: "text", placeholder: "Search for…", required: true, autofocus: true, "data-search": true, "aria-label": "Search for" });
  const places = ["key", "value", "headers"].map((name) => [name, h("input", { type: "checkbox", name, checked: true })]);
  const pattern = h("input", { type: "checkbox", name: "pattern" });
  const budget = select([[10000, "10 k records"], [100000, "100 k records"], [1000000, "1 M records"], [2000000, "2 M records"]], 100000, null, { "aria-label": "Scan budget", name: "budget" });
  const rows = h("tbody");
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Progress" });
  const note = h("span", { class: "muted", role: "status" }, "Searches the bytes of keys, values and headers, newest first by default.");
  let stop = null;
  const go = h("button", { class: "button primary", type: "submit" }, icon("search"), "Search");
  const form = h("form", { class: "toolbar grow", onsubmit: (event) => { event.preventDefault(); if (stop) stop.abort(); else run(); } },
    text, places.map(([name, input]) => h("label", { class: "check" }, input, name)), h("label", { class: "check" }, pattern, "pattern (RE2)"), place(), partition(), budget, go);
  put(controls, form);
  put(body, h("div", { class: "scan" }, bar, note), h("div", { class: "card flush" }, h("table", { class: "message-table", "aria-label": "Found messages" }, rows)));
  text.focus();

  async function run() {
    stop = new AbortController();
    signal.addEventListener("abort", () => stop?.abort());
    put(go, icon("close"), "Stop");
    put(rows);
    bar.value = 0;
    note.textContent = "searching…";
    let ended = "stopped";
    const values = { ...where(), text: text.value, budget: budget.value, pattern: pattern.checked || undefined };
    for (const [name, input] of places) if (!input.checked) values[name] = "false";
    try {
      await stream(`/console/api${path}/search`, values, {
        progress: (step) => {
          bar.value = step.ended ? 1 : step.total ? Math.min(1, step.scanned / Math.min(step.total, Number(budget.value))) : 1;
          for (const one of step.messages) rows.append(row(one));
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
