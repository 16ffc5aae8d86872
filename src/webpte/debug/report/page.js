"use strict";
// What one can do with the page: filter, fold, select, jump. It writes text only, never markup: names come from the file.

const { calls, values } = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const search = byId("search");
const rows = all(".call");
const blocks = all(".block > details");
const tabs = all("nav [data-tab]");
let selected = null; // a row
let tab = "graph";

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// -- text -------------------------------------------------------------------------------------------------------------

function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  for (const unit of ["kB", "MB"]) {
    bytes /= 1000;
    if (bytes < 999.5) return `${Number(bytes.toPrecision(3))} ${unit}`;
  }
  return `${Number((bytes / 1000).toPrecision(3))} GB`;
}

function typeOf(value) {
  if (value.kind === "scalar" || value.kind === "literal") return value.dtype;
  const dims = (value.dims || []).map((dim, i) => (value.dynamic && value.dynamic[i] ? `≤${dim}` : dim));
  return `${value.dtype}[${dims.join(", ")}]`;
}

function chip(id) {
  const value = values[id];
  const kinds = [value.kind, value.input && "input", value.output && "output"].filter(Boolean).join(" ");
  const made = element("a", { className: `v ${kinds}`, href: `#v${id}` }, element("b", {}, `%${id}`), ` ${typeOf(value)}`);
  made.dataset.v = id;
  return made;
}

function callLink(row) {
  const made = element("a", { href: `#c${row}` }, `#${row} ${calls[row].name}`);
  made.dataset.c = row;
  return made;
}

function breakable(text) {
  return text.split(/(?<=,)/).flatMap((part) => [part, element("wbr")]); // a long line may end after any comma
}

// -- the panel --------------------------------------------------------------------------------------------------------

function list(title, items, most = 24) {
  if (!items.length) return [];
  const lines = items.slice(0, most).map((item) => element("li", {}, ...[item].flat()));
  if (items.length > most) lines.push(element("li", { className: "quiet" }, `and ${items.length - most} more`));
  return [element("h4", {}, title), element("ul", {}, ...lines)];
}

const RUNS = {
  gpu: "runs on the device",
  view: "a view: no dispatch, no memory",
  scalar: "computed on the host, from shapes and scalars",
  constant: "filled from the file once, when the method is loaded",
  cpu: "runs on the CPU",
  file: "not planned",
};

function showCall(row) {
  const call = calls[row];
  const kernels = new Map();
  for (const label of call.kernels || []) kernels.set(label, (kernels.get(label) || 0) + 1);
  const given = call.args.map((a) => [
    ...(a.name ? [element("span", { className: "quiet" }, `${a.name} `)] : []),
    ...a.parts.map((part) => (typeof part === "number" ? chip(part) : element("code", {}, part))),
  ]);
  byId("details").replaceChildren(
    element("h3", {}, `#${row} ${call.name}`),
    element("p", { className: "quiet" }, `${call.origin}; ${RUNS[call.runs]}`),
    ...list("makes", (call.outs || []).map(chip)),
    ...list("writes in place", (call.in_place || []).map(chip)),
    ...list("takes", given),
    ...list("kernels", [...kernels].map(([label, n]) => element("code", {}, ...breakable(n > 1 ? `${label} ×${n}` : label)))),
  );
}

function showValue(id) {
  const value = values[id];
  const facts = [];
  if (value.bytes) facts.push(`${size(value.bytes)} at the bound`);
  if (value.host_dtype) facts.push(`${value.host_dtype} for callers`);
  if (value.name) facts.push(`constant ${value.name}`);
  if (value.live) facts.push(`lives from #${value.live[0]} to #${value.live[1]}`);
  if (value.buffer !== undefined) facts.push(`in buffer ${value.buffer}`);
  byId("details").replaceChildren(
    element("h3", {}, `%${id}`),
    element("p", {}, chip(id), ` ${[value.input && "input", value.output && "output", value.kind].filter(Boolean).join(", ")}`),
    ...facts.map((fact) => element("p", { className: "quiet" }, fact)),
    ...(value.view_of !== undefined ? list("a view of", [chip(value.view_of)]) : []),
    ...list("made by", (value.made || []).map(callLink)),
    ...list("read by", (value.read || []).map(callLink)),
  );
}

