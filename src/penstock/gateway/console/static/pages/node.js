// Configs of a node, with the source of each value.

import { own, part } from "../api.js";
import { h } from "../dom.js";
import { plural } from "../format.js";
import { badge, empty, heading, table } from "../parts.js";

export async function show(page) {
  const id = page.parts[1];
  let onlySet = page.query.get("set") === "1";
  const list = table([
    { name: "Config", class: "wrap", sort: (row) => row.name, cell: (row) => h("div", {}, h("span", { class: row.is_set ? "strong mono" : "mono" }, row.name), " ", row.is_read_only && badge("needs a restart"), h("p", { class: "doc" }, row.doc)) },
    { name: "Value", class: "wrap", cell: (row) => h("span", { class: "mono" }, row.is_sensitive ? "hidden" : row.value === "" ? "(empty)" : row.value ?? "–") },
    { name: "Source", sort: (row) => row.source, cell: (row) => badge(row.source, row.is_set ? "accent" : "") },
    { name: "Default", class: "wrap", cell: (row) => h("span", { class: "mono muted" }, row.default ?? "–") },
  ], { key: (row) => row.name, order: "Config", label: "Configs", none: empty("No configs", "No config of this node was set.") });
  const sub = h("span");
  let seen;
  const draw = () => list.update(seen.configs.filter((row) => !onlySet || row.is_set));
  const refresh = async () => {
    seen = await own(`/nodes/${part(id)}/configs`);
    sub.textContent = `${plural(seen.configs.length, "config")}, ${seen.configs.filter((row) => row.is_set).length} set`;
    draw();
  };
  await refresh();
  page.show(heading(`Node ${id} configs`, sub, h("a", { class: "button ghost", href: "#/nodes" }, "All nodes")),
    h("div", { class: "toolbar" }, page.finder("Find a config", list),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "set", checked: onlySet, onchange: (event) => { onlySet = event.target.checked; page.remember({ set: onlySet ? "1" : "" }); draw(); } }), "only those that were set")),
    h("section", { class: "card flush" }, list.root));
  page.every(8000, refresh);
}
