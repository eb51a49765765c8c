// The tree of names as an icicle: a block is as wide as its time, below the name around it. A click zooms.

const ROW_PX = 23;
const LEAST_PX = 2;
const PARTS = ["forward", "recompute", "backward"];

// Make nodes of the rows, which have their parents first.
function makeTree() {
  const root = { key: "", name: "", label: "step", ns: RUN.total / Math.max(RUN.steps, 1), parts: [0, 0, 0], phase: "other", calls: 0, children: [], parent: null };
  const chain = [root];
  for (const row of RUN.tree) {
    const parent = chain[row.depth];
    const node = { ...row, key: row.name || row.label, children: [], parent };
    parent.children.push(node);
    chain[row.depth + 1] = node;
  }
  root.shares = RUN.phases.map(([phase, ns]) => [phase, ns / Math.max(RUN.steps, 1)]);
  return root;
}

const TREE = makeTree();

function* walk(node) {
  yield node;
  for (const child of node.children) yield* walk(child);
}

function nodeOf(key) {
  for (const node of walk(TREE)) if (node.key === key) return node;
  return null;
}

// The phases of a node with their times; time without a column has the phase of its longest row.
function sharesOf(node) {
  if (node.shares) return node.shares;
  const named = PARTS.map((phase, at) => [phase, node.parts[at]]);
  const rest = node.ns - node.parts.reduce((sum, ns) => sum + ns, 0);
  const phase = PARTS.includes(node.phase) && rest < 0.01 * node.ns ? null : node.phase;
  return [...named, [phase, rest]].filter(([word, ns]) => word && ns > 0);
}

function background(node) {
  let at = 0;
  const stops = sharesOf(node).map(([phase, ns]) => {
    const from = at;
    at += (100 * ns) / Math.max(node.ns, 1);
    return `${phaseColor(phase)} ${from.toFixed(2)}% ${at.toFixed(2)}%`;
  });
  return `linear-gradient(90deg, ${stops.join(", ")}) bottom / 100% 5px no-repeat`;
}

function pick(node) {
  const isZoomed = (STATE.zoom || "") === node.key && (!node.name || STATE.module === node.name);
  const zoom = isZoomed ? node.parent && node.parent.key : node.children.length ? node.key : STATE.zoom;
  choose({ zoom: zoom || null, module: BY_NAME.has(node.name) ? node.name : STATE.module });
}

// Return the places of all blocks that are wide enough: node, left, width, depth.
function placesOf(focus, width) {
  const places = [];
  for (let node = focus.parent; node; node = node.parent) places.unshift([node, 0, width]);
  places.forEach((place, depth) => place.push(depth, "above"));
  const place = (node, left, size, depth) => {
    places.push([node, left, size, depth, ""]);
    let at = left;
    const short = [];
    for (const child of node.children) {
      const part = (size * child.ns) / Math.max(node.ns, 1);
      if (part >= LEAST_PX) place(child, at, part, depth + 1);
      else short.push(child);
      at += part;
    }
    const sum = short.reduce((ns, one) => ns + one.ns, 0);
    const part = (size * sum) / Math.max(node.ns, 1);
    if (part >= LEAST_PX) places.push([{ ...short[0], label: "", short, ns: sum, parent: node }, at - part, part, depth + 1, "short"]);
  };
  place(focus, 0, width, places.length);
  return places;
}

function block([node, left, width, depth, kind]) {
  const share = `${formatTime(node.ns, node.calls)} a step, ${formatShare(node.ns / TREE.ns)}`;
  const label = node.short ? `${plural(node.short.length, "short name")}: ${share}; zoom to see them` : `${node.name || node.label}: ${share}`;
  const narrow = width < Math.min(6.4 * node.label.length + 12, 46);
  const chosen = node.name && node.name === STATE.module && !node.short;
  const style = { left: `${left}px`, width: `${Math.max(width - 1, 1)}px`, top: `${depth * ROW_PX}px` };
  if (!node.short) style.background = background(node);
  const classes = ["block", kind, narrow ? "narrow" : "", chosen ? "chosen" : ""].join(" ");
  return h("button", { type: "button", class: classes, style, title: label, "aria-label": label, onclick: () => pick(node.short ? node.parent : node) }, h("span", {}, node.label));
}

