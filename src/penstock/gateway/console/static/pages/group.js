// Group: members, lag by partition in records and in time, offset resets.

import { own, ownPost, part, send } from "../api.js";
import { areaChart, bars } from "../charts.js";
import { h, morph, put } from "../dom.js";
import { count, duration, plural, rate, short, timeOf, zone } from "../format.js";
import { badge, button, card, confirm, dialog, empty, field, heading, loading, problemBox, attempt, select, stat, table, toast } from "../parts.js";
import { trendText } from "./overview.js";

export async function show(page) {
  const group = page.parts[1];
  const path = `/groups/${part(group)}`;
  const stats = { lag: stat("Lag", "lag"), age: stat("Oldest unread"), pace: stat("Read rate", "out"), eta: stat("Caught up in") };
  const chart = areaChart({ title: "Lag, last minute" });
  const hot = h("div");
  const places = table([
    { name: "Topic", sort: (row) => row.topic, cell: (row) => h("a", { href: `#/topics/${part(row.topic)}` }, row.topic) },
    { name: "Partition", right: true, sort: (row) => row.partition, cell: (row) => String(row.partition) },
    { name: "Offset", right: true, cell: (row) => h("a", { href: `#/topics/${part(row.topic)}/messages?partition=${row.partition}&from=offset&offset=${Math.max(0, row.position)}` }, count(row.position)) },
    { name: "End", right: true, cell: (row) => count(row.end) },
    { name: "Lag", right: true, sort: (row) => row.lag ?? 0, cell: (row) => count(row.lag) },
    { name: "Lag in time", right: true, sort: (row) => (row.oldest_ms === null ? 0 : Date.now() - row.oldest_ms), cell: (row) => (row.lag ? age(row.oldest_ms) : "–") },
  ], { key: (row) => `${row.topic}/${row.partition}`, order: "Lag", descending: true, label: "Partitions", none: empty("No offsets", "The group has not read anything yet.") });
  const members = table([
    { name: "Member", cell: (row) => h("span", { class: "mono" }, row.member_id) },
    { name: "Client", sort: (row) => row.client_id, cell: (row) => row.client_id },
    { name: "Host", cell: (row) => h("span", { class: "mono" }, row.host) },
  ], { key: (row) => row.member_id, label: "Members", none: empty("No members", "No consumer of this group is connected.") });
  const history = [];
  const refresh = async () => {
    const seen = await own(path);
    const oldest = seen.places.filter((row) => row.lag && row.oldest_ms !== null).map((row) => row.oldest_ms);
    stats.lag.set(short(seen.trend.lag), trendText(seen.trend));
    stats.age.set(oldest.length ? age(Math.min(...oldest)) : "–", oldest.length ? "since it was written" : "no unread records");
    stats.pace.set(rate(seen.trend.read_per_s), "over the last minute");
    stats.eta.set(!seen.trend.lag ? "now" : seen.trend.eta_s === null ? "never" : duration(seen.trend.eta_s), !seen.trend.lag ? "all records are read" : "at this pace");
    const now = Date.now();
    chart.update(seen.trend.recent.map((_, at) => now - (seen.trend.recent.length - 1 - at) * 2000), [{ name: "lag", tone: "lag", values: seen.trend.recent }]);
    const furthest = seen.places.filter((row) => row.lag).sort((a, b) => b.lag - a.lag).slice(0, 8);
    morph(hot, furthest.length ? bars(furthest.map((row) => ({ name: `${row.topic}-${row.partition}`, value: row.lag })), { tone: "lag" }) : empty("No lag", "The group has read all records."));
    places.update(seen.places);
    members.update(seen.members);
    return seen;
  };
  const seen = await refresh();
  page.show(
    heading(h("span", {}, group, " ", badge(seen.kind), badge(seen.state)), plural(seen.members.length, "member"),
      button("Reset…", () => move(path, group, seen, refresh), { changes: true, may: seen.may.reset, title: "Reset the group's offsets" }),
      button("Delete", () => confirm(`Delete group ${group}?`, "Its committed offsets are deleted, too: a new group of this name starts from the beginning or end.", "Delete group", async () => {
        await send("DELETE", path); toast(`Group ${group} was deleted`); location.hash = "#/groups";
      }, { typed: group }), { kind: "ghost danger", changes: true, may: seen.may.delete })),
    h("div", { class: "stats" }, Object.values(stats).map((one) => one.root)),
    h("div", { class: "grid two" }, h("section", { class: "card" }, chart.root), card("Largest lag", hot)),
    h("section", { class: "card flush" }, places.root), card("Members", members.root));
  page.every(3000, refresh);
}

