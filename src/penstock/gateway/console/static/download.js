// Saves listed messages as JSON or CSV. Values that the list truncates are fetched whole, a few at a
// time. Times are in UTC; values that are not text are in base64.

import { own, part } from "./api.js";
import { h } from "./dom.js";

const AT_ONCE = 4;

export async function save(topic, messages, format, signal) {
  const whole = await complete(topic, messages, signal);
  const text = format === "csv" ? csv(whole) : `[\n${whole.map(json).join(",\n")}\n]\n`;
  const url = URL.createObjectURL(new Blob([text], { type: format === "csv" ? "text/csv" : "application/json" }));
  const link = h("a", { href: url, download: `${topic}.${format}` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const isPart = (value) => value.is_cut || value.form === "binary";

async function complete(topic, messages, signal) {
  const found = [...messages];
  const missing = found.flatMap((one, at) => (isPart(one.key) || isPart(one.value) || one.headers.some((header) => isPart(header.value)) ? [at] : []));
  const work = async () => {
    for (let at = missing.shift(); at !== undefined && !signal?.aborted; at = missing.shift()) {
      const { partition, offset } = found[at];
      found[at] = await own(`/topics/${part(topic)}/messages/${partition}/${offset}`, {}, { signal });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return found;
}

const time = (message) => (Math.abs(message.timestamp_ms) < 8.64e15 ? new Date(message.timestamp_ms).toISOString() : String(message.timestamp_ms));

// A field of a JSON object; JSON values are kept as they were written.
function field(name, value) {
  if (value.form === "null") return `"${name}": null`;
  if (value.form === "binary") return `"${name}_base64": ${JSON.stringify(value.base64 ?? "")}`;
  return `"${name}": ${value.form === "text" ? JSON.stringify(value.text) : asJson(value.text)}`;
}

function asJson(text) {
  try { JSON.parse(text); return text; } catch { return JSON.stringify(text); }
}

function json(message) {
  const headers = message.headers.map((one) => `{"name": ${JSON.stringify(one.name)}, ${field("value", one.value)}}`);
  return `{"partition": ${message.partition}, "offset": ${message.offset}, "timestamp": "${time(message)}", ${field("key", message.key)}, ${field("value", message.value)}, "headers": [${headers.join(", ")}]}`;
}

const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;
const plain = (value) => (value.form === "null" ? "" : value.form === "binary" ? value.base64 ?? "" : value.text);

function csv(messages) {
  const rows = messages.map((one) => [one.partition, one.offset, time(one), quoted(plain(one.key)), quoted(plain(one.value)), one.value.form,
    quoted(`[${one.headers.map((header) => `{"name": ${JSON.stringify(header.name)}, ${field("value", header.value)}}`).join(", ")}]`)]);
  return [["partition", "offset", "timestamp", "key", "value", "value_form", "headers"], ...rows].map((row) => row.join(",")).join("\r\n") + "\r\n";
}
