// Queues: messages that are ready, in flight, delayed or dead-lettered.

import { own, part } from "../api.js";
import { bars, shareBar, spark } from "../charts.js";
import { h } from "../dom.js";
import { count, duration, rate, short } from "../format.js";
import { badge, card, code, drawer, empty, heading, stat, table } from "../parts.js";

export async function show(page) {
  const stats = { ready: stat("Ready", "in"), leased: stat("In flight", "out"), delayed: stat("Delayed", "lag"), dead: stat("Dead letters", "dead"), oldest: stat("Oldest") };
  const list = table([
    { name: "Queue", sort: (row) => `${row.topic}/${row.group}`, cell: (row) => h("div", {}, h("button", { class: "linkish", onclick: () => look(row) }, row.topic), h("div", { class: "muted" }, "read by ", h("a", { href: `#/groups/${part(row.group)}` }, row.group))) },
    { name: "", cell: (row) => shareBar(parts(row)) },
    { name: "Ready", right: true, sort: (row) => row.ready, cell: (row) => count(row.ready) },
    { name: "In flight", right: true, sort: (row) => row.leased, cell: (row) => count(row.leased) },
    { name: "Delayed", right: true, sort: (row) => row.delayed, cell: (row) => count(row.delayed) },
    { name: "Dead letters", right: true, sort: (row) => row.dead ?? 0, cell: (row) => row.dead === null ? "–" : h("a", { href: `#/dlq/${part(row.dead_topic)}` }, count(row.dead)) },
    { name: "Oldest", right: true, sort: (row) => (row.oldest_ms === null ? 0 : Date.now() - row.oldest_ms), cell: (row) => row.unfinished && row.oldest_ms ? duration((Date.now() - row.oldest_ms) / 1000) : "–" },
    { name: "Finish rate", right: true, sort: (row) => row.trend.read_per_s, cell: (row) => h("span", { class: "with-spark" }, spark(row.trend.recent, "queue"), rate(row.trend.read_per_s)) },
  ], { key: (row) => `${row.topic}/${row.group}`, order: "Queue", label: "Queues", none: empty("No queues yet", "A topic becomes a queue once a share group reads it:",
    code(`curl '${location.origin}/topics/jobs/poll?group=workers&wait_ms=5000'`)) });
  const refresh = async () => {
    const { queues } = await own("/queues");
    const sum = (name) => queues.reduce((total, row) => total + (row[name] ?? 0), 0);
    const oldest = queues.filter((row) => row.unfinished && row.oldest_ms).map((row) => row.oldest_ms);
    const dead = [...new Map(queues.map((row) => [row.dead_topic, row.dead ?? 0])).values()].reduce((a, b) => a + b, 0);
    stats.ready.set(short(sum("ready")), "available now");
    stats.leased.set(short(sum("leased")), "leased to consumers");
    stats.delayed.set(short(sum("delayed")), "not due yet, or in backoff");
    stats.dead.set(short(dead), "open");
    stats.oldest.set(oldest.length ? duration((Date.now() - Math.min(...oldest)) / 1000) : "–", "age of the oldest unfinished message");
    list.update(queues);
  };
  await refresh();
  page.show(heading("Queues", "Topics read by share groups: each message goes to one consumer"),
    h("div", { class: "stats" }, Object.values(stats).map((one) => one.root)),
    h("div", { class: "toolbar" }, page.finder("Find a queue", list), h("span", { class: "legend" }, LEGEND.map(([name, tone]) => h("span", {}, h("i", { class: `dot ${tone}` }), name)))),
    h("section", { class: "card flush" }, list.root));
  page.every(2500, refresh);
}

const LEGEND = [["ready", "in"], ["in flight", "out"], ["delayed", "lag"], ["given up", "dead"]];

function parts(row) {
  return [{ name: "ready", value: row.ready, tone: "in" }, { name: "in flight", value: row.leased, tone: "out" }, { name: "delayed", value: row.delayed, tone: "lag" }, { name: "given up", value: row.given_up, tone: "dead" }];
}

function look(row) {
  const urgent = row.by_priority.map((value, at) => ({ name: `priority ${at}`, value })).reverse().filter((one) => one.value > 0);
  const rows = table([
    { name: "Partition", right: true, cell: (one) => String(one.partition) },
    { name: "Ready", right: true, cell: (one) => count(one.ready) },
    { name: "In flight", right: true, cell: (one) => count(one.leased) },
    { name: "Delayed", right: true, cell: (one) => count(one.delayed) },
    { name: "Given up", right: true, cell: (one) => count(one.given_up) },
    { name: "Oldest", right: true, cell: (one) => one.oldest_ms ? duration((Date.now() - one.oldest_ms) / 1000) : "–" },
  ], { key: (one) => one.partition, label: "Partitions" });
  rows.update(row.partitions);
  drawer(`${row.topic} · ${row.group}`, () => h("div", { class: "drawer-body" },
    h("div", {}, shareBar(parts(row))),
    card("Ready messages by priority, highest first", urgent.length ? bars(urgent, { tone: "in" }) : empty("No ready messages", row.by_priority.length ? "" : "The queue is not loaded: priorities are known once a consumer reads.")),
    card("Partitions", rows.root),
    h("footer", {}, h("a", { class: "button", href: `#/topics/${part(row.topic)}/messages` }, "Messages"),
      row.dead !== null && h("a", { class: "button", href: `#/dlq/${part(row.dead_topic)}` }, "Dead letters ", badge(count(row.dead), row.dead ? "dead" : "good")))));
}
