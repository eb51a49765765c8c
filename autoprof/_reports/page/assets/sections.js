// The sections without a chart of their own steps: verdict, memory, lines, ranks, the rest.

const MEMORY_COLORS = { allocated: "#0072b2", reserved: "#e69f00", peak: "#d55e00", rss: "#009e73", "rss peak": "#56b4e9" };
const MEMORY_PARTS = [
  ["parameter_bytes", "parameters", "#0072b2"],
  ["gradient_bytes", "gradients", "#e69f00"],
  ["state_bytes", "optimizer state", "#009e73"],
  ["activation_bytes", "growth in forward", "#cc79a7"],
];
const MOST_ROWS = 24;

function more(hidden, word) {
  return hidden > 0 ? h("p", { class: "faint" }, `and ${plural(hidden, `more ${word}`)} with less`) : null;
}

function cardSection() {
  const [first, ...others] = RUN.card.findings;
  const card = new Map(RUN.card.facts);
  const ended = new Map(RUN.about).get("ended");
  const title = (card.get("Verdict") || (RUN.empty ? "No figures" : "No verdict: no rule was judged")).replace(/^\[(critical|warning)\] /, "");
  const badge = first ? h("span", { class: `badge ${first.severity}` }, first.severity) : null;
  const line = (word, text) => (text ? h("p", { class: "why" }, h("b", {}, `${word} `), text) : null);
  const left = [
    h("p", { class: "eyebrow" }, RUN.name, " · ", RUN.headline.replace(/^autoprof: /, "")),
    h("h1", { id: "card-title" }, badge, first && BY_NAME.has(first.name) ? moduleLink(first.name, title) : title),
    ended.startsWith("closed") ? null : line("How the run ended", ended),
    RUN.empty ? h("p", {}, `${RUN.empty}.`) : null,
    line("Why", card.get("Why")),
    line("Next", card.get("Next")),
    others.map(otherFinding),
  ];
  const bar = RUN.phases.filter(([, ns]) => ns > 0).map(([phase, ns]) => {
    const share = ns / RUN.total;
    const style = { width: `${100 * share}%`, background: phaseColor(phase), color: inkOn(phaseColor(phase)) };
    const title = `${phase}: ${formatNs(ns / RUN.steps)} a step, ${formatShare(share)}`;
    return h("span", { style, title }, share > 0.07 ? `${phase} ${Math.round(100 * share)} %` : "");
  });
  return h("section", { id: "card", "aria-labelledby": "card-title" }, h("div", { class: "card-grid" }, h("div", {}, left), facts(RUN.facts)), h("div", { class: "phase-bar" }, bar));
}

function otherFinding(one) {
  const gain = one.gain ? ` · up to ${formatNs(one.gain)} a step` : "";
  const place = [one.name, one.phase, one.rank === undefined ? null : `rank ${one.rank}`].filter(Boolean).join(" ");
  const head = h("summary", {}, h("span", { class: `badge ${one.severity}` }, one.severity), h("b", {}, one.rule), ` ${place}`, h("span", { class: "faint" }, gain));
  const link = BY_NAME.has(one.name) ? h("p", {}, moduleLink(one.name, `Show ${one.name}`)) : null;
  return h("details", {}, head, h("p", {}, h("b", {}, "Why "), one.why), h("p", {}, h("b", {}, "Next "), one.next), link);
}

function memorySection() {
  const { memory } = RUN;
  const { steps, series } = memory.history;
  const kinds = Object.keys(series).filter((kind) => kind !== "inactive split" && series[kind].some((value) => value !== null));
  const names = memory.names.filter((one) => MEMORY_PARTS.some(([part]) => one[part] > 0));
  if (!kinds.length && !names.length && !Object.keys(memory.last).length) return null;
  const color = (kind) => MEMORY_COLORS[kind] || "#7f7f7f";
  const holder = h("div", { class: "chart", id: "memory-chart" });
  if (kinds.length) {
    const columns = kinds.map((kind) => series[kind]);
    const lines = kinds.map((kind) => ({ stroke: color(kind), width: 1.5, spanGaps: true, dash: kind.includes("peak") ? [6, 4] : undefined }));
    MOUNTED.push(() => makeChart(holder, { data: [steps, ...columns], series: lines, height: 170, y: byteUnit(...columns), fromZero: false, label: "memory over the steps", onPick: (point) => choose({ step: steps[point] }) }));
  }
  const whole = memory.whole || {};
  const parts = [...MEMORY_PARTS.slice(0, 3), ["buffer_bytes", "buffers"], ["peak_bytes", "peak"]].filter(([part]) => whole[part] !== undefined);
  return section(
    "memory",
    "Memory",
    kinds.length ? "Readings at the end of each step; of several steps, the largest. The axis may not start at zero." : null,
    h("div", { class: "legend" }, kinds.map((kind) => h("span", {}, swatch("", color(kind)), kind, " ", h("b", {}, formatBytes(memory.last[kind]))))),
    kinds.length ? holder : null,
    parts.length ? h("p", { class: "wide" }, h("b", {}, "The whole model "), parts.map(([part, word]) => `${word} ${formatBytes(whole[part])}`).join(" · ")) : null,
    names.length ? memoryTable(names) : null,
    h("ul", { class: "faint small" }, Object.entries(memory.unmeasured).map(([what, reason]) => h("li", {}, `${what}: unmeasured, ${reason}`))),
  );
}

