// Dead letters of a topic: by error, with inspection, editing, redrive with progress, and undo.

import { get, own, ownPost, part, post, session } from "../api.js";
import { h, morph, payload, put } from "../dom.js";
import { ago, bytes, count, moment, plural, zone } from "../format.js";
import { coloured, indent } from "../json_view.js";
import { attempt, badge, button, confirm, copyText, drawer, empty, field, formDialog, heading, loading, problemBox, table, tabs, toast, showError } from "../parts.js";
import { encode } from "./produce.js";

const PAGE = 200;
const SHOWN_MAX = 1000;

export async function show(page) {
  const topic = page.parts[1];
  const path = `/dlq/${part(topic)}`;
  const given = (name) => page.query.get(name);
  const about = await own(`/topics/${part(topic)}`);
  const may = about.may ?? { write: true, delete: true };
  const state = { kind: given("template") === null ? null : { error: given("error") ?? "", message: given("template") }, limit: PAGE, checked: [] };
  const kinds = h("div", { class: "pick-list" }, loading());
  const title = h("h2");
  const runs = h("div", { class: "runs" });
  const bar = h("div", { class: "selection", role: "status" });
  const foot = h("div", { class: "pager" });
  const list = table([
    { name: "Failed", aging: true, sort: (row) => row.last_failure_ms, cell: (row) => h("span", { title: `${moment(failedAt(row))} ${zone()}` }, ago(failedAt(row))) },
    { name: "Error", class: "error", sort: (row) => row.error_class, cell: (row) => h("span", { title: row.error_message }, badge(row.error_class || "unknown", "dead"), row.error_message) },
    { name: "Key", class: "mono key", cell: (row) => payload(row.message.key ?? "–") },
    { name: "Payload", class: "mono value", cell: (row) => h("span", { class: "payload", dir: "auto" }, payload(text(row.message).slice(0, 160))) },
    { name: "Tries", title: "Delivery attempts", right: true, sort: (row) => row.attempts, cell: (row) => h("span", {}, count(row.attempts), row.redrives > 0 && h("small", { class: "muted" }, ` +${plural(row.redrives, "redrive")}`)) },
    { name: "Offset", right: true, cell: (row) => h("button", { class: "linkish mono", type: "button", "aria-label": `Dead letter ${row.letter}`, onclick: () => look(row) }, row.letter) },
  ], { key: (row) => row.letter, label: "Dead letters", onrow: (row) => look(row), choose: (keys) => { state.checked = keys; drawBar(); },
    none: empty("No open dead letters", "All dead letters were redriven or purged.") });

  const chosen = () => (state.kind ? { error_class: escaped(state.kind.error), error_template: state.kind.message } : {});
  async function refresh() {
    const [seen, some] = await Promise.all([get(`${path}/stats`, { by: "template" }), get(path, { ...chosen(), limit: state.limit })]);
    morph(kinds, kindButton(null, seen.letters), seen.kinds.map((one) => kindButton(one.name, one.count, one.last_ms)));
    title.textContent = state.kind ? `${state.kind.error || "unknown"}: ${state.kind.message}` : "All dead letters";
    list.update(some.letters);
    morph(foot, some.has_more && state.limit < SHOWN_MAX && button("Load more", () => { state.limit = Math.min(SHOWN_MAX, state.limit + PAGE); refresh().catch(showError); }, { name: "plus" }),
      h("span", { class: "muted" }, plural(some.letters.length, "dead letter"), some.has_more && (state.limit < SHOWN_MAX ? " shown" : " shown, the most at once: choose an error to see others")));
    await follow();
  }
  function kindButton(name, number, lastMs) {
    const same = JSON.stringify(name && [name.error, name.message]) === JSON.stringify(state.kind && [state.kind.error, state.kind.message]);
    return h("button", { type: "button", "aria-pressed": String(same), onclick: () => {
      state.kind = name;
      state.limit = PAGE;
      list.choose([]);
      page.remember({ error: name?.error, template: name?.message ?? null });
      if (name && !name.message) page.query.set("template", "");
      refresh().catch(showError);
    } },
    h("span", {}, h("span", { class: "count" }, count(number)), h("b", {}, name ? name.error || "unknown" : "All errors")),
    name && h("small", { class: "muted" }, template(name.message), " · last ", ago(lastMs)));
  }
  function drawBar() {
    const size = state.checked.length;
    morph(bar, size > 0 && h("div", { class: "selection-bar" }, h("b", {}, `${count(size)} selected`),
      button("Redrive selected…", () => redrive(state.checked), { kind: "small primary", changes: true }),
      button("Purge selected…", () => purge(state.checked), { kind: "small", changes: true, may: may.delete }),
      button("Clear", () => list.choose([]), { kind: "small ghost" })));
  }

  // -- redrives ----------------------------------------------------------------------------------

  async function follow() {
    const { redrives } = await own("/redrives");
    const mine = redrives.filter((one) => one.topic === topic).slice(0, 5);
    morph(runs, mine.map(run));
  }
  const WORDS = { running: ["running", "accent"], completed: ["done", "good"], cancelled: ["stopped", "warn"], failed: ["failed", "bad"], undone: ["undone", "warn"] };
  function run(one) {
    const [word, tone] = WORDS[one.state];
    return h("div", { class: "card run", "data-state": one.state },
      h("div", { class: "run-head" }, badge(word, tone), h("span", { class: "grow" },
        one.state === "undone" ? `${plural(one.taken_back, "dead letter")} taken back of ${count(one.sent)} redriven` : `${count(one.sent)} of ${plural(Math.max(one.total, one.sent), "dead letter")} redriven${one.to ? ` to ${one.to}` : ""}`,
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
    const count = async () => {
      try {
        const seen = await get(`${path}/stats`, { ...wanted(), letters: letters?.join(","), by: "class" });
        const most = limit.value && Number(limit.value) < seen.letters ? Number(limit.value) : seen.letters;
        put(preview, h("p", { class: "note" }, `${plural(most, "dead letter")} will be redriven, each exactly once.`));
      } catch (error) { put(preview, h("p", { class: "note bad" }, error.message)); }
    };
    [limit, key, redrives].forEach((input) => input.addEventListener("change", count));
    formDialog("Redrive dead letters", [
      h("p", { class: "muted" }, letters ? (letters.length > 8 ? `${letters.length} selected dead letters` : `Dead letters ${letters.join(", ")}`) : state.kind ? `Dead letters with error ${state.kind.error || "unknown"}: ${state.kind.message}` : "All dead letters of this topic"),
      h("div", { class: "columns" }, field("Target topic", to), field("Dead letters per second", rate, "limits the load on consumers")),
      h("div", { class: "columns three" }, field("Maximum number", limit), field("Only with key", key), field("Maximum redrives so far", redrives)),
      preview,
    ], "Redrive", async () => {
      const body = wanted();
      if (to.value) body.to = to.value;
      if (rate.value) body.rate = Number(rate.value);
      if (limit.value) body.limit = Number(limit.value);
      await ownPost(`${path}/redrives`, body);
      list.choose([]);
      toast("The redrive has started");
      await refresh();
    }, { wide: true, name: "redrive" });
    count();
  }

  function purge(letters) {
    const what = letters ? plural(letters.length, "selected dead letter") : state.kind ? `All dead letters with error ${state.kind.error || "unknown"}: ${state.kind.message}` : "All dead letters of this topic";
    const text = h("div", {}, h("p", {}, h("b", {}, what)), h("p", {}, "They are settled without being redriven, and not listed any more. They stay in the log until retention deletes them."));
    confirm("Purge dead letters?", text, "Purge", async () => {
      const done = await post(`${path}/purge`, letters ? { letters } : { ...chosen(), all: !state.kind });
      list.choose([]);
      toast(`${plural(done.letters, "dead letter")} purged`);
      await refresh();
    }, { typed: letters ? null : topic });
  }

  // -- single dead letter ------------------------------------------------------------------------

  // The payload comes from the record itself: numbers keep all digits.
  async function look(row) {
    page.remember({ letter: row.letter });
    const body = h("div", { class: "drawer-body", tabindex: "0" }, loading());
    const panel = drawer(`Dead letter ${row.letter}`, () => body, () => page.remember({ letter: "" }));
    try {
      const { value } = await own(`/topics/${part(topic)}/messages/${row.letter.replace(":", "/")}`);
      put(body, inside(row, value, panel));
    } catch (error) { put(body, h("p", { class: "note bad" }, error.message)); }
  }

  function inside(row, value, panel) {
    const { message } = row;
    const isText = ["text", "json"].includes(value.form) && !value.is_cut;
    const shown = value.form === "json" && !value.is_cut ? indent(value.text) : value.text;
    const edited = h("textarea", { rows: 12, class: "mono", spellcheck: "false", name: "payload", "aria-label": "Payload" });
    edited.value = shown;
    const problem = problemBox();
    const source = row.source ? h("a", { href: `#/topics/${part(row.source.topic)}/messages?partition=${row.source.partition}&from=offset&offset=${row.source.offset}` }, `${row.source.topic}-${row.source.partition}, offset ${row.source.offset}`) : "unknown";
    const headers = Object.entries(message.headers);
    const view = h("div", { class: "view" });
    const views = {
      payload: () => h("pre", { class: "payload big", dir: "auto", tabindex: "0" }, value.form === "null" ? "null" : isText && value.form === "json" ? coloured(shown) : payload(shown)),
      trace: () => h("pre", { class: "payload big trace", tabindex: "0" }, payload(row.traceback)),
      headers: () => headers.length ? h("table", { class: "plain" }, h("tbody", {}, headers.map(([name, one]) => h("tr", {}, h("th", { scope: "row", class: "mono" }, payload(name)), h("td", { class: "mono payload", dir: "auto" }, payload(typeof one === "string" ? one : JSON.stringify(one)))))))
        : h("p", { class: "muted" }, "No headers."),
      edit: () => [edited, problem.root, h("footer", {}, send)],
    };
    const send = button("Redrive edited", () => attempt(send, problem, async () => {
      await ownPost(`${path}/redrives`, { letters: [row.letter], payload_base64: encode(edited.value) });
      panel.close();
      toast("The redrive has started with your changes");
      await refresh();
    }), { kind: "primary", changes: true });
    const first = row.traceback ? "trace" : "payload";
    put(view, views[first]());
    return [
      h("p", { class: "note bad error-note" }, h("b", {}, row.error_class || "unknown error"), row.error_message && `: ${row.error_message}`),
      h("dl", { class: "facts" }, fact("Dead-lettered by", row.group || "unknown"), fact("Delivery attempts", count(row.attempts)), fact("Redrives", count(row.redrives)), fact("Source", source),
        fact("First failed", moment(row.first_failure_ms)), fact("Last failed", moment(row.last_failure_ms)), fact("Key", h("span", { class: "mono payload", dir: "auto" }, payload(message.key ?? "none"))), fact("Payload", `${value.form}, ${bytes(value.size)}`)),
      tabs([row.traceback && ["trace", "Traceback"], ["payload", "Payload"], isText && !session.is_read_only && ["edit", "Edit and redrive"], ["headers", `Headers (${headers.length})`]].filter(Boolean), first, (name) => put(view, views[name]())),
      view,
      h("footer", {}, button("Copy link", () => copyText(location.href), { kind: "ghost", name: "link" }), button("Purge", () => { panel.close(); purge([row.letter]); }, { kind: "ghost danger", changes: true, may: may.delete }),
        button("Redrive", () => { panel.close(); redrive([row.letter]); }, { kind: "primary", changes: true })),
    ];
  }

  await refresh();
  page.show(heading(topic, "Dead letters by error: similar messages are counted together", h("a", { class: "button ghost", href: `#/topics/${part(topic)}` }, "Topic"),
    button("Purge…", () => purge(null), { kind: "ghost danger", changes: true, may: may.delete }), button("Redrive…", () => redrive(null), { kind: "primary", changes: true })),
  runs, h("div", { class: "split" }, h("section", {}, h("h2", {}, "Errors"), kinds),
    h("section", { class: "card flush letters" }, h("div", { class: "card-head" }, title, page.finder("Find in these", list)), bar, list.root, foot)));
  if (given("letter")) {
    const one = await get(`${path}/letters/${part(given("letter"))}`).catch(showError);
    if (one) look(one);
  }
  let ticks = 0;
  page.every(1000, async () => {
    ticks += 1;
    if (ticks % 4 === 0 || runs.querySelector('[data-state="running"]')) await refresh();
  });
}

const failedAt = (row) => (row.last_failure_ms > 0 ? row.last_failure_ms : row.message.timestamp_ms);

// Error classes are matched as patterns: only the class itself is meant.
const escaped = (name) => name.replace(/[[*?]/g, "[$&]");

// Variable parts of a template stand out.
function template(text) {
  if (!text) return "no error message";
  return text.split("<*>").map((one, at) => [at > 0 && h("i", { class: "hole", title: "differs between the messages" }, "…"), one]);
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function text(message) {
  if (message.payload_base64) return message.payload_base64;
  return typeof message.payload === "string" ? message.payload : JSON.stringify(message.payload ?? null);
}
