// Charts as inline SVG: an area chart with a crosshair, a sparkline, and bars.

import { h, put, svg } from "./dom.js";
import { clock, minute, moment, short } from "./format.js";

const WIDTH = 1000;
const HEIGHT = 200;
const LONG_MS = 15 * 60 * 1000;
const DAYS_MS = 12 * 60 * 60 * 1000;

function ceiling(value, base) {
  if (value <= 0) return 1;
  const unit = base ** Math.max(0, Math.floor(Math.log(value) / Math.log(base)));
  if (base !== 10 && unit > 1) return ceiling(value / unit, 10) * unit;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 2.5, 5, 10]) if (step * power >= value) return step * power;
  return 10 * power;
}

function line(values, top, width = WIDTH, height = HEIGHT) {
  const step = values.length > 1 ? width / (values.length - 1) : width;
  return values.map((value, at) => `${at ? "L" : "M"}${(at * step).toFixed(1)} ${(height - (value / top) * (height - 6)).toFixed(1)}`).join("");
}

// Returns a time with what tells it apart from the others on an axis.
function onAxis(ms, span) {
  if (span > DAYS_MS) return moment(ms).slice(0, 16);
  return span > LONG_MS ? minute(ms) : clock(ms);
}

// series: [{name, tone, values}], all as long as `times`.
export function areaChart({ title, unit = "", show = short, base = 10 }) {
  const plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "plot", "aria-hidden": "true" });
  const scale = h("div", { class: "scale", "aria-hidden": "true" });
  const from = h("span", {});
  const legend = h("div", { class: "legend" });
  const tip = h("div", { class: "tip", hidden: true });
  const waiting = h("div", { class: "chart-wait" }, "collecting…");
  const frame = h("div", { class: "frame" }, scale, plot, tip, waiting);
  const root = h("figure", { class: "chart" },
    h("figcaption", {}, h("span", { class: "chart-title" }, title), legend),
    frame,
    h("div", { class: "axis", "aria-hidden": "true" }, from, h("span", {}, "now")));
  let data = { times: [], series: [] };

  function hover(event) {
    const box = frame.getBoundingClientRect();
    const last = data.times.length - 1;
    if (last < 1) return;
    const at = Math.max(0, Math.min(last, Math.round(((event.clientX - box.left) / box.width) * last)));
    tip.hidden = false;
    tip.style.setProperty("left", `${(at / last) * 100}%`);
    tip.classList.toggle("left", at > last / 2);
    put(tip, h("div", { class: "tip-time" }, onAxis(data.times[at], data.times[last] - data.times[0])),
      data.series.map((one) => h("div", {}, h("i", { class: `dot ${one.tone}` }), `${one.name} `, h("b", {}, show(one.values[at]), unit))));
  }
  frame.addEventListener("pointermove", hover);
  frame.addEventListener("pointerleave", () => { tip.hidden = true; });

  function update(times, series) {
    data = { times, series };
    const top = ceiling(Math.max(...series.flatMap((one) => one.values), 0), base);
    waiting.hidden = times.length > 1;
    from.textContent = times.length > 1 ? onAxis(times[0], times.at(-1) - times[0]) : "";
    put(scale, [1, 0.5].map((share) => h("span", {}, show(top * share))), h("span"));
    put(plot, [0.03, 0.5].map((share) => svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT * share, y2: HEIGHT * share, class: "grid" })),
      series.map((one) => {
        const path = line(one.values, top);
        return one.values.length > 1 && [
          svg("path", { d: `${path}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`, class: `area ${one.tone}` }),
          svg("path", { d: path, class: `line ${one.tone}` }),
        ];
      }));
    put(legend, series.map((one) => h("span", {}, h("i", { class: `dot ${one.tone}` }), one.name, " ",
      h("b", {}, show(one.values.at(-1) ?? 0), unit))));
  }
  return { root, update };
}

export function spark(values, tone = "accent") {
  const top = Math.max(...values, 0) || 1;
  const root = svg("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" });
  if (values.length > 1) {
    const path = line(values, top, 100, 23);
    root.append(svg("path", { d: `${path}L100 24L0 24Z`, class: `area ${tone}` }), svg("path", { d: path, class: `line ${tone}` }));
  } else {
    root.append(svg("path", { d: "M0 23L100 23", class: `line ${tone}` }));
  }
  return root;
}

// Draws parts ([{name, value, tone}]) as shares of one bar.
export function shareBar(parts) {
  const total = parts.reduce((sum, one) => sum + one.value, 0);
  return h("div", { class: "share", role: "img", "aria-label": parts.map((one) => `${one.name} ${one.value}`).join(", ") },
    parts.filter((one) => one.value > 0).map((one) =>
      h("i", { class: one.tone, title: `${one.name}: ${short(one.value)}`, style: { width: `${(one.value / total) * 100}%` } })));
}

// Draws rows ([{name, value, note}]) as horizontal bars; the longest fills the width.
export function bars(rows, { tone = "accent", show = short } = {}) {
  const top = Math.max(...rows.map((row) => row.value), 0) || 1;
  return h("div", { class: "bars" }, rows.map((row) => h("div", { class: "bar-row" },
    h("span", { class: "bar-name" }, row.name),
    h("span", { class: "bar-track" }, h("i", { class: `bar ${row.tone ?? tone}`, style: { width: `${(row.value / top) * 100}%` } })),
    h("span", { class: "bar-value" }, show(row.value)))));
}