// -- selecting and jumping --------------------------------------------------------------------------------------------

function openTab(name) {
  tab = name;
  for (const button of tabs) button.setAttribute("aria-selected", button.dataset.tab === name);
  for (const panel of all("main > section")) panel.hidden = panel.id !== name;
  tellFound();
  drawEdges(selected);
}

function reveal(row) {
  openTab("graph");
  const item = rows[row];
  if (item.hidden) {
    search.value = "";
    filter();
  }
  const block = item.closest("details");
  if (block) block.open = true;
  item.scrollIntoView({ block: "center" });
}

function mark(row, id) {
  for (const item of all(".selected, .makes, .reads, .chosen")) item.classList.remove("selected", "makes", "reads", "chosen");
  selected = row;
  if (id !== null) {
    for (const made of values[id].made || []) rows[made].classList.add("makes");
    for (const read of values[id].read || []) rows[read].classList.add("reads");
    for (const item of all(`.v[data-v="${id}"]`)) item.classList.add("chosen");
  } else if (row !== null) {
    for (const near of neighbors(row)) rows[near.row].classList.add(near.kind === "in" ? "makes" : "reads");
  }
  if (row !== null) rows[row].classList.add("selected");
  drawEdges(row);
}

function selectCall(row, scroll) {
  if (scroll) reveal(row);
  showCall(row);
  mark(row, null);
}

function selectValue(id, from) {
  const { made = [], read = [] } = values[id];
  // A value that a row writes leads to its next reader; any other value leads back to its writer.
  const forward = read.find((row) => row > from);
  const target = made.includes(from) && forward !== undefined ? forward : made[0] ?? read[0];
  if (target !== undefined) reveal(target);
  showValue(id);
  mark(target ?? null, id);
}

function follow(hash) {
  const [, kind, number] = /^#([cv])(\d+)$/.exec(hash) || [];
  if (kind === "c" && calls[number]) selectCall(Number(number), true);
  if (kind === "v" && values[number]) selectValue(Number(number), null);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-v], [data-c]");
  const item = event.target.closest(".call");
  if (link) {
    event.preventDefault(); // also keeps a summary from folding
    history.pushState(null, "", link.getAttribute("href"));
    if (link.dataset.c) selectCall(Number(link.dataset.c), true);
    else selectValue(Number(link.dataset.v), item ? Number(item.dataset.row) : selected);
  } else if (item && getSelection().isCollapsed) {
    history.replaceState(null, "", `#c${item.dataset.row}`);
    selectCall(Number(item.dataset.row), false);
  }
});
addEventListener("popstate", () => follow(location.hash));

// -- edges, of one call at a time ---------------------------------------------------------------------------------------

function neighbors(row) {
  const call = calls[row];
  const found = new Map();
  for (const part of call.args.flatMap((a) => a.parts)) {
    const made = typeof part === "number" ? (values[part].made || []).filter((r) => r < row).pop() : undefined;
    if (made !== undefined) found.set(made, "in");
  }
  for (const out of call.outs || []) for (const read of values[out].read || []) if (read > row) found.set(read, "out");
  return [...found].map(([near, kind]) => ({ row: near, kind }));
}

function middle(row) {
  const details = rows[row].closest("details");
  const shown = details && !details.open ? details.firstElementChild : rows[row];
  const box = shown.getBoundingClientRect();
  return box.height ? box.top + 14 - byId("edges").getBoundingClientRect().top : null;
}

function drawEdges(row) {
  const svg = byId("edges");
  svg.replaceChildren();
  if (row === null || tab !== "graph") return;
  const here = middle(row);
  if (here === null) return;
  const near = neighbors(row).sort((a, b) => Math.abs(a.row - row) - Math.abs(b.row - row));
  near.slice(0, 40).forEach((edge, n) => {
    const there = middle(edge.row);
    if (there === null || there === here) return;
    const x = 34 - Math.min(n, 6) * 5;
    const [start, end] = edge.kind === "in" ? [there, here] : [here, there];
    const path = document.createElementNS(svg.namespaceURI, "path");
    path.setAttribute("d", `M44,${start} H${x} V${end} H40`);
    const head = document.createElementNS(svg.namespaceURI, "polygon");
    head.setAttribute("points", `44,${end} 38,${end - 3.5} 38,${end + 3.5}`);
    for (const part of [path, head]) part.setAttribute("class", edge.kind);
    svg.append(path, head);
  });
}

