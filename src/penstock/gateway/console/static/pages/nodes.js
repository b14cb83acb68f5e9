// Nodes of the cluster, and partitions with their leaders and replicas.

import { own, part } from "../api.js";
import { bars, shareBar } from "../charts.js";
import { h, morph } from "../dom.js";
import { bytes, count, plural } from "../format.js";
import { badge, card, empty, heading, select, table } from "../parts.js";

const FILTERS = { all: () => true, behind: (row) => row.is_behind, leaderless: (row) => row.is_leaderless };

export async function show(page) {
  let filter = page.query.get("show") ?? "all";
  let seen;
  const nodes = h("div", { class: "grid three" });
  const balance = h("div");
  const sub = h("span");
  const list = table([
    { name: "Partition", sort: (row) => `${row.topic}/${String(row.partition).padStart(6, "0")}`, cell: (row) => h("a", { href: `#/topics/${part(row.topic)}` }, `${row.topic}-${row.partition}`) },
    { name: "Leader", sort: (row) => row.leader, cell: (row) => row.is_leaderless ? badge("none", "bad") : `node ${row.leader}` },
    { name: "Replicas", cell: (row) => row.replicas.map((node) => row.isr.includes(node) ? badge(String(node), "good") : badge(`${node} out of sync`, "warn")) },
    { name: "State", cell: (row) => row.is_leaderless ? badge("no leader", "bad") : row.is_behind ? badge("out of sync", "warn") : badge("in sync", "good") },
  ], { key: (row) => `${row.topic}/${row.partition}`, order: "Partition", label: "Partitions", none: empty("No such partitions", "No partition matches the filter.") });
  const draw = () => list.update(seen.partitions.filter(FILTERS[filter] ?? FILTERS.all));
  const refresh = async () => {
    seen = await own("/nodes");
    sub.textContent = `${plural(seen.nodes.length, "node")}, ${plural(seen.partition_count, "partition")}, controller is node ${seen.controller}`;
    morph(nodes, seen.nodes.map(node), seen.missing.map((one) => h("section", { class: "card node-card" }, h("h2", {}, `Node ${one} `, badge("missing", "bad")), h("p", { class: "muted" }, "This node has replicas, but is not in the cluster."))));
    morph(balance, bars(seen.nodes.map((one) => ({ name: `node ${one.node_id}`, value: one.leads }))));
    draw();
  };
  await refresh();
  page.show(heading("Nodes", sub), nodes,
    seen.nodes.length > 1 && card("Partitions led by each node", balance),
    h("div", { class: "toolbar" }, page.finder("Find a partition", list), select([["all", "all partitions"], ["behind", "with out-of-sync replicas"], ["leaderless", "without a leader"]], filter, (value) => { filter = value; page.remember({ show: value === "all" ? "" : value }); draw(); }, { "aria-label": "Partition filter" })),
    h("section", { class: "card flush" }, list.root));
  page.every(5000, refresh);
}

function node(one) {
  const used = one.disk_total_bytes === null ? one.size_bytes ?? 0 : one.disk_total_bytes - one.disk_free_bytes;
  return h("section", { class: "card node-card" },
    h("h2", {}, `Node ${one.node_id}`, one.is_controller && badge("controller", "accent"), one.is_this && badge("this node")),
    h("dl", { class: "facts" }, fact("Kafka", h("span", { class: "mono" }, `${one.host}:${one.port}`)), fact("Rack", one.rack ?? "–"), fact("Leads", count(one.leads)), fact("Replicas", count(one.replicas))),
    one.error ? h("p", { class: "note warn" }, one.error) : h("div", { class: "disk" },
      shareBar([{ name: "logs", value: one.size_bytes ?? 0, tone: "accent" }, { name: "other", value: Math.max(0, used - (one.size_bytes ?? 0)), tone: "queue" }, { name: "free", value: one.disk_free_bytes ?? 0, tone: "" }]),
      h("small", { class: "muted" }, `${bytes(one.size_bytes)} of logs, ${bytes(one.disk_free_bytes)} free${one.disk_total_bytes === null ? "" : ` of ${bytes(one.disk_total_bytes)}`}`)),
    h("a", { href: `#/nodes/${one.node_id}` }, "Configs"),
    one.http && !one.is_this && h("a", { href: `${one.http}/console`, rel: "noreferrer" }, "Open its console"));
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
