// The workbench: letters by error, looked at, edited, sent back with progress, and undone.

import { get, own, ownPost, part, post } from "../api.js";
import { h, payload, put } from "../dom.js";
import { ago, count, moment, plural } from "../format.js";
import { badge, button, card, confirm, dialog, drawer, empty, field, heading, loading, table, toast, trouble } from "../parts.js";
import { encode } from "./produce.js";

export async function show(page) {
  const topic = page.parts[1];
  const path = `/dlq/${part(topic)}`;
  const state = { kind: null, text: "" };
  const kinds = h("div", { class: "pick-list" }, loading());
  const title = h("h2");
  const runs = h("div", { class: "runs" });
  const list = table([
    { name: "Letter", cell: (row) => h("button", { class: "linkish mono", onclick: () => look(row) }, row.letter) },
    { name: "Failed", sort: (row) => row.last_failure_ms, cell: (row) => ago(row.last_failure_ms > 0 ? row.last_failure_ms : row.message.timestamp_ms) },
    { name: "Error", class: "error", sort: (row) => row.error_class, cell: (row) => h("span", {}, badge(row.error_class || "unknown", "dead"), row.error_message) },
    { name: "Key", class: "mono", cell: (row) => payload(row.message.key ?? "–") },
    { name: "Payload", class: "mono value", cell: (row) => h("span", { class: "payload", dir: "auto" }, payload(text(row.message).slice(0, 160))) },
    { name: "Tries", right: true, sort: (row) => row.attempts, cell: (row) => count(row.attempts) },
    { name: "Sent back", right: true, sort: (row) => row.redrives, cell: (row) => count(row.redrives) },
  ], { key: (row) => row.letter, label: "Letters", none: empty("No open letters", "Everything was sent back or put away. Well done.") });

  const chosen = () => ({ ...(state.kind ? { error_class: state.kind.name.error, error_text: state.kind.name.message } : {}) });
  async function refresh() {
    const [seen, some] = await Promise.all([get(`${path}/stats`, { by: "error" }), get(path, { ...chosen(), limit: 200 })]);
    put(kinds, kindButton(null, seen.letters), seen.kinds.map((one) => kindButton(one, one.count)));
    title.textContent = state.kind ? `${state.kind.name.error || "unknown"}: ${state.kind.name.message}` : "All letters";
    list.update(some.letters);
    await follow();
  }
  function kindButton(kind, number) {
    const same = JSON.stringify(kind?.name ?? null) === JSON.stringify(state.kind?.name ?? null);
    return h("button", { type: "button", "aria-pressed": String(same), onclick: () => { state.kind = kind; refresh().catch(trouble); } },
      h("span", {}, h("span", { class: "count" }, count(number)), h("b", {}, kind ? kind.name.error || "unknown" : "All errors")),
      kind && h("small", { class: "muted" }, kind.name.message || "without a message", " · last ", ago(kind.last_ms)));
  }

  // -- redrives under way and done ---------------------------------------------------------------

  async function follow() {
    const { redrives } = await own("/redrives");
    const mine = redrives.filter((one) => one.topic === topic).slice(0, 5);
    put(runs, mine.map(run));
  }
  const WORDS = { running: ["on its way", "accent"], completed: ["done", "good"], cancelled: ["stopped", "warn"], failed: ["failed", "bad"], undone: ["undone", "warn"] };
  function run(one) {
    const [word, tone] = WORDS[one.state];
    return h("div", { class: "card run", "data-state": one.state },
      h("div", { class: "run-head" }, badge(word, tone), h("span", { class: "grow" },
        one.state === "undone" ? `${plural(one.taken_back, "letter")} taken back of ${count(one.sent)} sent` : `${count(one.sent)} of ${plural(one.total, "letter")} sent ${one.to ? `to ${one.to}` : "back"}`,
        one.rate && `, at most ${one.rate}/s`, one.skipped > 0 && `, ${count(one.skipped)} skipped`, h("small", { class: "muted" }, ` · ${ago(one.started_ms)} by ${one.who.replace(/^User:/, "")}`)),
      one.state === "running" && button("Stop", () => act(one, "stop"), { kind: "small", changes: true }),
      one.can_undo && button("Undo", () => act(one, "undo"), { kind: "small", name: "undo", changes: true, title: "Takes back what was not delivered yet" })),
      one.state === "running" && h("progress", { max: Math.max(1, one.total), value: one.sent, "aria-label": "Progress" }),
      one.error && h("p", { class: "note bad" }, one.error));
  }
  async function act(one, what) {
    try {
      const now = await ownPost(`/redrives/${one.id}/${what}`);
      toast(what === "undo" ? `${plural(now.taken_back, "letter")} taken back; the others were delivered already` : "Stopped");
    } catch (error) { trouble(error); }
    refresh().catch(trouble);
  }

  // -- sending back ------------------------------------------------------------------------------

  function redrive(letters) {
    const to = h("input", { placeholder: "where each came from", class: "mono", name: "to" });
    const rate = h("input", { type: "number", min: 0.1, step: "any", placeholder: "as fast as possible", name: "rate" });
    const limit = h("input", { type: "number", min: 1, placeholder: "all", name: "limit" });
    const key = h("input", { placeholder: "any", class: "mono", name: "key" });
    const redrives = h("input", { type: "number", min: 0, placeholder: "any", name: "redrives_max" });
    const preview = h("div", {}, loading("Counting…"));
    const wanted = () => {
      const body = letters ? { letters } : chosen();
      if (key.value) body.key = key.value;
      if (redrives.value !== "") body.redrives_max = Number(redrives.value);
      return body;
    };
    const look = async () => {
      try {
        const seen = await get(`${path}/stats`, { ...wanted(), letters: letters?.join(","), by: "class" });
        put(preview, h("p", { class: "note" }, `${plural(seen.letters, "letter")} will be sent back, each exactly once.`));
      } catch (error) { put(preview, h("p", { class: "note bad" }, error.message)); }
    };
    [key, redrives].forEach((input) => input.addEventListener("change", look));
    dialog("Send letters back", (close) => h("form", { class: "dialog-body", onsubmit: async (event) => {
      event.preventDefault();
      const body = wanted();
      if (to.value) body.to = to.value;
      if (rate.value) body.rate = Number(rate.value);
      if (limit.value) body.limit = Number(limit.value);
      try {
        await ownPost(`${path}/redrives`, body);
        close();
        toast("The redrive has begun");
        await refresh();
      } catch (error) { trouble(error); }
    } },
    h("p", { class: "muted" }, letters ? `Letters ${letters.join(", ")}` : state.kind ? `Letters of ${state.kind.name.error || "unknown"}` : "All letters of this topic"),
    h("div", { class: "columns" }, field("To topic", to), field("Letters a second", rate, "so that workers are not flooded")),
    h("div", { class: "columns three" }, field("At most", limit), field("Only with key", key), field("Sent back at most", redrives, "times before")),
    preview,
    h("footer", {}, button("Cancel", close, { kind: "ghost" }), h("button", { class: "button primary", type: "submit", name: "redrive" }, "Send back"))), { wide: true });
    look();
  }

  function purge(letters) {
    confirm("Put letters away?", "They are settled without being sent back. They stay in the log until retention takes them, but are not listed any more.", "Put away", async () => {
      const done = await post(`${path}/purge`, letters ? { letters } : { ...chosen(), all: !state.kind });
      toast(`${plural(done.letters, "letter")} put away`);
      await refresh();
    });
  }

  // -- one letter --------------------------------------------------------------------------------

  function look(row) {
    const { message } = row;
    const edited = h("textarea", { rows: 12, class: "mono", spellcheck: "false", name: "payload" });
    edited.value = pretty(message);
    const source = row.source ? h("a", { href: `#/topics/${part(row.source.topic)}/messages?partition=${row.source.partition}&from=offset&offset=${row.source.offset}` }, `${row.source.topic}-${row.source.partition}, offset ${row.source.offset}`) : "unknown";
    const panel = drawer(`Letter ${row.letter}`, () => h("div", { class: "drawer-body" },
      h("p", { class: "note bad" }, h("b", {}, row.error_class || "unknown error"), row.error_message && `: ${row.error_message}`),
      h("dl", { class: "facts" }, fact("Given up by", row.group || "unknown"), fact("After tries", count(row.attempts)), fact("Came from", source), fact("First failed", moment(row.first_failure_ms)), fact("Last failed", moment(row.last_failure_ms)), fact("Key", h("span", { class: "mono payload", dir: "auto" }, payload(message.key ?? "none"))), fact("Sent back before", count(row.redrives))),
      card("Headers", Object.keys(message.headers).length ? h("table", { class: "plain" }, h("tbody", {}, Object.entries(message.headers).map(([name, value]) => h("tr", {}, h("th", { scope: "row", class: "mono" }, payload(name)), h("td", { class: "mono payload", dir: "auto" }, payload(typeof value === "string" ? value : JSON.stringify(value))))))) : h("p", { class: "muted" }, "none")),
      field("Payload, to be edited before it is sent back", edited, message.payload_base64 ? "bytes, shown as base64: they cannot be edited here" : ""),
      h("footer", {}, button("Put away", () => { panel.close(); purge([row.letter]); }, { kind: "ghost danger", changes: true }),
        button("Send back as it is", () => { panel.close(); redrive([row.letter]); }, { changes: true }),
        button("Send back edited", async () => {
          try {
            await ownPost(`${path}/redrives`, { letters: [row.letter], payload_base64: encode(edited.value) });
            panel.close();
            toast("Sent back with your changes");
            await refresh();
          } catch (error) { trouble(error); }
        }, { kind: "primary", changes: true, disabled: Boolean(message.payload_base64) }))));
  }

  await refresh();
  page.show(heading(topic, "Messages that were given up, by why", h("a", { class: "button ghost", href: `#/topics/${part(topic)}` }, "Topic"),
    button("Put away…", () => purge(null), { kind: "ghost danger", changes: true }), button("Send back…", () => redrive(null), { kind: "primary", changes: true })),
  runs, h("div", { class: "split" }, h("section", {}, h("h2", {}, "Errors"), kinds), h("section", { class: "card flush" }, h("div", { class: "card-head" }, title), list.root)));
  let beats = 0;
  page.every(1000, async () => {
    beats += 1;
    if (beats % 4 === 0 || runs.querySelector('[data-state="running"]')) await refresh();
  });
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function text(message) {
  if (message.payload_base64) return message.payload_base64;
  return typeof message.payload === "string" ? message.payload : JSON.stringify(message.payload ?? null);
}

function pretty(message) {
  if (message.payload_base64) return message.payload_base64;
  return typeof message.payload === "string" ? message.payload : JSON.stringify(message.payload ?? null, null, 2);
}