byId("graph").addEventListener("pointerover", (event) => {
  const item = event.target.closest(".call");
  drawEdges(item ? Number(item.dataset.row) : selected);
});
for (const block of blocks) {
  block.addEventListener("toggle", () => {
    drawEdges(selected);
    byId("fold").textContent = blocks.some((other) => !other.open) ? "Unfold all" : "Fold all";
  });
}
addEventListener("resize", () => drawEdges(selected));

// -- the search box ---------------------------------------------------------------------------------------------------

function matcher(query) {
  const words = query.toLowerCase().replaceAll("≤", "").split(/\s+/).filter(Boolean);
  return (text) =>
    words.every((word) => (/^[%#]\d+$/.test(word) ? new RegExp(`${word}(?!\\d)`).test(text) : text.includes(word)));
}

function filter() {
  const query = search.value.trim();
  const matches = matcher(query);
  for (const item of all("[data-search]")) item.hidden = Boolean(query) && !matches(item.dataset.search);
  for (const heading of all(".heading")) heading.hidden = Boolean(query);
  for (const block of blocks) {
    const hits = all(".call", block).some((item) => !item.hidden);
    block.parentElement.hidden = !hits;
    if (block.dataset.before === undefined && query) block.dataset.before = block.open ? "open" : "closed";
    if (query) block.open = hits;
    else if (block.dataset.before !== undefined) {
      block.open = block.dataset.before === "open";
      delete block.dataset.before;
    }
  }
  tellFound();
  drawEdges(selected);
}

function tellFound() {
  const items = tab === "constants" ? all("#constants [data-search]") : rows;
  const noun = tab === "constants" ? "constants" : "calls";
  const shown = items.filter((item) => !item.hidden).length;
  byId("found").textContent = search.value.trim() ? `${shown} of ${items.length} ${noun}` : `${items.length} ${noun}`;
  byId("none").hidden = rows.length === 0 || rows.some((item) => !item.hidden);
}

search.addEventListener("input", filter);

// -- keys, folding, zooming, tips ---------------------------------------------------------------------------------------

function step(by) {
  const shown = rows.filter((item) => !item.hidden && (!item.closest("details") || item.closest("details").open));
  if (!shown.length) return;
  const at = selected === null ? -1 : shown.indexOf(rows[selected]);
  const next = shown[Math.min(Math.max(at === -1 ? (by > 0 ? 0 : shown.length - 1) : at + by, 0), shown.length - 1)];
  selectCall(Number(next.dataset.row), false);
  next.scrollIntoView({ block: "nearest" });
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    search.value = "";
    search.blur();
    filter();
  } else if (document.activeElement === search) {
    if (event.key === "Enter" || event.key === "ArrowDown") search.blur();
  } else if (event.key === "/") {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (tabs[Number(event.key) - 1]) {
    openTab(tabs[Number(event.key) - 1].dataset.tab);
  } else if (tab === "graph" && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    step(event.key === "ArrowDown" ? 1 : -1);
  }
});

for (const button of tabs) button.addEventListener("click", () => openTab(button.dataset.tab));
byId("fold")?.addEventListener("click", () => {
  const open = blocks.some((block) => !block.open);
  for (const block of blocks) block.open = open;
});
byId("zoom")?.addEventListener("input", (event) => {
  document.querySelector(".lanes").style.setProperty("--zoom", event.target.value);
});

const tip = byId("tip");
addEventListener("pointermove", (event) => {
  const bar = event.target.closest?.(".track > .v");
  tip.hidden = !bar;
  if (!bar) return;
  const value = values[bar.dataset.v];
  const [first, last] = value.live;
  tip.textContent = `%${value.id} ${typeOf(value)}\n${size(value.bytes)}, ${value.kind}\n#${first} ${calls[first].name} to\n#${last} ${calls[last].name}`;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - box.width - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - box.height - 8)}px`;
});

tellFound();
follow(location.hash);
