// Elements, numbers as the reports of the terminal write them, and the choice that the page shows.

// Every text of the run enters the page as a text node, so that a name is never markup.
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "style") Object.assign(element.style, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  replace(element, ...children);
  return element;
}

function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function phaseColor(phase) {
  return DATA.colors[phase] || DATA.colors.other;
}

// Black or white, whichever is legible on a colour.
function inkOn(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#111" : "#fff";
}

function swatch(phase, color = phaseColor(phase)) {
  return h("i", { class: "swatch", style: { background: color } });
}

// A table: heads and cells are texts or elements. The first column is left-aligned.
function table(heads, rows) {
  const head = h("thead", {}, h("tr", {}, heads.map((one) => h("th", { scope: "col" }, one))));
  const body = h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))));
  return h("div", { class: "scroll" }, h("table", {}, head, body));
}

function section(id, title, about, ...children) {
  const head = [h("h2", { id: `${id}-title` }, title), about ? h("p", { class: "about" }, about) : null];
  return h("section", { id, "aria-labelledby": `${id}-title` }, head, ...children);
}

function moduleLink(name, text = name) {
  return h("a", { href: hashFor({ module: name }), class: "name", title: name }, text);
}

function facts(entries) {
  return h("dl", { class: "facts" }, entries.map(([word, text]) => [h("dt", {}, word), h("dd", {}, text)]));
}

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

function formatNs(ns) {
  if (ns === null || ns === undefined) return "–";
  for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (Math.abs(ns) >= 0.9995 * scale) return `${digits(ns / scale)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

// A time of a row; below the resolution of the clock it is only known to be less.
function formatTime(ns, calls = 1) {
  const limit = RUN.clockLimit * Math.max(calls, 1);
  return ns && ns < limit ? `<${formatNs(limit)}` : formatNs(ns);
}

function formatChange(ns) {
  return `${ns > 0 ? "+" : ns < 0 ? "−" : ""}${formatNs(Math.abs(ns))}`;
}

function formatShare(share) {
  if (share === null || share === undefined) return "–";
  return share && Math.abs(share) < 0.0005 ? "<0.1 %" : `${(100 * share).toFixed(1)} %`;
}

function formatBytes(count) {
  if (count === null || count === undefined) return "–";
  let size = count;
  for (const [unit, places] of [["B", 0], ["KiB", 1], ["MiB", 1], ["GiB", 2]]) {
    if (Math.abs(size) < 1023.95) return `${size.toFixed(places)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(2)} TiB`;
}

function formatCount(count) {
  return Math.abs(count - Math.round(count)) < 0.05 ? Math.round(count).toLocaleString("en") : count.toFixed(1);
}

function plural(count, word) {
  return `${formatCount(count)} ${word}${count === 1 ? "" : "s"}`;
}

function stepsText(first, last) {
  const [from, to] = [first, last].map((step) => step.toLocaleString("en"));
  return first === last ? `step ${from}` : `steps ${from} to ${to}`;
}

// The choice is kept in the page's address, so that a view can be linked to.
const STATE = { module: null, step: null, zoom: null };
const LISTENERS = [];

function hashFor(change) {
  const parts = Object.entries({ ...STATE, ...change }).filter(([, value]) => value !== null);
  return `#${parts.map(([key, value]) => `${key}=${encodeURIComponent(value).replaceAll("%2F", "/").replaceAll("%20", "+")}`).join("&")}`;
}

function choose(change) {
  const hash = hashFor(change);
  if (hash !== location.hash) history.pushState(null, "", hash);
  applyHash();
}

function applyHash() {
  const found = new URLSearchParams(location.hash.slice(1));
  const before = { ...STATE };
  STATE.module = found.get("module");
  STATE.step = found.has("step") && Number.isFinite(Number(found.get("step"))) ? Number(found.get("step")) : null;
  STATE.zoom = found.get("zoom");
  const changed = new Set(Object.keys(STATE).filter((key) => STATE[key] !== before[key]));
  if (changed.size) LISTENERS.forEach((listener) => listener(changed));
}
