// All subjects of the schema registry; registration of schemas.

import { get, part, post, send } from "../api.js";
import { h } from "../dom.js";
import { badge, button, empty, field, formDialog, heading, select, table, toast, showError } from "../parts.js";

const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];

export async function show(page) {
  const list = table([
    { name: "Subject", sort: (row) => row.subject, cell: (row) => h("a", { href: `#/schemas/${part(row.subject)}`, class: "strong" }, row.subject) },
    { name: "Format", sort: (row) => row.schemaType, cell: (row) => badge((row.schemaType ?? "AVRO").toLowerCase(), "accent") },
    { name: "Versions", right: true, sort: (row) => row.version, cell: (row) => String(row.version) },
    { name: "Id", right: true, sort: (row) => row.id, cell: (row) => String(row.id) },
  ], { key: (row) => row.subject, order: "Subject", label: "Subjects", none: empty("No schemas yet", "Confluent's serializers register schemas themselves: use this port as the registry's address.") });
  let level = "";
  const refresh = async () => {
    list.update(await get("/schemas", { latestOnly: "true" }));
    level = (await get("/config")).compatibilityLevel;
  };
  await refresh();
  page.show(heading("Schemas", "Schemas of keys and values, with their compatibility", button("Register", () => register("", refresh), { kind: "primary", name: "plus", changes: true })),
    h("div", { class: "toolbar" }, page.finder("Find a subject", list), h("span", { class: "grow" }), h("span", { class: "muted" }, "Default compatibility"), levels(level, (value) => setLevel("/config", value))),
    h("section", { class: "card flush" }, list.root));
  page.every(8000, refresh);
}

export function levels(level, act) {
  return select(LEVELS, level, act, { "aria-label": "Compatibility" });
}

export async function setLevel(path, compatibility) {
  try {
    await send("PUT", path, { compatibility });
    toast(`Compatibility was set to ${compatibility}`);
  } catch (error) { showError(error); }
}

export function register(subject, done, given) {
  const name = h("input", { value: subject, required: true, class: "mono", placeholder: "orders-value", name: "subject" });
  const type = select([["AVRO", "Avro"], ["JSON", "JSON Schema"], ["PROTOBUF", "Protobuf"]], given?.schemaType ?? "AVRO", null, { name: "type" });
  const text = h("textarea", { rows: 14, class: "mono", spellcheck: "false", required: true, name: "schema" });
  text.value = given?.schema ?? "";
  const result = h("div");
  const body = () => ({ schema: text.value, schemaType: type.value, references: given?.references });
  const check = async () => {
    try {
      const seen = await post(`/compatibility/subjects/${part(name.value)}/versions?verbose=true`, body());
      result.replaceChildren(seen.is_compatible ? h("p", { class: "note good" }, "Compatible.") : h("div", { class: "note bad" }, "Not compatible:", h("ul", {}, (seen.messages ?? []).map((one) => h("li", {}, one)))));
      return seen.is_compatible;
    } catch (error) { result.replaceChildren(h("p", { class: error.status === 404 ? "note good" : "note bad" }, error.status === 404 ? "This will be the first version of the subject." : error.message)); }
  };
  const fields = [h("div", { class: "columns" }, field("Subject", name), field("Format", type)), field("Schema", text), result];
  formDialog(subject ? `New version of ${subject}` : "Register a schema", fields, "Register", async () => {
    const { id } = await post(`/subjects/${part(name.value)}/versions`, body());
    toast(`Registered with id ${id}`);
    await done();
  }, { wide: true, more: [button("Check", check)] });
}
