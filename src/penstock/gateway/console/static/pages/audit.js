// Audit log: administrative actions and denials, newest first.

import { own } from "../api.js";
import { h, put } from "../dom.js";
import { clock, count, moment, plural, zone } from "../format.js";
import { attempt, badge, button, empty, heading, problemBox, searchBox, select, table } from "../parts.js";

const TONES = { done: "good", denied: "bad", failed: "warn" };

export async function show(page) {
  const state = { text: page.query.get("find") ?? "", outcome: page.query.get("outcome") ?? "" };
  let all = [];
  let older = "";
  let asked = 0;
  const list = table([
    { name: `Time (${zone()})`, class: "mono", cell: (row) => h("span", { title: moment(row.time_ms) }, moment(row.time_ms).slice(0, 19)) },
    { name: "Outcome", cell: (row) => h("span", {}, badge(row.outcome, TONES[row.outcome] ?? ""), row.suppressed > 0 && badge(`+${count(row.suppressed)} similar`)) },
    { name: "Principal", cell: (row) => h("span", { class: "strong" }, row.principal) },
    { name: "Action", cell: (row) => h("span", { class: "mono" }, row.action) },
    { name: "Resources", class: "wrap", cell: (row) => h("span", {}, row.resources.join(", "), row.more_resources > 0 && ` and ${row.more_resources} more`, row.codes.length > 0 && h("small", { class: "muted" }, ` ${row.codes.join(", ")}`)) },
    { name: "From", cell: (row) => h("span", { class: "muted" }, `${row.peer} · ${row.protocol}`) },
  ], { key: (row) => row.place, label: "Audit log", none: empty("No entries", "With ACLs or audit.enable=true, administrative actions and denied ones are listed here.") });
  const note = h("span", { class: "muted", role: "status" });
  const problem = problemBox();
  const more = button("Load more", () => attempt(more, problem, () => load(older)), { name: "plus" });
  async function load(before) {
    const mine = ++asked;
    const seen = await own("/audit", { outcome: state.outcome, text: state.text, before });
    if (mine !== asked) return;
    all = before ? [...all, ...seen.entries] : seen.entries;
    older = seen.older;
    more.hidden = !older;
    note.textContent = `${plural(all.length, "entry", "entries")}${older ? " so far" : ""} · ${clock(Date.now())}`;
    list.update(all);
  }
  const again = () => {
    page.remember({ find: state.text, outcome: state.outcome });
    attempt(more, problem, () => load(""));
  };
  await load("");
  page.show(heading("Audit log", "Administrative actions, and requests that were denied", button("Refresh", again, { kind: "ghost" })),
    h("div", { class: "toolbar" }, searchBox("Principal, action or resource", (text) => { state.text = text; again(); }, state.text),
      select([["", "all outcomes"], "done", "denied", "failed"], state.outcome, (value) => { state.outcome = value; again(); }, { "aria-label": "Outcome", name: "outcome" })),
    problem.root, h("section", { class: "card flush" }, list.root), h("div", { class: "pager" }, more, note));
}
