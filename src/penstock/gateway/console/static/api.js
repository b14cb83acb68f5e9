// Requests to the node with fetch: JSON, and server-sent events read from the response body, because
// EventSource cannot send the console's header.

import { doubt, heard, untilUp } from "./connection.js";

export const session = {};
const HEADER = "x-penstock-console";

export class Problem extends Error {
  constructor(status, detail, body) {
    super(detail);
    this.status = status;
    this.body = body;
  }
}

let whenUnauthenticated = () => {};
export function onUnauthenticated(act) { whenUnauthenticated = act; }

function headers(more) {
  return { [HEADER]: session.write_token ?? "1", accept: "application/json", ...more };
}

async function answer(response) {
  const type = response.headers.get("content-type") ?? "";
  const body = type.includes("json") ? await response.json().catch(() => null) : await response.text();
  if (response.ok) return body;
  const detail = body?.detail ?? body?.message ?? `The node responded with status ${response.status}.`;
  if (response.status === 401) whenUnauthenticated(detail);
  throw new Problem(response.status, detail, body);
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    doubt();
    throw new Problem(0, "The node cannot be reached: check that it is running, and the network.");
  }
  heard();
  return answer(response);
}

export function query(path, values = {}) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given).toString();
  return text ? `${path}?${text}` : path;
}

export const get = (path, values, options) => ask(query(path, values), options);
export const own = (path, values, options) => get(`/console/api${path}`, values, options);

export function send(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "content-type": "application/json" };
  }
  return ask(path, options);
}

export const post = (path, body) => send("POST", path, body);
export const ownPost = (path, body) => post(`/console/api${path}`, body);
export const part = encodeURIComponent;

// Calls `on[event](data)` for each event until it ends, fails, or is aborted.
export async function stream(path, values, on, signal) {
  let response;
  try {
    response = await fetch(query(path, values), { credentials: "same-origin", headers: headers({ accept: "text/event-stream" }), signal });
  } catch (error) {
    if (error.name === "AbortError") return;
    doubt();
    throw new Problem(0, "The connection to the node was lost.");
  }
  heard();
  if (!response.ok) await answer(response);
  on.open?.();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      rest += value;
      const blocks = rest.split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) deliver(block, on);
    }
  } catch (error) {
    if (signal?.aborted) return;
    doubt();
    throw new Problem(0, "The connection to the node was lost.");
  }
}

function deliver(block, on) {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) on[name]?.(JSON.parse(data));
}

// Streams events, and reconnects whenever the stream ends and the node responds, until aborted.
export async function follow(path, values, on, signal) {
  while (!signal.aborted) {
    try {
      await stream(path, values, on, signal);
    } catch (error) {
      if (signal.aborted || error.status === 401) return;
    }
    await new Promise((done) => setTimeout(done, 1000));
    await untilUp();
  }
}
