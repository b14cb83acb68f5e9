// Tables that keep the rows they show: an update changes only the cells whose content changed, so
// that focus, selected text, checked rows and scroll position survive.

import { append, h, keepingFocus, put, sync } from "./dom.js";
import { empty } from "./parts.js";

// columns: [{name, cell(row) -> node or text, right, sort(row), class}]. `choose(keys)` is called with
// the keys of the checked rows; without it there are no checkboxes. Handlers of a cell may use `row`
// later: it always has the current data.
export function table(columns, { key, order, descending = false, none, onrow, label, choose }) {
  let rows = [];
  let by = order;
  let down = descending;
  let filter = "";
  const known = new Map();
  const chosen = new Set();
  const body = h("tbody");
  const head = h("tr");
  const blank = h("div", { hidden: true });
  const all = choose && h("input", { type: "checkbox", "aria-label": "Select all", onchange: () => {
    for (const row of visible()) if (all.checked) chosen.add(String(key(row))); else chosen.delete(String(key(row)));
    for (const entry of known.values()) mark(entry);
    tell();
  } });
  const root = h("div", { class: "table-box" },
    h("table", { "aria-label": label, class: "list" }, h("thead", {}, head), body), blank);

  const heads = columns.map((column) => {
    const sort = column.sort && h("button", { type: "button", onclick: () => { down = by === column.name ? !down : Boolean(column.right); by = column.name; draw(); } });
    return { column, sort, element: h(column.name ? "th" : "td", { scope: column.name ? "col" : undefined, class: column.right ? "right" : "", title: column.title }, sort ?? column.name) };
  });
  put(head, choose && h("td", { class: "check-cell" }, all), heads.map((one) => one.element));

  function drawHeads() {
    for (const { column, sort, element } of heads) {
      const sorted = by === column.name && column.sort;
      if (sort) sort.textContent = column.name + (sorted ? (down ? " ↓" : " ↑") : "");
      if (sorted) element.setAttribute("aria-sort", down ? "descending" : "ascending");
      else element.removeAttribute("aria-sort");
    }
  }

  function visible() {
    const shown = rows.filter((row) => !filter || JSON.stringify(row).toLowerCase().includes(filter));
    const column = columns.find((one) => one.name === by);
    if (column?.sort) shown.sort((a, b) => compare(column.sort(a), column.sort(b)) * (down ? -1 : 1));
    return shown;
  }

  function cell(column, row) {
    return append(h("td", { class: column.right ? "right" : column.class ?? "", "data-label": column.name }), [column.cell(row)]);
  }

  function add(name, row) {
    const box = choose && h("input", { type: "checkbox", "aria-label": `Select ${name}`, onchange: () => {
      if (box.checked) chosen.add(name); else chosen.delete(name);
      mark(entry);
      tell();
    } });
    const entry = { name, row, box, state: JSON.stringify(row), element: h("tr", onrow ? { class: "pick" } : {}, box && h("td", { class: "check-cell" }, h("label", {}, box)), columns.map((column) => cell(column, row))) };
    if (onrow) entry.element.addEventListener("click", (event) => { if (!event.target.closest("a,button,input,label") && getSelection().isCollapsed) onrow(entry.row); });
    mark(entry);
    return entry;
  }

  function mark(entry) {
    const isChosen = chosen.has(entry.name);
    if (entry.box) entry.box.checked = isChosen;
    entry.element.classList.toggle("chosen", isChosen);
  }

  function change(entry, row) {
    const state = JSON.stringify(row);
    for (const field of Object.keys(entry.row)) if (!(field in row)) delete entry.row[field];
    Object.assign(entry.row, row);
    let isWhole = true;
    columns.forEach((column, at) => {
      const now = entry.element.children[at + (choose ? 1 : 0)];
      const next = cell(column, entry.row);
      if (now.isEqualNode(next)) return;
      if (holdsSelection(now)) { isWhole = false; return; }
      now.className = next.className;
      sync(now, [...next.childNodes]);
    });
    if (isWhole) entry.state = state;
  }

  function draw() {
    drawHeads();
    const shown = visible();
    const kept = new Set();
    keepingFocus(body, () => {
      const elements = shown.map((row) => {
        const name = String(key(row));
        kept.add(name);
        let entry = known.get(name);
        if (!entry) known.set(name, entry = add(name, { ...row }));
        else if (entry.state !== JSON.stringify(row) || columns.some((column) => column.aging)) change(entry, row);
        return entry.element;
      });
      for (const [name, entry] of known) if (!kept.has(name)) { entry.element.remove(); known.delete(name); }
      elements.forEach((element, at) => { if (body.children[at] !== element) move(element, body.children[at] ?? null); });
    });
    const present = new Set(rows.map((row) => String(key(row))));
    const before = chosen.size;
    for (const name of chosen) if (!present.has(name)) chosen.delete(name);
    if (before !== chosen.size) tell();
    blank.hidden = shown.length > 0;
    root.classList.toggle("is-empty", !shown.length);
    if (!shown.length) put(blank, rows.length ? empty("No matches", "No row contains the search text.") : none ?? empty("No entries yet"));
  }

  // moveBefore keeps focus and selected text; older browsers do not have it.
  function move(element, before) {
    if (element.isConnected && body.moveBefore) body.moveBefore(element, before);
    else body.insertBefore(element, before);
  }

  function tell() {
    if (all) {
      const size = visible().length;
      all.checked = size > 0 && chosen.size >= size;
      all.indeterminate = chosen.size > 0 && !all.checked;
    }
    choose?.([...chosen]);
  }

  drawHeads();
  return {
    root,
    update(next) { rows = [...next]; draw(); },
    filter(text) { filter = text.trim().toLowerCase(); draw(); },
    choose(keys) { chosen.clear(); for (const one of keys) chosen.add(one); for (const entry of known.values()) mark(entry); tell(); },
  };
}

function holdsSelection(element) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(element, true);
}

function compare(a, b) {
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b));
}
