// Pipelines: the last report of each stage.

import { own } from "../api.js";
import { h } from "../dom.js";
import { ago, count, plural, short } from "../format.js";
import { badge, code, empty, heading } from "../parts.js";

const TONES = { running: "good", idle: "", finished: "good", starting: "accent", restarting: "warn", failed: "bad", stopped: "warn" };
const QUIET_MS = 120000;

export async function show(page) {
  const refresh = async () => {
    const { stages } = await own("/pipelines");
    const by = Map.groupBy(stages, (one) => one.pipeline);
    page.show(heading("Pipelines", stages.length ? `${plural(by.size, "pipeline")}, ${plural(stages.length, "stage")}` : "Spark jobs that read and write topics"),
      stages.length ? [...by].map(([name, some]) => h("section", { class: "card" },
        h("h2", {}, name, " ", some.some((one) => one.state === "failed") && badge("failed", "bad")),
        h("div", { class: "stages" }, some.map((one, at) => [at > 0 && h("span", { class: "stage-arrow", "aria-hidden": "true" }, "→"), stage(one)]))))
        : h("section", { class: "card" }, empty("No pipelines yet", "A pipeline is listed once one of its stages reports to the topic __pipelines. Start one from the command line:",
          code("penstock pipeline run pipeline.py"))));
  };
  await page.every(3000, refresh);
}

function stage(one) {
  const quiet = one.state === "running" && one.updated_ms && Date.now() - one.updated_ms > QUIET_MS;
  return h("div", { class: `stage ${TONES[one.state] ?? "accent"}` },
    h("b", {}, one.stage), " ", badge(one.state || "unknown", TONES[one.state] ?? ""), quiet && badge("no reports", "warn"),
    h("dl", { class: "facts" }, fact("Batch", count(one.batch)), fact("Rows in", short(one.rows_in)), fact("Rows out", short(one.rows_out)), fact("Bad rows", one.bad_rows ? badge(count(one.bad_rows), "dead") : count(one.bad_rows)), fact("Lag", short(one.lag)), fact("Reported", ago(one.updated_ms))),
    one.error && h("p", { class: "note bad" }, one.error));
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
