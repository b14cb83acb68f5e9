// Produces a message, new or based on an existing one.

import { part, post } from "../api.js";
import { h } from "../dom.js";
import { field, formDialog, toast } from "../parts.js";

export function encode(text) {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
}

const ENVELOPE = new Set(["message_id", "trace_id", "retry_count"]);

// `given`: {key, value, headers: [[name, text]], partition}; missing fields are empty.
export function produce(topic, given = {}, done = () => {}) {
  const to = h("input", { value: topic, class: "mono", required: true });
  const key = h("input", { value: given.key ?? "", class: "mono", placeholder: "none" });
  const partition = h("input", { type: "number", min: 0, placeholder: "by key" });
  const delay = h("input", { type: "number", min: 0, placeholder: "none" });
  const priority = h("input", { type: "number", min: 0, max: 9, placeholder: "0" });
  const value = h("textarea", { rows: 12, class: "mono", spellcheck: "false", autofocus: true, name: "value" });
  value.value = given.value ?? '{\n  "hello": "world"\n}';
  const headers = h("textarea", { rows: 3, class: "mono", spellcheck: "false", placeholder: "name: value" });
  headers.value = (given.headers ?? []).filter(([name]) => !ENVELOPE.has(name)).map(([name, text]) => `${name}: ${text}`).join("\n");
  const hint = h("small", { class: "field-hint" });
  const look = () => {
    const text = value.value.trim();
    if (!/^[[{]/.test(text)) { hint.textContent = "text"; return; }
    try { JSON.parse(text); hint.textContent = "valid JSON"; } catch (error) { hint.textContent = `not JSON: ${error.message}`; }
  };
  value.addEventListener("input", look);
  look();
  const fields = [
    h("div", { class: "columns" }, field("Topic", to), field("Key", key)),
    field(h("span", {}, "Value ", hint), value),
    field("Headers", headers, "one per line, as name: value"),
    h("div", { class: "columns three" }, field("Partition", partition), field("Delay, ms", delay, "only for queues"), field("Priority", priority, "only for queues; 9 is first")),
  ];
  formDialog(given.value === undefined ? `Produce to ${topic}` : "Produce again with changes", fields, "Send", async () => {
    const body = { payload_base64: encode(value.value), headers: {} };
    if (key.value) body.key = key.value;
    for (const [name, input] of [["partition", partition], ["delay_ms", delay], ["priority", priority]]) if (input.value) body[name] = Number(input.value);
    for (const line of headers.value.split("\n").filter((one) => one.trim())) {
      const at = line.indexOf(":");
      if (at < 1) throw new Error(`Invalid header ${line}: write it as name: value`);
      body.headers[line.slice(0, at).trim()] = line.slice(at + 1).trim();
    }
    const placed = await post(`/topics/${part(to.value)}/messages`, body);
    toast(`Written to ${to.value}, partition ${placed.partition}, offset ${placed.offset}`);
    done(placed);
  }, { wide: true, name: "send" });
}
