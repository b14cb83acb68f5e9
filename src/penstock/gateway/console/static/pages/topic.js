// Topic: partitions, configs with their defaults, readers and producers.

import { own, part, send } from "../api.js";
import { bars, spark } from "../charts.js";
import { h, morph, put } from "../dom.js";
import { ago, bytes, count, rate, short } from "../format.js";
import { badge, button, card, confirm, empty, field, formDialog, heading, stat, table, tabs, toast, showError } from "../parts.js";
import { trendText } from "./overview.js";
import { COUNTED, remove } from "./topics.js";
import { produce } from "./produce.js";

export async function show(page) {
  const name = page.parts[1];
  const path = `/topics/${part(name)}`;
  const stats = { records: stat("Records"), size: stat("Size"), rate: stat("Write rate", "in"), skew: stat("Skew") };
  stats.records.root.title = COUNTED;
  const places = h("div");
  const list = table([
    { name: "Partition", sort: (row) => row.partition, cell: (row) => h("a", { href: `#${path}/messages?partition=${row.partition}` }, String(row.partition)) },
    { name: "Leader", sort: (row) => row.leader, cell: (row) => row.leader < 0 ? badge("none", "bad") : `node ${row.leader}` },
    { name: "Replicas", cell: (row) => row.replicas.map((node) => row.isr.includes(node) ? badge(String(node), "good") : badge(`${node} out of sync`, "warn")) },
    { name: "Start offset", right: true, cell: (row) => count(row.start_offset) },
    { name: "End offset", right: true, cell: (row) => count(row.end_offset) },
    { name: "Records", title: COUNTED, right: true, sort: records, cell: (row) => count(records(row)) },
    { name: "Size", right: true, sort: (row) => row.size_bytes ?? 0, cell: (row) => bytes(row.size_bytes) },
  ], { key: (row) => row.partition, order: "Partition", label: "Partitions" });
  const configs = table([
    { name: "Config", sort: (row) => row.name, cell: (row) => h("div", {}, h("span", { class: row.is_set ? "strong mono" : "mono" }, row.name), h("p", { class: "doc" }, row.doc)) },
    { name: "Value", cell: (row) => h("span", { class: "mono" }, row.value ?? "–", " ", row.is_set && badge("set here", "accent"), row.source === "broker" && badge("broker")) },
    { name: "Default", cell: (row) => h("span", { class: "mono muted" }, row.default ?? "–") },
    { name: "", cell: (row) => may.alter_configs && h("span", { class: "row-actions" }, button("Change", () => change(path, row, refresh), { kind: "small ghost", changes: true }),
      row.is_set && button("Reset", () => set(path, row.name, null, refresh).catch(showError), { kind: "small ghost", changes: true })) },
  ], { key: (row) => row.name, order: "Config", label: "Configs", none: empty("Permission denied", "This needs DESCRIBE_CONFIGS permission on the topic.") });
  const readers = table([
    { name: "Group", sort: (row) => row.group, cell: (row) => h("a", { href: `#/groups/${part(row.group)}`, class: "strong" }, row.group) },
    { name: "Kind", cell: (row) => badge(row.kind || "unknown") },
    { name: "Lag", right: true, sort: (row) => row.trend.lag, cell: (row) => h("span", { class: "with-spark" }, spark(row.trend.recent, "lag"), short(row.trend.lag)) },
    { name: "Trend", cell: (row) => trendText(row.trend) },
  ], { key: (row) => row.group, order: "Group", label: "Readers", none: empty("No readers", "A group is listed once it has read from the topic.") });
  const producers = table([
    { name: "Producer", sort: (row) => row.producer_id, cell: (row) => h("span", { class: "mono" }, `${row.producer_id} `, row.in_transaction && badge("in a transaction", "accent")) },
    { name: "Last write", right: true, sort: (row) => row.last_ms, cell: (row) => ago(row.last_ms) },
    { name: "Partitions", cell: (row) => row.partitions.join(", ") },
  ], { key: (row) => row.producer_id, label: "Producers", none: empty("No producers", "Idempotent producers are listed while the partitions keep their state; others are not tracked.") });
  const body = h("div");
  const views = {
    partitions: () => [h("div", { class: "grid uneven" }, card("Records by partition", places), h("section", { class: "card flush" }, list.root))],
    configs: () => h("section", { class: "card flush" }, configs.root),
    readers: () => [card("Readers", readers.root), card("Producers", producers.root)],
  };
  let may = {};
  const refresh = async () => {
    const seen = await own(path);
    may = seen.may;
    const total = seen.partitions.reduce((sum, row) => sum + records(row), 0);
    stats.records.set(short(total), "offsets between start and end");
    stats.size.set(bytes(seen.partitions.reduce((sum, row) => sum + (row.size_bytes ?? 0), 0)), `${seen.partitions.length} partitions`);
    stats.rate.set(rate(seen.per_s), "over the last minute");
    stats.skew.set(seen.skew === null ? "–" : `× ${seen.skew}`, seen.skew === null ? "not enough records" : seen.skew > 2 ? "the largest partition is much larger" : seen.skew > 1.25 ? "somewhat uneven" : "even");
    morph(places, bars(seen.partitions.slice(0, 40).map((row) => ({ name: String(row.partition), value: records(row) })), { tone: seen.skew > 2 ? "lag" : "in", show: short }));
    list.update(seen.partitions);
    readers.update(seen.readers);
    producers.update(seen.producers);
    configs.update(seen.configs);
    return seen;
  };
  const seen = await refresh();
  put(body, views.partitions());
  page.show(
    heading(h("span", {}, name, " ", seen.is_internal && badge("internal"), seen.holds_dead_letters && badge("dead letters", "dead")), h("span", { class: "mono" }, seen.topic_id),
      may.read && h("a", { class: "button primary", href: `#${path}/messages` }, "Messages"),
      seen.holds_dead_letters && h("a", { class: "button", href: `#/dlq/${part(name)}` }, "Dead letters"),
      button("Produce", () => produce(name), { changes: true, may: may.write }),
      button("Delete", () => confirm(`Delete ${name}?`, `All ${count(seen.partitions.reduce((sum, row) => sum + records(row), 0))} records are deleted. This cannot be undone.`, "Delete topic", async () => {
        await remove(name); toast(`Topic ${name} was deleted`); location.hash = "#/topics";
      }, { typed: name }), { kind: "ghost danger", changes: true, may: may.delete && !seen.is_internal })),
    h("div", { class: "stats" }, Object.values(stats).map((one) => one.root)),
    tabs([["partitions", "Partitions"], ["configs", "Configs"], ["readers", "Readers and producers"]], "partitions", (key) => put(body, views[key]())),
    body);
  page.every(4000, refresh);
}

function records(row) {
  return Math.max(0, (row.end_offset ?? 0) - (row.start_offset ?? 0));
}

async function set(path, name, value, refresh) {
  await send("PATCH", `${path}/configs`, { [name]: value });
  toast(value === null ? `${name} was reset to its default` : `${name} was set to ${value}`);
  await refresh();
}

function change(path, row, refresh) {
  const input = h("input", { value: row.value ?? "", class: "mono", name: "value" });
  formDialog(row.name, [h("p", {}, row.doc), field("Value", input, `default: ${row.default ?? "none"}`)], "Set", () => set(path, row.name, input.value, refresh));
}
