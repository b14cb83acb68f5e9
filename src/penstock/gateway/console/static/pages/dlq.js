// Topics of dead letters.

import { get, part } from "../api.js";
import { h } from "../dom.js";
import { ago, count, plural } from "../format.js";
import { badge, empty, heading, table } from "../parts.js";

export async function show(page) {
  const list = table([
    { name: "Topic", sort: (row) => row.topic, cell: (row) => h("a", { href: `#/dlq/${part(row.topic)}`, class: "strong" }, row.topic) },
    { name: "Open letters", right: true, sort: (row) => row.letters, cell: (row) => badge(count(row.letters), row.letters ? "dead" : "good") },
    { name: "Oldest", right: true, sort: (row) => row.oldest_ms ?? 0, cell: (row) => ago(row.oldest_ms) },
    { name: "", right: true, cell: (row) => h("a", { class: "button small", href: `#/dlq/${part(row.topic)}` }, "Work on them") },
  ], { key: (row) => row.topic, order: "Open letters", descending: true, label: "Dead letters", none: empty("No dead letters", "Messages that workers give up go to a topic named after theirs, with .dlq behind it.") });
  const sub = h("span");
  const refresh = async () => {
    const { topics } = await get("/dlq");
    sub.textContent = `${plural(topics.reduce((sum, row) => sum + row.letters, 0), "message")} that were given up`;
    list.update(topics);
  };
  await refresh();
  page.show(heading("Dead letters", sub), h("section", { class: "card flush" }, list.root));
  page.every(5000, refresh);
}
