// The sections without a choice: verdict, memory, the full report.

const MEMORY_COLORS = { allocated: "#0072b2", reserved: "#e69f00", peak: "#d55e00", rss: "#009e73", "rss peak": "#56b4e9" };

function cardSection() {
  const [first, ...others] = RUN.findings;
  const card = new Map(RUN.card);
  const ended = new Map(RUN.about).get("ended");
  const title = (card.get("Verdict") || (RUN.empty ? "No figures" : "No verdict: no rule was judged")).replace(/^\[(critical|warning|note)\] /, "");
  const badge = first ? h("span", { class: `badge ${first.severity}` }, first.severity) : null;
  const line = (word, text) => (text ? h("p", { class: "why" }, h("b", {}, `${word} `), text) : null);
  const left = [
    h("p", { class: "eyebrow" }, RUN.name, " · ", RUN.headline.replace(/^autoprof: /, "")),
    h("h1", { id: "card-title" }, badge, first && BY_NAME.has(first.name) ? moduleLink(first.name, title) : title),
    ended.startsWith("closed") ? null : line("How the run ended", ended),
    RUN.empty ? h("p", {}, `${RUN.empty}.`) : null,
    line("Why", card.get("Why")),
    line("Next", card.get("Next")),
    line("Measured", card.get("Measured")),
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
  const gain = one.gain_ns ? ` · up to ${formatNs(one.gain_ns)} a step` : "";
  const place = [one.name, one.phase, one.rank === null ? null : `rank ${one.rank}`].filter(Boolean).join(" ");
  const head = h("summary", {}, h("span", { class: `badge ${one.severity}` }, one.severity), h("b", {}, one.rule), ` ${place}`, h("span", { class: "faint" }, gain));
  const link = BY_NAME.has(one.name) ? h("p", {}, moduleLink(one.name, `Show ${one.name}`)) : null;
  return h("details", {}, head, h("p", {}, h("b", {}, "Why "), one.why), h("p", {}, h("b", {}, "Next "), one.next), link);
}

function memorySection() {
  const series = RECORDS ? Object.entries(RECORDS.memory) : [];
  if (!series.length) return null;
  const color = (kind) => MEMORY_COLORS[kind] || "#7f7f7f";
  const holder = h("div", { class: "chart", id: "memory-chart" });
  const columns = series.map(([, values]) => values);
  const lines = series.map(([kind]) => ({ stroke: color(kind), width: 1.5, spanGaps: true, dash: kind.includes("peak") ? [6, 4] : undefined }));
  MOUNTED.push(() => makeChart(holder, { columns, series: lines, height: 170, y: byteUnit(...columns), fromZero: false, label: "memory over the steps", onPick: (at) => choose({ step: RECORDS.last[at] }) }));
  const legend = series.map(([kind, values]) => h("span", {}, swatch("", color(kind)), kind, " ", h("b", {}, formatBytes(values.findLast((value) => value !== null)))));
  return section("memory", "Memory", "Readings at the end of each step; of several steps, the largest. The axis may not start at zero.", h("div", { class: "legend" }, legend), holder);
}

// The full report, as the terminal has it, and the facts of the run.
function textSection() {
  const about = [...RUN.about];
  if (!RECORDS) about.push(["records", "none of steps (the sink jsonl writes them), so the page has only the summary"]);
  else if (RECORDS.badLines) about.push(["records", `${plural(RECORDS.badLines, "incomplete line")} of steps.jsonl skipped`]);
  return section("text", "All figures", "The full report, as autoprof show --full prints it.", h("pre", {}, RUN.text), h("h3", {}, "This run"), facts(about));
}
