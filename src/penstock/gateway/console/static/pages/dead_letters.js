// Dead letters of a topic: by error, with inspection, editing, redrive with progress, and undo.

import { get, own, ownPost, part, post } from "../api.js";
import { h, payload, put } from "../dom.js";
import { ago, count, moment, plural } from "../format.js";
import { badge, button, card, confirm, dialog, drawer, empty, field, heading, loading, table, toast, showError } from "../parts.js";
import { encode } from "./produce.js";

export async function show(page) {
  const topic = page.parts[1];
  const path = `/dlq/${part(topic)}`;
  const state = { kind: null, text: "" };
  const kinds = h("div", { class: "pick-list" }, loading());
  const title = h("h2");
  const runs = h("div", { class: "runs" });
  const list = table([
    { name: "Dead letter", cell: (row) => h("button", { class: "linkish mono", onclick: () => look(row) }, row.letter) },
    { name: "Failed", sort: (row) => row.last_failure_ms, cell: (row) => ago(row.last_failure_ms > 0 ? row.last_failure_ms : row.message.timestamp_ms) },
    { name: "Error", class: "error", sort: (row) => row.error_class, cell: (row) => h("span", {}, badge(row.error_class || "unknown", "dead"), row.error_message) },
    { name: "Key", class: "mono", cell: (row) => payload(row.message.key ?? "–") },
    { name: "Payload", class: "mono value", cell: (row) => h("span", { class: "payload", dir: "auto" }, payload(text(row.message).slice(0, 160))) },
    { name: "Attempts", right: true, sort: (row) => row.attempts, cell: (row) => count(row.attempts) },
    { name: "Redrives", right: true, sort: (row) => row.redrives, cell: (row) => count(row.redrives) },
  ], { key: (row) => row.letter, label: "Dead letters", none: empty("No open dead letters", "All dead letters were redriven or purged.") });

  const chosen = () => ({ ...(state.kind ? { error_class: state.kind.name.error, error_text: state.kind.name.message } : {}) });
  async function refresh() {
    const [seen, some] = await Promise.all([get(`${path}/stats`, { by: "error" }), get(path, { ...chosen(), limit: 200 })]);
    put(kinds, kindButton(null, seen.letters), seen.kinds.map((one) => kindButton(one, one.count)));
    title.textContent = state.kind ? `${state.kind.name.error || "unknown"}: ${state.kind.name.message}` : "All dead letters";
    list.update(some.letters);
    await follow();
  }
  function kindButton(kind, number) {
    const same = JSON.stringify(kind?.name ?? null) === JSON.stringify(state.kind?.name ?? null);
    return h("button", { type: "button", "aria-pressed": String(same), onclick: () => { state.kind = kind; refresh().catch(showError); } },
      h("span", {}, h("span", { class: "count" }, count(number)), h("b", {}, kind ? kind.name.error || "unknown" : "All errors")),
      kind && h("small", { class: "muted" }, kind.name.message || "no error message", " · last ", ago(kind.last_ms)));
  }

  // -- redrives ----------------------------------------------------------------------------------

  async function follow() {
    const { redrives } = await own("/redrives");
    const mine = redrives.filter((one) => one.topic === topic).slice(0, 5);
    put(runs, mine.map(run));
  }
  const WORDS = { running: ["running", "accent"], completed: ["done", "good"], cancelled: ["stopped", "warn"], failed: ["failed", "bad"], undone: ["undone", "warn"] };
  function run(one) {
    const [word, tone] = WORDS[one.state];
    return h("div", { class: "card run", "data-state": one.state },
      h("div", { class: "run-head" }, badge(word, tone), h("span", { class: "grow" },
        one.state === "undone" ? `${plural(one.taken_back, "dead letter")} taken back of ${count(one.sent)} redriven` : `${count(one.sent)} of ${plural(one.total, "dead letter")} redriven${one.to ? ` to ${one.to}` : ""}`,
        one.rate && `, at most ${one.rate} per second`, one.skipped > 0 && `, ${count(one.skipped)} skipped`, h("small", { class: "muted" }, ` · ${ago(one.started_ms)} by ${one.who.replace(/^User:/, "")}`)),
      one.state === "running" && button("Stop", () => act(one, "stop"), { kind: "small", changes: true }),
      one.can_undo && button("Undo", () => act(one, "undo"), { kind: "small", name: "undo", changes: true, title: "Takes back copies that were not delivered yet" })),
      one.state === "running" && h("progress", { max: Math.max(1, one.total), value: one.sent, "aria-label": "Progress" }),
      one.error && h("p", { class: "note bad" }, one.error));
  }
  async function act(one, what) {
    try {
      const now = await ownPost(`/redrives/${one.id}/${what}`);
      toast(what === "undo" ? `${plural(now.taken_back, "dead letter")} taken back; the others were already delivered` : "Redrive stopped");
    } catch (error) { showError(error); }
    refresh().catch(showError);
  }

  // -- redrive and purge dialogs -----------------------------------------------------------------

  function redrive(letters) {
    const to = h("input", { placeholder: "source topic of each", class: "mono", name: "to" });
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
        put(preview, h("p", { class: "note" }, `${plural(seen.letters, "dead letter")} will be redriven, each exactly once.`));
      } catch (error) { put(preview, h("p", { class: "note bad" }, error.message)); }
    };
    [key, redrives].forEach((input) => input.addEventListener("change", look));
    dialog("Redrive dead letters", (close) => h("form", { class: "dialog-body", onsubmit: async (event) => {
      event.preventDefault();
      const body = wanted();
      if (to.value) body.to = to.value;
      if (rate.value) body.rate = Number(rate.value);
      if (limit.value) body.limit = Number(limit.value);
      try {
        await ownPost(`${path}/redrives`, body);
        close();
        toast("The redrive has started");
        await refresh();
      } catch (error) { showError(error); }
    } },
    h("p", { class: "muted" }, letters ? `Dead letters ${letters.join(", ")}` : state.kind ? `Dead letters with error ${state.kind.name.error || "unknown"}` : "All dead letters of this topic"),
    h("div", { class: "columns" }, field("Target topic", to), field("Dead letters per second", rate, "limits the load on consumers")),
    h("div", { class: "columns three" }, field("Maximum number", limit), field("Only with key", key), field("Maximum redrives so far", redrives)),
    preview,
    h("footer", {}, button("Cancel", close, { kind: "ghost" }), h("button", { class: "button primary", type: "submit", name: "redrive" }, "Redrive"))), { wide: true });
    look();
  }

  function purge(letters) {
    confirm("Purge dead letters?", "They are settled without being redriven, and not listed any more. They stay in the log until retention deletes them.", "Purge", async () => {
      const done = await post(`${path}/purge`, letters ? { letters } : { ...chosen(), all: !state.kind });
      toast(`${plural(done.letters, "dead letter")} purged`);
      await refresh();
    });
  }

  // -- single dead letter ------------------------------------------------------------------------

  function look(row) {
    const { message } = row;
    const edited = h("textarea", { rows: 12, class: "mono", spellcheck: "false", name: "payload" });
    edited.value = pretty(message);
    const source = row.source ? h("a", { href: `#/topics/${part(row.source.topic)}/messages?partition=${row.source.partition}&from=offset&offset=${row.source.offset}` }, `${row.source.topic}-${row.source.partition}, offset ${row.source.offset}`) : "unknown";
    const panel = drawer(`Dead letter ${row.letter}`, () => h("div", { class: "drawer-body" },
      h("p", { class: "note bad" }, h("b", {}, row.error_class || "unknown error"), row.error_message && `: ${row.error_message}`),
      h("dl", { class: "facts" }, fact("Dead-lettered by", row.group || "unknown"), fact("Delivery attempts", count(row.attempts)), fact("Source", source), fact("First failed", moment(row.first_failure_ms)), fact("Last failed", moment(row.last_failure_ms)), fact("Key", h("span", { class: "mono payload", dir: "auto" }, payload(message.key ?? "none"))), fact("Redrives", count(row.redrives))),
      card("Headers", Object.keys(message.headers).length ? h("table", { class: "plain" }, h("tbody", {}, Object.entries(message.headers).map(([name, value]) => h("tr", {}, h("th", { scope: "row", class: "mono" }, payload(name)), h("td", { class: "mono payload", dir: "auto" }, payload(typeof value === "string" ? value : JSON.stringify(value))))))) : h("p", { class: "muted" }, "none")),
      field("Payload, can be edited before the redrive", edited, message.payload_base64 ? "binary data as base64: cannot be edited here" : ""),
      h("footer", {}, button("Purge", () => { panel.close(); purge([row.letter]); }, { kind: "ghost danger", changes: true }),
        button("Redrive unchanged", () => { panel.close(); redrive([row.letter]); }, { changes: true }),
        button("Redrive edited", async () => {
          try {
            await ownPost(`${path}/redrives`, { letters: [row.letter], payload_base64: encode(edited.value) });
            panel.close();
            toast("The redrive has started with your changes");
            await refresh();
          } catch (error) { showError(error); }
        }, { kind: "primary", changes: true, disabled: Boolean(message.payload_base64) }))));
  }

  await refresh();
  page.show(heading(topic, "Dead letters by error", h("a", { class: "button ghost", href: `#/topics/${part(topic)}` }, "Topic"),
    button("Purge…", () => purge(null), { kind: "ghost danger", changes: true }), button("Redrive…", () => redrive(null), { kind: "primary", changes: true })),
  runs, h("div", { class: "split" }, h("section", {}, h("h2", {}, "Errors"), kinds), h("section", { class: "card flush" }, h("div", { class: "card-head" }, title), list.root)));
  let ticks = 0;
  page.every(1000, async () => {
    ticks += 1;
    if (ticks % 4 === 0 || runs.querySelector('[data-state="running"]')) await refresh();
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
