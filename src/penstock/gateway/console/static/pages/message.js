// Single message: decoded, as text, as hex, its headers, and as code to copy.

import { own, part, session } from "../api.js";
import { h, payload, put } from "../dom.js";
import { coloured, indent } from "../json_view.js";
import { bytes, moment, zone } from "../format.js";
import { badge, button, code, copyText, drawer, failed, loading, tabs } from "../parts.js";

const HEX_MAX = 16 * 1024;

// `again`: called with what to produce; null without the permission.
export function open(topic, partition, offset, again, closed) {
  const body = h("div", { class: "drawer-body", tabindex: "0" }, loading());
  drawer(`${topic} · ${partition}:${offset}`, () => body, closed);
  own(`/topics/${part(topic)}/messages/${partition}/${offset}`)
    .then((whole) => put(body, inside(topic, whole, again)))
    .catch((error) => put(body, failed(error)));
}

function inside(topic, message, again) {
  const { value } = message;
  const view = h("div", { class: "view" });
  const text = () => (value.base64 === undefined || value.base64 === null ? value.text : decode(value.base64));
  const views = {
    decoded: () => value.form === "null" ? h("p", { class: "muted" }, "No value: in a compacted topic this is a tombstone, which deletes the key.")
      : [value.trouble && h("p", { class: "note warn" }, value.trouble), h("pre", { class: "payload big", dir: "auto", tabindex: "0", "data-view": "decoded" }, form(value)), value.is_cut && h("p", { class: "muted" }, "The value is truncated.")],
    raw: () => h("pre", { class: "payload big", dir: "auto", tabindex: "0", "data-view": "raw" }, payload(text().slice(0, 262144))),
    hex: () => h("pre", { class: "payload big hex", tabindex: "0", "data-view": "hex" }, value.base64 ? hex(raw(value.base64)) : "The value is too large to show as hex."),
    headers: () => message.headers.length ? h("table", { class: "plain" }, h("tbody", {}, message.headers.map((one) => h("tr", {}, h("th", { scope: "row", class: "mono" }, payload(one.name)), h("td", { class: "mono payload", dir: "auto" }, one.value.form === "null" ? h("i", {}, "null") : payload(one.value.text))))))
      : h("p", { class: "muted" }, "No headers."),
    copy: () => copies(topic, message),
  };
  const first = "decoded";
  put(view, views[first]());
  const key = message.key.form === "null" ? undefined : message.key.text;
  return [
    h("dl", { class: "facts" },
      fact(`Written (${zone()})`, moment(message.timestamp_ms) + (message.is_append_time ? " (by the broker)" : "")),
      fact("Key", message.key.form === "null" ? h("i", { class: "muted" }, "none") : h("span", { class: "mono payload", dir: "auto" }, payload(message.key.text))),
      fact("Value", h("span", {}, badge(value.form, "accent"), ` ${bytes(value.size)} `, value.schema_id !== null && value.schema_id !== undefined && `schema ${value.schema_id}`))),
    tabs([["decoded", "Decoded"], ["raw", "Text"], ["hex", "Hex"], ["headers", `Headers (${message.headers.length})`], ["copy", "Copy as…"]], first, (name) => put(view, views[name]())),
    view,
    h("footer", {}, button("Copy link", () => copyText(location.href), { kind: "ghost", name: "link", title: "Link to this message" }), button("Copy value", () => copyText(pretty(value)), { kind: "ghost" }),
      button("Produce again…", () => again({ key, value: ["text", "json"].includes(value.form) ? text() : value.text, headers: message.headers.map((one) => [one.name, one.value.text]) }), { kind: "primary", changes: true, may: Boolean(again) })),
  ];
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

const COLOURED = ["json", "avro", "protobuf", "json schema"];
function form(value) {
  return COLOURED.includes(value.form) && !value.is_cut ? coloured(pretty(value)) : payload(pretty(value));
}

export function pretty(value) {
  if (value.form === "json" && !value.is_cut && value.text.length < 200000) return indent(value.text);
  if (value.form === "binary" && value.base64) return hex(raw(value.base64));
  return value.text;
}

function raw(base64) {
  return Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
}

function decode(base64) {
  return new TextDecoder().decode(raw(base64));
}

export function hex(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, HEX_MAX); at += 16) {
    const row = [...data.slice(at, at + 16)];
    const left = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const right = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${left}  ${right}`);
  }
  if (data.length > HEX_MAX) lines.push(`… ${data.length - HEX_MAX} bytes more`);
  return lines.join("\n");
}

// -- code to copy ------------------------------------------------------------------------------

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const python = (text) => JSON.stringify(text);

function copies(topic, message) {
  const { value } = message;
  const isText = ["text", "json"].includes(value.form) && !value.is_cut;
  const key = message.key.form === "null" ? null : message.key.text;
  const body = { key: key ?? undefined, ...(isText ? { payload: value.form === "json" ? safeJson(value.text) : value.text } : { payload_base64: value.base64 ?? "" }) };
  const curl = `curl ${location.origin}/topics/${topic}/messages \\\n  -H 'content-type: application/json' \\\n  -d ${quote(JSON.stringify(body))}`;
  const kcat = isText
    ? `printf '%s' ${quote(value.text)} | kcat -b ${session.kafka} -P -t ${topic}${key === null ? "" : ` -k ${quote(key)}`} -D ''`
    : `kcat -b ${session.kafka} -C -t ${topic} -p ${message.partition} -o ${message.offset} -c 1 -D '' > value.bin`;
  const client = `import asyncio\n${isText ? "" : "import base64\n"}import penstock\n\n\nasync def main() -> None:\n    async with penstock.Client(${python(session.kafka)}) as client:\n        await client.publish(${python(topic)}, ${isText ? python(value.text) + ".encode()" : `base64.b64decode(${python(value.base64 ?? "")})`}${key === null ? "" : `, key=${python(key)}`})\n\n\nasyncio.run(main())\n`;
  return [h("h3", {}, "curl"), code(curl), h("h3", {}, "kcat"), code(kcat), h("h3", {}, "Python"), code(client)];
}

function safeJson(text) {
  try { return JSON.parse(text); } catch { return text; }
}