function treeSection() {
  if (!TREE.children.length) return null;
  const holder = h("div", { class: "icicle", role: "group", "aria-label": "Time of a step by module" });
  const draw = () => {
    const focus = (STATE.zoom && nodeOf(STATE.zoom)) || TREE;
    const places = placesOf(focus, holder.clientWidth);
    holder.style.height = `${(Math.max(...places.map(([, , , depth]) => depth)) + 1) * ROW_PX}px`;
    replace(holder, places.map(block));
  };
  LISTENERS.push((changed) => (changed.has("zoom") || changed.has("module")) && draw());
  LISTENERS.push((changed) => changed.has("module") && drawModule());
  new ResizeObserver(draw).observe(holder);
  MOUNTED.push(draw, drawModule);
  const legend = RUN.phases.map(([phase, ns]) => h("span", {}, swatch(phase), phase, " ", h("b", {}, formatShare(ns / Math.max(RUN.total, 1)))));
  return section(
    "tree",
    "Where a step goes",
    `A block is as wide as its mean time in ${plural(RUN.steps, "recorded step")}, and its strip has the phases; the blocks below it ran inside it, longest first. Click a block to zoom, the one above it to zoom out.`,
    h("div", { class: "legend" }, legend),
    holder,
    h("div", { id: "module", class: "panel" }),
  );
}

function largestModule() {
  const found = RUN.findings.find((one) => BY_NAME.has(one.name));
  if (found) return found.name;
  const modules = ROWS.all.filter((row) => ROWS.lane[row] === 0 && ROWS.fqn[row]); // the whole model, whose path is empty, says little
  const longest = (modules.length ? modules : ROWS.all).toSorted((a, b) => ROWS.self_ns[b] - ROWS.self_ns[a]);
  return longest.length ? ROWS.name[longest[0]] : null;
}

// The panel of one module: its phases, its time over the steps, and findings.
function drawModule() {
  const panel = document.getElementById("module");
  if (!panel) return;
  const name = STATE.module || largestModule();
  if (!BY_NAME.has(name)) {
    replace(panel, STATE.module ? h("p", { class: "note" }, `No module of this run is called ${STATE.module}. The search has all names.`) : null);
    return;
  }
  const rows = BY_NAME.get(name).toSorted((a, b) => PHASES.indexOf(ROWS.phase[a]) - PHASES.indexOf(ROWS.phase[b]));
  const longest = rows.reduce((a, b) => (ROWS.total_ns[b] > ROWS.total_ns[a] ? b : a));
  const fqn = rows.map((row) => ROWS.fqn[row]).find((one) => one && one !== name);
  const chart = h("div", { class: "chart", id: "module-chart" });
  replace(
    panel,
    h("h3", {}, name, h("span", { class: "faint" }, rows.length > 1 ? ` mostly ${ROWS.phase[longest]}` : ` ${ROWS.phase[longest]}`), fqn ? h("code", { class: "fqn" }, fqn) : null),
    RUN.findings.filter((one) => one.name === name).map((one) => h("p", { class: `found ${one.severity}` }, h("b", {}, one.rule), " ", one.why)),
    phaseTable(rows),
    h("h4", {}, "Over the steps"),
    chart,
  );
  drawHistory(chart, rows);
}

function phaseTable(rows) {
  const partial = rows.some((row) => ROWS.steps[row] !== RUN.steps);
  const heads = ["phase", "share", "mean", "p50", "p95", "max", "self", "calls a step", ...(partial ? ["in steps"] : [])];
  const lines = rows.map((row) => {
    const steps = Math.max(ROWS.steps[row], 1);
    const calls = ROWS.calls[row] / steps;
    const lane = ROWS.lane[row] > 0 ? " (other thread or stream)" : ROWS.lane[row] < 0 ? " (logged)" : "";
    const times = ["mean_ns", "p50_ns", "p95_ns", "max_ns"].map((column) => formatTime(ROWS[column][row], calls));
    const last = partial ? [`${ROWS.steps[row].toLocaleString("en")} of ${RUN.steps.toLocaleString("en")}`] : [];
    return [[swatch(ROWS.phase[row]), ROWS.phase[row], lane], formatShare(ROWS.share[row]), ...times, formatNs(ROWS.self_ns[row] / steps), formatCount(calls), ...last];
  });
  return table(heads, lines);
}

function drawHistory(holder, rows) {
  const found = RECORDS ? rows.filter((row) => row < RECORDS.rowMean.length) : [];
  if (!found.length) {
    replace(holder, h("p", { class: "faint" }, RECORDS ? "This page has no room for the histories of the shortest rows." : "There are no records of steps, so there is no history."));
    return;
  }
  const { last, rowMean, rowMost } = RECORDS;
  const lines = bandTo(found.map((row) => [ROWS.phase[row], phaseColor(ROWS.phase[row]), rowMost[row], rowMean[row]]));
  makeChart(holder, { ...lines, height: 200, y: timeUnit(...lines.columns), label: "time of the module over the steps", onPick: (at) => choose({ step: last[at] }) });
}
