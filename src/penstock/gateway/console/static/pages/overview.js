// Overview of the cluster, updated live.

import { follow, own, part } from "../api.js";
import { areaChart, spark } from "../charts.js";
import { h, icon, morph } from "../dom.js";
import { bytes, count, duration, plural, rate, short } from "../format.js";
import { card, empty, heading, loading, select, showError, stat } from "../parts.js";

const PERIODS = [["", "Last minutes"], ["hour", "Last hour"], ["day", "Last day"]];
const HISTORY_MS = 30000;

export async function show(page) {
  const stats = {
    in: stat("Records in", "in"), out: stat("Records out", "out"), lag: stat("Lag", "lag"),
    waiting: stat("In queues", "queue"), dead: stat("Dead letters", "dead"), size: stat("Stored"),
  };
  const flow = areaChart({ title: "Records per second" });
  const lag = areaChart({ title: "Lag and queued messages" });
  const traffic = areaChart({ title: "Bytes per second, this node", show: bytes, base: 1024 });
  const health = h("div", { class: "health" }, loading());
  const topics = h("div", { class: "lines" });
  const groups = h("div", { class: "lines" });
  const sub = h("span", {}, "…");
  const given = page.query.get("period") ?? "";
  let period = PERIODS.some(([key]) => key === given) ? given : "";
  let live;
  const draw = (series) => {
    flow.update(series.at_ms, [{ name: "in", tone: "in", values: series.records_in }, { name: "out", tone: "out", values: series.records_out }]);
    lag.update(series.at_ms, [{ name: "lag", tone: "lag", values: series.lag }, { name: "in queues", tone: "queue", values: series.waiting }]);
    traffic.update(series.at_ms, [{ name: "in", tone: "in", values: series.bytes_in }, { name: "out", tone: "out", values: series.bytes_out }]);
  };
  const drawPeriod = async () => {
    const wanted = period;
    if (!wanted) return live && draw(live);
    const seen = await own("/overview/history", { period: wanted });
    if (wanted === period) draw(seen.series);
  };
  page.show(
    heading("Overview", sub, select(PERIODS, period, (chosen) => {
      period = chosen;
      page.remember({ period });
      drawPeriod().catch(showError);
    }, { "aria-label": "Period of the charts", name: "period" })),
    h("div", { class: "stats" }, Object.values(stats).map((one) => one.root)),
    h("div", { class: "grid two" },
      h("section", { class: "card span" }, flow.root),
      card("Health", health),
      h("section", { class: "card" }, lag.root),
      h("section", { class: "card" }, traffic.root),
      card("Busiest topics", topics),
      card("Largest lag", groups)));

  follow("/console/api/live", {}, {
    overview: (seen) => {
      const { series, totals, node } = seen;
      const last = (values) => values.at(-1) ?? 0;
      sub.textContent = ["node", "topic", "partition", "group", "queue"].map((one) => plural(totals[`${one}s`], one)).join(" · ");
      stats.in.set(rate(last(series.records_in)), `${bytes(last(series.bytes_in))}/s here`);
      stats.out.set(rate(last(series.records_out)), `${bytes(last(series.bytes_out))}/s here`);
      stats.lag.set(short(last(series.lag)), "all consumer groups");
      stats.waiting.set(short(last(series.waiting)), "not finished");
      stats.dead.set(short(last(series.dead)), last(series.dead) ? "need attention" : "none");
      stats.size.set(bytes(totals.size_bytes), `${short(totals.records)} ${totals.records === 1 ? "record" : "records"}`);
      live = series;
      if (!period) draw(series);
      morph(health, seen.problems.length
        ? h("ul", { class: "problems" }, seen.problems.map((one) => h("li", { class: one.level }, icon("warn"), h("a", { href: one.link }, one.text))))
        : h("div", { class: "well" }, icon("check"), h("span", {}, "No problems")),
      h("dl", { class: "facts" },
        fact("Disk free", node.penstock_disk_free_bytes === undefined ? "–" : `${bytes(node.penstock_disk_free_bytes)} (${Math.round(node.penstock_disk_used_percent)} % used)`),
        fact("Memory", node.penstock_process_resident_bytes === undefined ? "–" : bytes(node.penstock_process_resident_bytes)),
        fact("Kafka connections", count(node.penstock_connections))));
      morph(topics, seen.topics.length ? seen.topics.map((one) => h("a", { class: "line", href: `#/topics/${part(one.name)}` },
        h("span", { class: "line-name" }, one.name), spark(one.recent, "in"), h("span", { class: "line-value" }, rate(one.per_s))))
        : empty("No topics yet", "Create one on the Topics page, or publish to a new one."));
      morph(groups, seen.groups.length ? seen.groups.map((one) => h("a", { class: "line", href: `#/groups/${part(one.name)}` },
        h("span", { class: "line-name" }, one.name), spark(one.trend.recent, "lag"),
        h("span", { class: "line-value" }, short(one.trend.lag), h("small", {}, trendText(one.trend)))))
        : empty("No groups yet", "A group exists once a consumer reads with its name."));
    },
  }, page.signal);
  page.every(HISTORY_MS, async () => { if (period) await drawPeriod(); });
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

export function trendText(trend) {
  if (!trend.lag) return "caught up";
  if (trend.eta_s !== null) return `done in ${duration(trend.eta_s)}`;
  return trend.per_s > 0.01 ? `growing ${rate(trend.per_s)}` : "steady";
}
