// JSON as text: indented without parsing its values, so that large numbers keep all their digits, and
// coloured.

import { h, payload } from "./dom.js";

const COLOURED_CHARS_MAX = 200_000;
const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// Returns valid JSON with line breaks and indents.
export function indent(text) {
  let out = "";
  let depth = 0;
  let before = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(TOKEN)) {
    const isClosing = token === "}" || token === "]";
    if (isClosing) depth -= 1;
    if ((before === "{" || before === "[") ? !isClosing : before === "," || (isClosing && before)) out += line();
    out += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return out;
}

const PART = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*/g;

// Returns JSON as nodes: keys, strings, numbers and words have classes.
export function coloured(text) {
  if (text.length > COLOURED_CHARS_MAX) return payload(text);
  const parts = document.createDocumentFragment();
  let at = 0;
  for (const match of text.matchAll(PART)) {
    parts.append(payload(text.slice(at, match.index)));
    const [whole, string, colon] = match;
    const kind = string ? (colon ? "key" : "string") : /^[-\d]/.test(whole) ? "number" : "word";
    parts.append(h("span", { class: `json-${kind}` }, payload(string ?? whole)), colon ?? "");
    at = match.index + whole.length;
  }
  parts.append(payload(text.slice(at)));
  return parts;
}