function age(ms) {
  return ms === null ? "–" : duration(Math.max(0, (Date.now() - ms) / 1000));
}

// -- resets ------------------------------------------------------------------------------------

function move(path, group, seen, refresh) {
  const topics = [...new Set(seen.places.map((row) => row.topic))];
  const topic = select([["", topics.length ? "all topics of the group" : "choose a topic"], ...topics], "", () => look());
  const kind = select([["start", "beginning"], ["end", "end"], ["-", "number of records before the end"], ["time", "time"], ["offset", "offset"]], "start", () => { fields(); look(); }, { name: "to" });
  const number = h("input", { type: "number", min: 0, value: 100, name: "number", oninput: () => look() });
  const time = h("input", { type: "datetime-local", step: 1, name: "time", oninput: () => look() });
  const more = h("div");
  const preview = h("div", { class: "preview" });
  const go = button("Reset offsets", () => apply(), { kind: "primary", changes: true, disabled: true });
  let close = () => {};
  let turn = 0;

  function fields() {
    put(more, kind.value === "time" ? field(`Time (${zone()})`, time, "the first record at or after this time") : ["-", "offset"].includes(kind.value) ? field(kind.value === "-" ? "Number of records" : "Offset", number) : null);
  }
  function to() {
    if (kind.value === "-") return `-${number.value || 0}`;
    if (kind.value === "offset") return number.value || "0";
    if (kind.value === "time") return `@${time.value ? timeOf(time.value) : Date.now() - 3600000}`;
    return kind.value;
  }
  async function look() {
    const mine = ++turn;
    go.disabled = true;
    put(preview, loading("Calculating…"));
    try {
      const plan = await own(`${path}/reset`, { to: to(), topic: topic.value });
      if (mine !== turn) return;
      const again = plan.moves.reduce((sum, row) => sum + Math.max(0, row.again), 0);
      const over = plan.moves.reduce((sum, row) => sum + Math.max(0, -row.again), 0);
      const changed = plan.moves.filter((row) => row.old !== row.new);
      const rows = table([
        { name: "Partition", cell: (row) => `${row.topic}-${row.partition}` },
        { name: "Current", right: true, cell: (row) => count(row.old) },
        { name: "New", right: true, cell: (row) => h("b", {}, count(row.new)) },
        { name: "New lag", right: true, cell: (row) => count(row.end - row.new) },
      ], { key: (row) => `${row.topic}-${row.partition}`, label: "Preview", none: empty("No changes", "The group already has these offsets.") });
      rows.update(changed.slice(0, 200));
      put(preview,
        plan.members > 0 && h("p", { class: "note warn" }, `${group} has ${plural(plan.members, "member")}: stop them first.`),
        h("p", { class: "note" }, again > 0 && `${plural(again, "record")} will be read again. `, over > 0 && `${plural(over, "record")} will be skipped.  `, !again && !over && "No records are read again or skipped."),
        h("div", { class: "card flush scroll" }, rows.root));
      go.disabled = plan.members > 0 || !changed.length;
    } catch (error) { if (mine === turn) put(preview, h("p", { class: "note bad" }, error.message)); }
  }
  const problem = problemBox();
  async function apply() {
    const done = await attempt(go, problem, async () => {
      const { moves } = await ownPost(`${path}/reset`, { to: to(), topics: topic.value ? [topic.value] : [] });
      toast(`Offsets of ${group} were reset in ${plural(moves.length, "partition")}`);
      await refresh();
    });
    if (done) close();
  }
  dialog(`Reset offsets of ${group}`, (shut) => {
    close = shut;
    return h("div", { class: "dialog-body" }, h("div", { class: "columns" }, field("Topic", topic), field("New offset", kind)), more, preview, problem.root, h("footer", {}, button("Cancel", shut, { kind: "ghost" }), go));
  }, { wide: true });
  fields();
  look();
}
