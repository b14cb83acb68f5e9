// All groups with their lag and its trend.

import { own, part } from "../api.js";
import { spark } from "../charts.js";
import { h } from "../dom.js";
import { rate, short } from "../format.js";
import { badge, code, empty, heading, table } from "../parts.js";
import { trendText } from "./overview.js";

const TONES = { Stable: "good", Empty: "", Dead: "bad" };

export async function show(page) {
  const list = table([
    { name: "Group", sort: (row) => row.group, cell: (row) => h("a", { href: `#/groups/${part(row.group)}`, class: "strong" }, row.group) },
    { name: "Kind", sort: (row) => row.kind, cell: (row) => badge(row.kind) },
    { name: "State", sort: (row) => row.state, cell: (row) => badge(row.state, TONES[row.state] ?? "warn") },
    { name: "Topics", cell: (row) => row.topics.slice(0, 3).map((topic, at) => [at > 0 && ", ", h("a", { href: `#/topics/${part(topic)}` }, topic)]).concat(row.topics.length > 3 ? [` and ${row.topics.length - 3} more`] : []) },
    { name: "Lag", right: true, sort: (row) => row.trend.lag, cell: (row) => h("span", { class: "with-spark" }, spark(row.trend.recent, "lag"), short(row.trend.lag)) },
    { name: "Read rate", right: true, sort: (row) => row.trend.read_per_s, cell: (row) => rate(row.trend.read_per_s) },
    { name: "Trend", cell: (row) => trendText(row.trend) },
  ], { key: (row) => row.group, order: "Lag", descending: true, label: "Groups", none: empty("No groups yet", "A group exists once a consumer reads with its name:",
    code(`curl '${location.origin}/topics/orders/poll?group=workers'`)) });
  const refresh = async () => list.update((await own("/groups")).groups);
  await refresh();
  page.show(heading("Groups", "Consumer and share groups with their lag"), h("div", { class: "toolbar" }, page.finder("Find a group", list)), h("section", { class: "card flush" }, list.root));
  page.every(3000, refresh);
}
