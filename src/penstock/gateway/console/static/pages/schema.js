// Subject: versions, differences between versions, compatibility check of a new version.

import { get, part, send } from "../api.js";
import { h, put } from "../dom.js";
import { badge, button, card, confirm, heading, select, tabs, toast } from "../parts.js";
import { diff } from "../diff.js";
import { levels, register, setLevel } from "./schemas.js";

export async function show(page) {
  const subject = page.parts[1];
  const path = `/subjects/${part(subject)}`;
  const numbers = await get(`${path}/versions`);
  const config = await get(`/config/${part(subject)}`, { defaultToGlobal: "true" });
  const versions = new Map();
  const load = async (number) => {
    if (!versions.has(number)) versions.set(number, await get(`${path}/versions/${number}`));
    return versions.get(number);
  };
  const last = await load(numbers.at(-1));
  const body = h("div");
  let shown = last.version;

  const views = {
    schema: async () => {
      const box = h("div");
      const draw = async (number) => { shown = Number(number); const one = await load(shown); put(box, h("pre", { class: "payload big" }, pretty(one)), references(one)); };
      await draw(shown);
      return card(null, h("div", { class: "versions" }, "Version ", select([...numbers].reverse(), shown, draw, { "aria-label": "Version" }), badge(`id ${last.id}`)), h("br"), box);
    },
    diff: async () => {
      const box = h("div", { class: "diff", role: "region", "aria-label": "Difference" });
      let [from, to] = [numbers.at(-2) ?? numbers.at(-1), numbers.at(-1)];
      const draw = async () => {
        const [a, b] = [await load(from), await load(to)];
        put(box, diff(pretty(a).split("\n"), pretty(b).split("\n")).map(([mark, line]) => h("div", { class: { "+": "added", "-": "removed" }[mark] ?? "" }, `${mark} ${line}`)));
      };
      await draw();
      return card(null, h("div", { class: "versions" }, "From version", select(numbers, from, (value) => { from = Number(value); draw(); }, { "aria-label": "From version" }), "to", select(numbers, to, (value) => { to = Number(value); draw(); }, { "aria-label": "To version" })), h("br"), box);
    },
  };
  const choose = async (key) => put(body, await views[key]());
  await choose("schema");
  page.show(heading(h("span", {}, subject, " ", badge((last.schemaType ?? "AVRO").toLowerCase(), "accent")), `${numbers.length} version${numbers.length === 1 ? "" : "s"}`,
    button("New version…", () => register(subject, () => { location.hash = `#/schemas/${part(subject)}?v=${Date.now()}`; }, { ...last, schema: pretty(last) }), { kind: "primary", changes: false }),
    button("Delete", () => confirm(`Delete ${subject}?`, "Its versions are marked as deleted. Schemas can still be read by id, so existing records stay readable.", "Delete subject", async () => {
      await send("DELETE", path); toast(`Subject ${subject} was deleted`); location.hash = "#/schemas";
    }, { typed: subject }), { kind: "ghost danger", changes: true })),
  h("div", { class: "toolbar" }, h("span", { class: "muted" }, "Compatibility"), levels(config.compatibilityLevel, (value) => setLevel(`/config/${part(subject)}`, value))),
  tabs([["schema", "Schema"], ["diff", "Differences"]], "schema", choose), body);
}

function pretty(one) {
  if (one.schemaType === "PROTOBUF") return one.schema;
  try { return JSON.stringify(JSON.parse(one.schema), null, 2); } catch { return one.schema; }
}

function references(one) {
  return one.references?.length ? h("p", {}, "References: ", one.references.map((to) => h("a", { href: `#/schemas/${part(to.subject)}` }, `${to.name} (${to.subject} ${to.version}) `))) : null;
}
