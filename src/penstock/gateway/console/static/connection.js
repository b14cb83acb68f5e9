// State of the connection to the node. Every response and every part of a stream shows that the node
// is up. After a silence the node is probed: it is down if a probe fails or takes too long, at most
// 4.5 seconds after the node's last sign of life. While it is down it is probed every second.

const SILENCE_MS = 2000;
const PROBE_MS = 2000;
const AGAIN_MS = 1000;
const PROBED = "/console/static/icon.svg";

let heardMs = Date.now();
let probedMs = 0;
let probing = false;
let isUp = true;
const watchers = [];

// Calls `act(isUp, heardMs)` whenever the state changes.
export function onConnection(act) { watchers.push(act); }

export function heard() {
  heardMs = Date.now();
  change(true);
}

// A request failed: probes the node at once.
export function doubt() { if (!probing) probe(); }

export function isConnected() { return isUp; }

export function untilUp() {
  return new Promise((done) => {
    if (isUp) { done(); return; }
    watchers.push(function once(up) {
      if (!up) return;
      watchers.splice(watchers.indexOf(once), 1);
      done();
    });
  });
}

function change(up) {
  if (up === isUp) return;
  isUp = up;
  for (const act of [...watchers]) act(isUp, heardMs);
}

// Probes carry no session, so that they do not keep one alive.
async function probe() {
  probing = true;
  probedMs = Date.now();
  try {
    await fetch(PROBED, { cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(PROBE_MS) });
    heard();
  } catch {
    if (heardMs < probedMs) change(false);
  }
  probing = false;
}

setInterval(() => {
  if (document.hidden || probing) return;
  const now = Date.now();
  if (isUp ? now - heardMs > SILENCE_MS : now - probedMs > AGAIN_MS) probe();
}, 500);
