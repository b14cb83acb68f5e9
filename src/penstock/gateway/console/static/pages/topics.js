// All topics; creation of topics.

import { own, part, post, send, session } from "../api.js";
import { spark } from "../charts.js";
import { h, icon, put } from "../dom.js";
import { bytes, count, rate, short } from "../format.js";
import { badge, button, code, empty, field, formDialog, heading, select, table, toast, showError } from "../parts.js";

export const COUNTED = "Records are counted as offsets between start and end: markers of transactions and records removed by compaction are included.";
const POLICIES = [["", "broker's default"], ["delete", "delete: by age and size"], ["compact", "compact: the last value of each key"], ["compact,delete", "compact and delete"]];
const ORDERS = [["", "none: any order"], ["key", "key: one at a time for each key"], ["partition", "partition: one at a time in each partition"]];

export async function show(page) {
  let internal = false;
  const list = table([
    { name: "Topic", sort: (row) => row.name, cell: (row) => [h("a", { href: `#/topics/${part(row.name)}`, class: "strong" }, row.name), " ",
      row.is_internal && badge("internal"), row.holds_dead_letters && badge("dead letters", "dead"),
      row.leaderless > 0 && badge(`${row.leaderless} without leader`, "bad"), row.behind > 0 && badge(`${row.behind} out of sync`, "warn")] },
    { name: "Records", title: COUNTED, right: true, sort: (row) => row.records, cell: (row) => short(row.records) },
    { name: "Size", right: true, sort: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes) },
    { name: "Write rate", right: true, sort: (row) => row.per_s, cell: (row) => h("span", { class: "with-spark" }, spark(row.recent, "in"), rate(row.per_s)) },
    { name: "Partitions", right: true, sort: (row) => row.partitions, cell: (row) => count(row.partitions) },
    { name: "Replicas", right: true, sort: (row) => row.replication_factor, cell: (row) => count(row.replication_factor) },
    { name: "Readers", right: true, sort: (row) => row.readers, cell: (row) => count(row.readers) },
    { name: "", cell: (row) => h("a", { class: "button small ghost", href: `#/topics/${part(row.name)}/messages` }, "Messages") },
  ], { key: (row) => row.name, order: "Topic", label: "Topics", none: empty("No topics yet", "Publish a message to create a topic:",
    code(`curl ${location.origin}/topics/orders/messages -H 'content-type: application/json' -d '{"payload": "hello"}'`)) });
  const refresh = async () => list.update((await own("/topics", { internal: internal || undefined })).topics);
  await refresh();
  page.show(
    heading("Topics", "Records, sizes and rates of all visible topics", button("New topic", () => create(refresh), { kind: "primary", name: "plus", changes: true, may: session.may.create_topics })),
    h("div", { class: "toolbar" }, page.finder("Find a topic", list),
      h("label", { class: "check" }, h("input", { type: "checkbox", onchange: (event) => { internal = event.target.checked; refresh().catch(showError); } }), "show internal topics")),
    h("section", { class: "card flush" }, list.root), h("p", { class: "footnote" }, COUNTED));
  page.every(3000, refresh);
}

function create(refresh) {
  // Browsers compile patterns with the flag v, where - must be escaped.
  const name = h("input", { required: true, pattern: "[a-zA-Z0-9._\\-]+", maxlength: 249, placeholder: "orders", name: "name", class: "mono" });
  const partitions = h("input", { type: "number", min: 1, max: 10000, value: 3 });
  const replicas = h("input", { type: "number", min: 1, max: 32, placeholder: "broker's default" });
  const days = h("input", { type: "number", min: 0, step: "any", placeholder: "broker's default" });
  const policy = select(POLICIES, "", null, { name: "policy" });
  const order = select(ORDERS, "", null, { name: "order" });
  const known = h("datalist", { id: "topic-configs" });
  const rows = h("div", { class: "config-rows" });
  let all = [];
  own("/configs").then(({ configs }) => { all = configs; put(known, configs.map((one) => h("option", { value: one.name }))); }).catch(() => {});
  const add = () => {
    const hint = h("small", { class: "field-hint" });
    const config = h("input", { class: "mono", name: "config", list: "topic-configs", placeholder: "max.message.bytes", "aria-label": "Config", oninput: () => {
      const one = all.find((row) => row.name === config.value);
      value.placeholder = one?.default ?? "value";
      hint.textContent = one?.doc ?? "";
    } });
    const value = h("input", { class: "mono", name: "config-value", placeholder: "value", "aria-label": "Value" });
    const row = h("div", { class: "config-row" }, config, value, h("button", { class: "ghost icon-button", type: "button", "aria-label": "Remove this config", onclick: () => row.remove() }, icon("close")), hint);
    rows.append(row);
    config.focus();
  };
  formDialog("New topic", [
    field("Name", name, "a-z A-Z 0-9 . _ -"),
    h("div", { class: "columns three" }, field("Partitions", partitions), field("Replicas", replicas), field("Retention in days", days)),
    h("div", { class: "columns" }, field("Cleanup policy", policy), field("Queue order", order)),
    h("div", { class: "field" }, h("span", {}, "Other configs"), known, rows, h("div", {}, button("Add config", add, { kind: "small", name: "plus" }))),
  ], "Create", async () => {
    const body = { name: name.value, partitions: Number(partitions.value), configs: {} };
    if (replicas.value) body.replication_factor = Number(replicas.value);
    if (days.value) body.retention_ms = Math.round(Number(days.value) * 86400000);
    if (policy.value) body.configs["cleanup.policy"] = policy.value;
    if (order.value) body.configs["queue.order"] = order.value;
    for (const row of rows.children) {
      const [config, value] = row.querySelectorAll("input");
      if (config.value) body.configs[config.value.trim()] = value.value;
    }
    await post("/topics", body);
    toast(`Topic ${body.name} was created`);
    await refresh();
  }, { wide: true });
}

export async function remove(name) {
  await send("DELETE", `/topics/${part(name)}`);
}
