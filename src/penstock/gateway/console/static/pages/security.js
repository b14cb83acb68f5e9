// Users, ACLs and quotas.

import { own, send, session } from "../api.js";
import { h, put } from "../dom.js";
import { bytes, count } from "../format.js";
import { badge, button, confirm, empty, field, formDialog, heading, select, table, tabs, toast } from "../parts.js";

const HIDDEN = empty("Permission denied", "This needs DESCRIBE permission on the cluster.");
const QUOTAS = { producer_byte_rate: bytes, consumer_byte_rate: bytes, request_percentage: (value) => `${value} %`, controller_mutation_rate: count, connection_creation_rate: count };
const OPERATIONS = ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"];

export async function show(page) {
  let seen;
  let tab = "users";
  const body = h("div", { class: "grid" });
  const note = h("div");
  const users = table([
    { name: "User", sort: (row) => row.name, cell: (row) => h("span", { class: "strong" }, row.name) },
    { name: "Login mechanisms", cell: (row) => row.mechanisms.map((one) => badge(one)) },
    { name: "", cell: (row) => h("span", { class: "row-actions" }, button("New password", () => password(row.name), { kind: "small ghost", changes: true, may: session.may.alter }),
      button("Delete", () => confirm(`Delete user ${row.name}?`, "The user cannot log in any more. Open connections stay open; console sessions end.", "Delete user", () => change("DELETE", "/security/users", { name: row.name }, `User ${row.name} was deleted`), { typed: row.name }), { kind: "small ghost danger", changes: true, may: session.may.alter })) },
  ], { key: (row) => row.name, order: "User", label: "Users", none: empty("No users", "No user with a password exists yet.") });
  const acls = table([
    { name: "Principal", sort: (row) => row.principal, cell: (row) => h("span", { class: "strong" }, row.principal) },
    { name: "", sort: (row) => row.permission, cell: (row) => badge(row.permission === "ALLOW" ? "allow" : "deny", row.permission === "ALLOW" ? "good" : "bad") },
    { name: "Operation", sort: (row) => row.operation, cell: (row) => row.operation.toLowerCase().replaceAll("_", " ") },
    { name: "Resource", sort: (row) => row.resource, cell: (row) => h("span", {}, `${row.resource.toLowerCase().replaceAll("_", " ")} `, h("span", { class: "mono" }, row.pattern === "PREFIXED" ? `${row.name}…` : row.name)) },
    { name: "Host", cell: (row) => h("span", { class: "mono" }, row.host === "*" ? "any" : row.host) },
    { name: "", cell: (row) => h("span", { class: "row-actions" }, button("Remove", () => confirm("Remove this ACL?", `${row.permission} ${row.principal} ${row.operation} on ${row.resource} ${row.name}`, "Remove", () => change("DELETE", "/security/acls", row, "The ACL was removed")), { kind: "small ghost danger", changes: true, may: session.may.alter })) },
  ], { key: (row) => JSON.stringify(row), order: "Principal", label: "ACLs", none: empty("No ACLs", "With authorization enabled, only super users have permissions.") });
  const quotas = table([
    { name: "Entity", cell: (row) => Object.entries(row.entity).map(([kind, name]) => h("span", {}, `${kind} `, h("span", { class: "strong" }, name ?? "default"), " ")) },
    { name: "Limits", cell: (row) => Object.entries(row.values).map(([key, value]) => h("div", {}, h("span", { class: "mono" }, key), " ", h("b", {}, (QUOTAS[key] ?? count)(value)), key.endsWith("byte_rate") && "/s", " ",
      button("Remove", () => change("POST", "/security/quotas", { entity: row.entity, key, value: null }, "The quota was removed"), { kind: "small ghost danger", changes: true, may: session.may.alter_configs }))) },
  ], { key: (row) => JSON.stringify(row.entity), label: "Quotas", none: empty("No quotas", "Clients are not limited.") });

  const refresh = async () => {
    seen = await own("/security");
    put(note, !seen.is_guarded && h("p", { class: "note warn" }, "Authorization is disabled: authorizer.class.name is not set. ACLs have no effect until it is."));
    if (seen.users) users.update(seen.users);
    if (seen.acls) acls.update(seen.acls);
    if (seen.quotas) quotas.update(seen.quotas);
    draw();
  };
  const views = {
    users: () => [bar(button("Add user", () => password(""), { kind: "primary", name: "plus", changes: true, may: session.may.alter })), box(seen.users ? users.root : HIDDEN)],
    acls: () => [bar(button("Add ACL", addAcl, { kind: "primary", name: "plus", changes: true, may: session.may.alter })), box(seen.acls ? acls.root : HIDDEN)],
    quotas: () => [bar(button("Set quota", addQuota, { kind: "primary", name: "plus", changes: true, may: session.may.alter_configs })), box(seen.quotas ? quotas.root : HIDDEN)],
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
    form(name ? `Change password of ${name}` : "Add user", [field("Name", who), field("Password", word, "stored salted and hashed")], () => change("POST", "/security/users", { name: who.value, password: word.value }, `User ${who.value} can log in`));
  }
  function addAcl() {
    const inputs = {
      principal: h("input", { value: "User:", class: "mono" }), permission: select(["ALLOW", "DENY"]), operation: select(OPERATIONS),
      resource: select(["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]), name: h("input", { class: "mono", placeholder: "orders, or *" }), pattern: select(["LITERAL", "PREFIXED"]), host: h("input", { value: "*", class: "mono" }),
    };
    form("Add ACL", [h("div", { class: "columns" }, field("Principal", inputs.principal), field("Permission", inputs.permission)), h("div", { class: "columns" }, field("Operation", inputs.operation), field("Resource type", inputs.resource)), h("div", { class: "columns" }, field("Resource name", inputs.name, "kafka-cluster for the cluster"), field("Pattern", inputs.pattern)), field("Host", inputs.host)],
      () => change("POST", "/security/acls", Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value])), "The ACL was added"));
  }
  function addQuota() {
    const kind = select([["user", "user"], ["client-id", "client id"], ["ip", "address"]]);
    const name = h("input", { class: "mono", placeholder: "empty: default" });
    const key = select(Object.keys(QUOTAS));
    const value = h("input", { type: "number", min: 0, step: "any", required: true });
    form("Set quota", [h("div", { class: "columns" }, field("Entity type", kind), field("Name", name)), h("div", { class: "columns" }, field("Quota", key), field("Value", value, "bytes or operations per second, or percent"))],
      () => change("POST", "/security/quotas", { entity: { [kind.value]: name.value || null }, key: key.value, value: Number(value.value) }, "The quota was set"));
  }

  await refresh();
  page.show(heading("Security", "Users, permissions and quotas"), note,
    tabs([["users", "Users"], ["acls", "ACLs"], ["quotas", "Quotas"]], tab, (key) => { tab = key; draw(); }), body);
  page.every(8000, refresh);
}

function form(title, fields, act) {
  formDialog(title, fields, "Save", act);
}