function memoryTable(names) {
  const parts = MEMORY_PARTS.filter(([part]) => names.some((one) => one[part] > 0));
  const sum = (one) => parts.reduce((bytes, [part]) => bytes + Math.max(one[part] || 0, 0), 0);
  const sorted = [...names].sort((a, b) => sum(b) - sum(a));
  const most = Math.max(sum(sorted[0]), 1);
  const rows = sorted.slice(0, MOST_ROWS).map((one) => [moduleLink(one.name), ...parts.map(([part]) => formatBytes(one[part])), strip(parts.map(([part, , color]) => [(one[part] || 0) / most, color]), "meter wide")]);
  const heads = parts.map(([, word, color]) => h("span", {}, swatch("", color), word));
  return [h("h3", {}, "By name", h("span", { class: "faint" }, " a name includes the modules in it")), table(["name", ...heads, ""], rows), more(sorted.length - MOST_ROWS, "name")];
}

// Time in no span, and the lines of the program that ran then.
function lineSection() {
  if (!RUN.lines.length) return null;
  const other = RUN.phases.find(([phase]) => phase === "other");
  const share = other && RUN.total ? other[1] / RUN.total : 0;
  const kinds = RUN.lines.map(({ kind, samples, lines }) => {
    const cells = lines.map((line) => [h("code", {}, line.where), h("code", {}, line.call), h("code", { class: "source" }, line.source), formatShare(line.share), strip([[line.share, phaseColor(kind.split(" ")[0])]])]);
    return [h("h3", {}, kind, h("span", { class: "faint" }, ` ${plural(samples, "sample")}${samples < 10 ? ", too few to rely on" : ""}`)), table(["line", "calls", "source", "share", ""], cells, { class: "lines" })];
  });
  const title = RUN.lines[0].kind === "unattributed" ? "Unattributed time by line" : "Sampled time by line";
  return section("lines", title, `${formatShare(share)} of the step is in no span. The training thread's stack was sampled; a line's share is of its kind of time.`, kinds);
}

// The excess of each rank over the median of the others, by row: a cell is as strong as its excess.
function rankSection() {
  const found = RUN.ranks;
  if (!found) return null;
  const gone = found.missing.length ? ` There are no records of rank${found.missing.length > 1 ? "s" : ""} ${found.missing.join(", ")}.` : "";
  const most = Math.max(...(found.excess || []).flat().map(Math.abs), 1);
  const cell = (us) => h("span", { class: "cell", style: { background: faint(us > 0 ? "#d55e00" : "#0072b2", (0.5 * Math.abs(us)) / most) } }, formatChange(1000 * us));
  const rows = (found.rows || []).map(([name, phase], row) => [[swatch(phase), moduleLink(name), h("span", { class: "faint" }, ` ${phase}`)], ...found.excess.map((times) => cell(times[row]))]);
  const heads = (found.ranks || []).map((rank) => h("span", { class: found.slow.includes(rank) ? "slow" : "" }, `rank ${rank}`));
  return section(
    "ranks",
    "Ranks",
    `${found.world} ranks.${gone} A rank with more work of its own makes the others wait. autoprof ranks has the whole comparison.`,
    found.text ? h("p", { class: found.slow && found.slow.length ? "found wide" : "wide" }, found.text) : null,
    rows.length ? [h("h3", {}, "Excess by module", h("span", { class: "faint" }, " a step, beyond the median of the other ranks")), table(["", ...heads], rows)] : null,
  );
}

function moreSection() {
  const parts = [];
  const add = (title, content, about = "") => parts.push(h("h3", {}, title, h("span", { class: "faint" }, about)), content);
  if (RUN.whatIf.length) {
    const rate = (one) => (one.throughput === undefined ? "–" : `${digits(one.throughput)} ${RUN.unit}/s`);
    const rows = RUN.whatIf.map((one) => [one.change, formatNs(one.step_ns), rate(one), formatBytes(one.memory_bytes), h("span", { class: "faint" }, one.assumed)]);
    add("What if", table(["change", "step", "throughput", "memory", "assumed"], rows, { class: "last-text" }));
  }
  if (RUN.card.unjudged.length) {
    const reasons = new Map();
    for (const [rule, missing] of RUN.card.unjudged) reasons.set(missing, [...(reasons.get(missing) || []), rule]);
    add("Not judged", h("ul", {}, [...reasons].map(([missing, rules]) => h("li", {}, h("b", {}, rules.join(", ")), ` missing: ${missing}`))));
  }
  if (RUN.notes.length) add("Notes", h("ul", {}, RUN.notes.map((note) => h("li", {}, note))));
  const about = [...RUN.about];
  if (!RECORDS) about.push(["records", "none of steps (the sink jsonl writes them), so the page has only the summary"]);
  else if (RECORDS.badLines) about.push(["records", `${plural(RECORDS.badLines, "incomplete line")} of steps.jsonl skipped`]);
  add("This run", facts(about.map(([word, text]) => [word, word === "configuration" ? h("code", {}, text) : text]), "facts wide"));
  return section("more", "More about the run", null, parts);
}
