// All groups: how far behind each is, and where that is going.

import { own, part } from "../api.js";
import { spark } from "../charts.js";
import { h } from "../dom.js";
import { rate, short } from "../format.js";
import { badge, code, empty, heading, searchBox, table } from "../parts.js";
import { word } from "./overview.js";

const TONES = { Stable: "good", Empty: "", Dead: "bad" };

export async function show(page) {
  const list = table([
    { name: "Group", sort: (row) => row.group, cell: (row) => h("a", { href: `#/groups/${part(row.group)}`, class: "strong" }, row.group) },
    { name: "Kind", sort: (row) => row.kind, cell: (row) => badge(row.kind) },
    { name: "State", sort: (row) => row.state, cell: (row) => badge(row.state, TONES[row.state] ?? "warn") },
    { name: "Reads", cell: (row) => row.topics.slice(0, 3).map((topic, at) => [at > 0 && ", ", h("a", { href: `#/topics/${part(topic)}` }, topic)]).concat(row.topics.length > 3 ? [` and ${row.topics.length - 3} more`] : []) },
    { name: "Behind", right: true, sort: (row) => row.trend.lag, cell: (row) => h("span", { class: "with-spark" }, spark(row.trend.recent, "lag"), short(row.trend.lag)) },
    { name: "Reading", right: true, sort: (row) => row.trend.read_per_s, cell: (row) => rate(row.trend.read_per_s) },
    { name: "Trend", cell: (row) => word(row.trend) },
  ], { key: (row) => row.group, order: "Behind", descending: true, label: "Groups", none: empty("No groups yet", "A group is there as soon as somebody reads:",
    code(`curl '${location.origin}/topics/orders/poll?group=workers'`)) });
  const refresh = async () => list.update((await own("/groups")).groups);
  await refresh();
  page.show(heading("Groups", "Everybody who reads, and how far behind"), h("div", { class: "toolbar" }, searchBox("Find a group", list.filter)), h("section", { class: "card flush" }, list.root));
  page.every(3000, refresh);
}
