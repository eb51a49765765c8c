// Elements. Every text of the run enters the page as a text node, so that a name is never markup.

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "style") Object.assign(element.style, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function phaseColor(phase) {
  return DATA.colors[phase] || DATA.colors.other;
}

// The colour of a phase as a line, which on a dark page has to be lighter than an area.
function lineColor(phase) {
  const color = phaseColor(phase);
  if (!isDark()) return color;
  const parts = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return `rgb(${parts.map((part) => Math.round(part + 0.3 * (255 - part))).join(", ")})`;
}

// Black or white, whichever is legible on a colour.
function inkOn(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const part = parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3 ? "#111" : "#fff";
}

function swatch(phase) {
  return h("i", { class: "swatch", style: { background: phaseColor(phase) } });
}

// A table: heads are texts; a cell is a text, a number's text or an element. The first column is left-aligned.
function table(heads, rows, attributes = {}) {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      attributes,
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell))))),
    ),
  );
}

function section(id, title, about, ...children) {
  return h(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title),
    about ? h("p", { class: "about" }, about) : null,
    ...children,
  );
}

// A bar of a table, with its share of the cell in the colour of a phase.
function bar(share, color = css("--accent")) {
  const width = `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(2)}%`;
  return h("span", { class: "meter" }, h("span", { style: { width, background: color } }));
}

function moduleLink(name, text = name) {
  return h("a", { href: hashFor({ module: name }), class: "name", title: name }, text);
}

// Show text near the pointer while it is over an element.
function tip(element, describe) {
  const box = document.getElementById("tip");
  element.addEventListener("pointermove", (event) => {
    if (box.hidden || box.owner !== element) replace(box, describe());
    box.owner = element;
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    box.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
  });
  element.addEventListener("pointerleave", () => (box.hidden = true));
}

// The choice that the page shows, kept in its address so that it can be linked to.
const STATE = { module: null, step: null, view: "phase", zoom: null };
const LISTENERS = [];

function hashFor(change) {
  const next = { ...STATE, ...change };
  const parts = Object.entries(next).filter(([key, value]) => value !== null && !(key === "view" && value === "phase"));
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
  STATE.view = found.get("view") === "module" ? "module" : "phase";
  STATE.zoom = found.get("zoom");
  const changed = new Set(Object.keys(STATE).filter((key) => STATE[key] !== before[key]));
  if (changed.size) LISTENERS.forEach((listener) => listener(changed));
}
