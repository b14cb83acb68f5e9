// Dead-letter topics.

import { get, part } from "../api.js";
import { h } from "../dom.js";
import { ago, count, plural } from "../format.js";
import { badge, empty, heading, table } from "../parts.js";

export async function show(page) {
  const list = table([
    { name: "Topic", sort: (row) => row.topic, cell: (row) => h("a", { href: `#/dlq/${part(row.topic)}`, class: "strong" }, row.topic) },
    { name: "Open dead letters", right: true, sort: (row) => row.letters, cell: (row) => badge(count(row.letters), row.letters ? "dead" : "good") },
    { name: "Oldest", right: true, sort: (row) => row.oldest_ms ?? 0, cell: (row) => ago(row.oldest_ms) },
    { name: "", right: true, cell: (row) => h("a", { class: "button small", href: `#/dlq/${part(row.topic)}` }, "Open") },
  ], { key: (row) => row.topic, order: "Open dead letters", descending: true, label: "Dead letters", none: empty("No dead letters", "Messages that fail too often, or are rejected, go to a topic with the suffix .dlq.") });
  const sub = h("span");
  const refresh = async () => {
    const { topics } = await get("/dlq");
    sub.textContent = `${plural(topics.reduce((sum, row) => sum + row.letters, 0), "open dead letter")}`;
    list.update(topics);
  };
  await refresh();
  page.show(heading("Dead letters", sub), h("section", { class: "card flush" }, list.root));
  page.every(5000, refresh);
}
