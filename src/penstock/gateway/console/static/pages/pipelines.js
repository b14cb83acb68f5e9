// Pipelines: the graph of stages, joined by the topics that they read and write.

import { own, part } from "../api.js";
import { h, morph } from "../dom.js";
import { ago, count, plural, short } from "../format.js";
import { badge, code, empty, heading } from "../parts.js";

const TONES = { running: "good", idle: "", finished: "good", starting: "accent", restarting: "warn", failed: "bad", stopped: "warn" };
const QUIET_MS = 120000;

export async function show(page) {
  const sub = h("span");
  const body = h("div", { class: "grid" });
  const refresh = async () => {
    const { stages } = await own("/pipelines");
    const by = Map.groupBy(stages, (one) => one.pipeline);
    sub.textContent = stages.length ? `${plural(by.size, "pipeline")}, ${plural(stages.length, "stage")}` : "Spark jobs that read and write topics";
    morph(body, stages.length ? [...by].map(([name, some]) => h("section", { class: "card" },
      h("h2", {}, name, " ", some.some((one) => one.state === "failed") && badge("failed", "bad")), graph(some)))
      : h("section", { class: "card" }, empty("No pipelines yet", "A pipeline is listed once one of its stages reports to the topic __pipelines. Start one from the command line:",
        code("penstock pipeline run pipeline.py"))));
  };
  await refresh();
  page.show(heading("Pipelines", sub), body);
  page.every(3000, refresh);
}

// Columns of the graph: a stage is right of every stage that writes what it reads. Rings, which
// pipelines do not have, end after as many columns as there are stages.
export function columns(stages) {
  const depth = new Map(stages.map((one) => [one, 0]));
  for (let round = 0; round < stages.length; round += 1) {
    for (const one of stages) for (const before of stages) {
      if (before !== one && before.target && before.target === one.source) depth.set(one, Math.min(stages.length - 1, Math.max(depth.get(one), depth.get(before) + 1)));
    }
  }
  const found = [];
  for (const one of stages) (found[depth.get(one)] ??= []).push(one);
  return found.filter(Boolean);
}

function graph(stages) {
  const levels = columns(stages);
  return h("ol", { class: "pipeline", "aria-label": "Stages in the order in which data flows" }, levels.map((some, at) => h("li", { class: "level" },
    h("div", { class: "topics-in" }, sources(some).map((name) => topic(name, at === 0 ? "read from" : "through", at > 0))),
    h("div", { class: "level-stages" }, some.map(stage)),
    at === levels.length - 1 && h("div", { class: "topics-in" }, ends(some).map((name) => topic(name, "written to"))))));
}

const sources = (some) => [...new Set(some.map((one) => one.source).filter(Boolean))];
const ends = (some) => [...new Set(some.map((one) => one.target).filter(Boolean))];

function topic(name, word, isWritten = true) {
  const isTopic = /^[a-zA-Z0-9._-]+$/.test(name);
  return h("div", { class: "edge" }, isWritten && h("span", { class: "edge-arrow", "aria-hidden": "true" }, "→"),
    h("span", { class: "offscreen" }, word), isTopic ? h("a", { class: "edge-topic mono", href: `#/topics/${part(name)}` }, name) : h("span", { class: "edge-topic mono" }, name));
}

function stage(one) {
  const quiet = one.state === "running" && one.updated_ms && Date.now() - one.updated_ms > QUIET_MS;
  const bad = one.bad_rows ? badge(count(one.bad_rows), "dead") : count(one.bad_rows);
  return h("div", { class: `stage ${TONES[one.state] ?? "accent"}`, "data-stage": one.stage },
    h("b", {}, one.stage), " ", badge(one.state || "unknown", TONES[one.state] ?? ""), quiet && badge("no reports", "warn"),
    h("dl", { class: "facts" }, fact("Batch", one.batch < 0 ? "none yet" : count(one.batch)), fact("Rows in", short(one.rows_in)), fact("Rows out", short(one.rows_out)),
      fact("Bad rows", one.dlq ? h("a", { href: `#/dlq/${part(one.dlq)}`, title: one.dlq }, bad) : bad),
      fact("Lag", one.group ? h("a", { href: `#/groups/${part(one.group)}` }, short(one.lag)) : short(one.lag)), fact("Reported", ago(one.updated_ms)),
      ...Object.entries(one.expectations ?? {}).map(([name, rows]) => fact(name, expectation(rows)))),
    one.error && h("p", { class: "note bad" }, one.error));
}

function expectation(rows) {
  const all = rows.passed + rows.failed;
  if (!all) return "no rows yet";
  const rate = `${(Math.floor((1000 * rows.passed) / all) / 10).toFixed(1)} % passed`;
  return rows.failed ? h("span", { title: `${count(rows.failed)} of ${count(all)} rows failed` }, badge(rate, "warn")) : rate;
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
