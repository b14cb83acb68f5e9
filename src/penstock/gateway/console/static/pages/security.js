// Users, access control lists and quotas.

import { own, send } from "../api.js";
import { h, put } from "../dom.js";
import { bytes, count } from "../format.js";
import { badge, button, confirm, dialog, empty, field, heading, select, table, tabs, toast, trouble } from "../parts.js";

const HIDDEN = empty("You may not see this", "It takes the right to describe the cluster.");
const QUOTAS = { producer_byte_rate: bytes, consumer_byte_rate: bytes, request_percentage: (value) => `${value} %`, controller_mutation_rate: count, connection_creation_rate: count };
const OPERATIONS = ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"];

export async function show(page) {
  let seen;
  let tab = "users";
  const body = h("div");
  const note = h("div");
  const users = table([
    { name: "User", sort: (row) => row.name, cell: (row) => h("span", { class: "strong" }, row.name) },
    { name: "May log in by", cell: (row) => row.mechanisms.map((one) => badge(one)) },
    { name: "", cell: (row) => h("span", { class: "row-actions" }, button("New password", () => password(row.name), { kind: "small ghost", changes: true }),
      button("Delete", () => confirm(`Delete user ${row.name}?`, "They cannot log in any more. Connections that are open stay open; console sessions end.", "Delete user", () => change("DELETE", "/security/users", { name: row.name }, `${row.name} is deleted`)), { kind: "small ghost danger", changes: true })) },
  ], { key: (row) => row.name, order: "User", label: "Users", none: empty("No users", "Nobody can log in by a password yet.") });
  const acls = table([
    { name: "Who", sort: (row) => row.principal, cell: (row) => h("span", { class: "strong" }, row.principal) },
    { name: "", sort: (row) => row.permission, cell: (row) => badge(row.permission === "ALLOW" ? "may" : "may not", row.permission === "ALLOW" ? "good" : "bad") },
    { name: "Do what", sort: (row) => row.operation, cell: (row) => row.operation.toLowerCase().replaceAll("_", " ") },
    { name: "With", sort: (row) => row.resource, cell: (row) => h("span", {}, `${row.resource.toLowerCase().replaceAll("_", " ")} `, h("span", { class: "mono" }, row.pattern === "PREFIXED" ? `${row.name}…` : row.name)) },
    { name: "From", cell: (row) => h("span", { class: "mono" }, row.host === "*" ? "anywhere" : row.host) },
    { name: "", cell: (row) => h("span", { class: "row-actions" }, button("Remove", () => confirm("Remove this line?", `${row.principal} ${row.permission === "ALLOW" ? "may" : "may not"} ${row.operation.toLowerCase()} ${row.resource.toLowerCase()} ${row.name}`, "Remove", () => change("DELETE", "/security/acls", row, "The line is gone")), { kind: "small ghost danger", changes: true })) },
  ], { key: (row) => JSON.stringify(row), order: "Who", label: "Access control lists", none: empty("No lines", "Nobody but super users may do anything, once rights are asked for.") });
  const quotas = table([
    { name: "Whose", cell: (row) => Object.entries(row.entity).map(([kind, name]) => h("span", {}, `${kind} `, h("span", { class: "strong" }, name ?? "everybody else"), " ")) },
    { name: "Limits", cell: (row) => Object.entries(row.values).map(([key, value]) => h("div", {}, h("span", { class: "mono" }, key), " ", h("b", {}, (QUOTAS[key] ?? count)(value)), key.endsWith("byte_rate") && "/s", " ",
      button("Remove", () => change("POST", "/security/quotas", { entity: row.entity, key, value: null }, "The quota is gone"), { kind: "small ghost danger", changes: true }))) },
  ], { key: (row) => JSON.stringify(row.entity), label: "Quotas", none: empty("No quotas", "Everybody may write and read as fast as the broker can.") });

  const refresh = async () => {
    seen = await own("/security");
    put(note, !seen.is_guarded && h("p", { class: "note warn" }, "Nobody is asked for rights here: authorizer.class.name is not set. Lists take effect once it is."));
    if (seen.users) users.update(seen.users);
    if (seen.acls) acls.update(seen.acls);
    if (seen.quotas) quotas.update(seen.quotas);
    draw();
  };
  const views = {
    users: () => [bar(button("Add user", () => password(""), { kind: "primary", name: "plus", changes: true })), box(seen.users ? users.root : HIDDEN)],
    acls: () => [bar(button("Add line", addAcl, { kind: "primary", name: "plus", changes: true })), box(seen.acls ? acls.root : HIDDEN)],
    quotas: () => [bar(button("Set quota", addQuota, { kind: "primary", name: "plus", changes: true })), box(seen.quotas ? quotas.root : HIDDEN)],
  };
  const bar = (...children) => h("div", { class: "toolbar" }, children);
  const box = (child) => h("section", { class: "card flush" }, child);
  let drawn = null;
  function draw() {
    if (drawn === tab && body.childElementCount) return;
    drawn = tab;
    put(body, views[tab]());
  }
  async function change(method, path, value, said) {
    await send(method, `/console/api${path}`, value);
    toast(said);
    await refresh();
  }

  function password(name) {
    const who = h("input", { value: name, required: true, autocomplete: "off", name: "name" });
    const word = h("input", { type: "password", required: true, minlength: 1, autocomplete: "new-password", name: "password" });
    form(name ? `New password of ${name}` : "Add user", [field("Name", who), field("Password", word, "kept salted and hashed")], () => change("POST", "/security/users", { name: who.value, password: word.value }, `${who.value} can log in`));
  }
  function addAcl() {
    const inputs = {
      principal: h("input", { value: "User:", class: "mono" }), permission: select(["ALLOW", "DENY"]), operation: select(OPERATIONS),
      resource: select(["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]), name: h("input", { class: "mono", placeholder: "orders, or *" }), pattern: select(["LITERAL", "PREFIXED"]), host: h("input", { value: "*", class: "mono" }),
    };
    form("Add line", [h("div", { class: "columns" }, field("Who", inputs.principal), field("May or may not", inputs.permission)), h("div", { class: "columns" }, field("Do what", inputs.operation), field("With", inputs.resource)), h("div", { class: "columns" }, field("Name", inputs.name, "kafka-cluster for the cluster"), field("The name is", inputs.pattern)), field("From host", inputs.host)],
      () => change("POST", "/security/acls", Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value])), "The line holds from now on"));
  }
  function addQuota() {
    const kind = select([["user", "user"], ["client-id", "client id"], ["ip", "address"]]);
    const name = h("input", { class: "mono", placeholder: "empty: everybody else" });
    const key = select(Object.keys(QUOTAS));
    const value = h("input", { type: "number", min: 0, step: "any", required: true });
    form("Set quota", [h("div", { class: "columns" }, field("For", kind), field("Name", name)), h("div", { class: "columns" }, field("Quota", key), field("Value", value, "bytes or requests a second, or percent"))],
      () => change("POST", "/security/quotas", { entity: { [kind.value]: name.value || null }, key: key.value, value: Number(value.value) }, "The quota holds from now on"));
  }

  await refresh();
  page.show(heading("Security", "Who may log in, what they may do, and how fast"), note,
    tabs([["users", "Users"], ["acls", "Access"], ["quotas", "Quotas"]], tab, (key) => { tab = key; draw(); }), body);
  page.every(8000, refresh);
}

function form(title, fields, act) {
  dialog(title, (close) => h("form", { class: "dialog-body", onsubmit: async (event) => {
    event.preventDefault();
    try { await act(); close(); } catch (error) { trouble(error); }
  } }, fields, h("footer", {}, button("Cancel", close, { kind: "ghost" }), h("button", { class: "button primary", type: "submit" }, "Save"))));
}
