// The panel of one module: its phases, its time over the steps, its distribution, memory, shapes and findings.

function largestModule() {
  const found = RUN.card.findings.find((one) => one.name && RUN.byName.has(one.name));
  if (found) return found.name;
  const rows = range(RUN.count).filter((row) => RUN.rows.lane[row] === 0 && RUN.fqns[row] !== null);
  const longest = (rows.length ? rows : range(RUN.count)).sort((a, b) => (RUN.rows.self_ns[b] || 0) - (RUN.rows.self_ns[a] || 0));
  return longest.length ? RUN.names[longest[0]] : null;
}

function drawModule() {
  const panel = document.getElementById("module");
  if (!panel) return;
  const name = STATE.module || largestModule();
  const runs = RUNS.filter((run) => run.byName.has(name));
  if (!name || !runs.length) {
    replace(panel, STATE.module ? h("p", { class: "note" }, `No module of this run is called ${STATE.module}. Search with / for a part of its name.`) : "");
    panel.hidden = !STATE.module;
    return;
  }
  panel.hidden = false;
  const fqns = [...new Set(runs.flatMap((run) => run.byName.get(name).map((row) => run.fqns[row])).filter(Boolean))];
  replace(
    panel,
    h("h3", {}, name, fqns.length && fqns[0] !== name ? h("code", { class: "fqn" }, fqns[0]) : null),
    RUN.card.findings.filter((one) => one.name === name).map((one) => h("p", { class: `found ${one.severity}` }, h("b", {}, one.rule), " ", one.why)),
    runs.map((run) => [PAIR ? h("h4", {}, `${"AB"[run.index]}  ${run.name}`) : null, phaseTable(run, name)]),
    runs.map((run) => (run.historyFirst ? historyPanel(run, name) : h("p", { class: "faint" }, "There are no records of steps, so there is no history."))),
    memoryFacts(runs[0], name),
    shapesOf(runs[0], name),
  );
  for (const run of runs) if (run.historyFirst) mountHistory(panel, run, name);
}

// The rows of a name, in the order of the phases.
function inOrder(run, name) {
  const place = (row) => PHASES.indexOf(run.rows.phase[row]);
  return [...run.byName.get(name)].sort((a, b) => place(a) - place(b));
}

function phaseTable(run, name) {
  const rows = inOrder(run, name);
  const { calls, steps, mean_ns: mean, p50_ns: p50, p95_ns: p95, max_ns: most, self_ns: self, share, lane, phase } = run.rows;
  const known = rows.filter((row) => mean[row] !== null && mean[row] !== undefined);
  if (!known.length) return h("p", { class: "faint" }, "Its rows are of steps that were recorded with other targets; they have a history only.");
  const partial = known.some((row) => steps[row] !== run.steps);
  const heads = ["phase", "share", "mean", "p50", "p95", "max", "self", "calls a step", ...(partial ? ["in steps"] : [])];
  return table(
    heads,
    known.map((row) => [
      h("span", {}, swatch(phase[row]), phase[row], lane[row] > 0 ? " (other thread or stream)" : lane[row] < 0 ? " (logged)" : ""),
      formatShare(share[row]),
      ...[mean[row], p50[row], p95[row], most[row]].map((ns) => formatTime(ns, calls[row] / Math.max(steps[row], 1))),
      formatNs(self[row] / Math.max(steps[row], 1)),
      formatCount(calls[row] / Math.max(steps[row], 1)),
      ...(partial ? [`${steps[row].toLocaleString("en")} of ${run.steps.toLocaleString("en")}`] : []),
    ]),
  );
}

function historyPanel(run, name) {
  const bars = inOrder(run, name).filter((row) => (run.histograms[row] || []).length > 2);
  const title = `Over the steps${PAIR ? ` of ${"AB"[run.index]}` : ""}`;
  return h(
    "div",
    { class: "split" },
    h("div", {}, h("h4", {}, title), h("p", { class: "hover faint", id: `module-hover-${run.index}` }, " "), h("div", { class: "chart", id: `module-chart-${run.index}` })),
    h(
      "div",
      {},
      h("h4", {}, "Distribution of its time a step"),
      bars.map((row) => {
        const phase = run.rows.phase[row];
        return h("div", { class: "distribution" }, h("span", { class: "faint" }, swatch(phase), phase), histogram(run.histograms[row], phaseColor(phase)));
      }),
    ),
  );
}

function mountHistory(panel, run, name) {
  const holder = panel.querySelector(`#module-chart-${run.index}`);
  const found = inOrder(run, name).map((row) => [row, run.historyOf(row)]).filter(([, one]) => one);
  if (!found.length) {
    replace(holder, h("p", { class: "faint" }, "This page has no room for the histories of the shortest rows."));
    return;
  }
  const middle = run.historyFirst.map((first, at) => (first + run.historyLast[at]) / 2);
  const binned = run.data.history.stride > 1;
  const data = [middle];
  const series = [];
  const bands = [];
  for (const [row, one] of found) {
    const phase = run.rows.phase[row];
    const color = phaseColor(phase);
    data.push(one.p95, one.p50);
    series.push({ stroke: faint(color, binned ? 0.35 : 0), width: 1 }, { stroke: () => lineColor(phase), width: 1.5 });
    if (binned) bands.push({ series: [data.length - 2, data.length - 1], fill: faint(color, 0.18) });
  }
  const y = timeUnit(mostOf(...data.slice(1)));
  const hover = panel.querySelector(`#module-hover-${run.index}`);
  const about = binned ? `line: p50, band: to p95, of ${plural(run.data.history.stride, "recorded step")} a bin` : "each recorded step";
  const show = (at) => {
    if (at === null) return replace(hover, about);
    const parts = found.map(([row, one]) => `${run.rows.phase[row]} ${formatNs(one.p50[at])}${binned ? ` (p95 ${formatNs(one.p95[at])}, max ${formatNs(one.most[at])})` : ""}`);
    return replace(hover, `${stepsText(run.historyFirst[at], run.historyLast[at])}: ${parts.join(" · ")}`);
  };
  show(null);
  makeChart(holder, { data, series, bands, height: 220, y, label: "time of the module over the steps", onHover: show, onPick: (at) => run === RUN && choose({ step: run.historyLast[at] }) });
}

function stepsText(first, last) {
  return first === last ? `step ${first.toLocaleString("en")}` : `steps ${first.toLocaleString("en")} to ${last.toLocaleString("en")}`;
}

function memoryFacts(run, name) {
  const row = run.memory.names.find((one) => one.name === name);
  if (!row) return null;
  const facts = [["parameters", row.parameter_bytes], ["gradients", row.gradient_bytes], ["optimizer state", row.state_bytes], ["growth in forward", row.activation_bytes], ["peak", row.peak_bytes]];
  const known = facts.filter(([, value]) => value !== undefined);
  return known.length ? h("p", {}, h("b", {}, "Memory "), known.map(([word, value]) => `${word} ${formatBytes(value)}`).join(" · ")) : null;
}

function shapesOf(run, name) {
  const sets = run.shapes.filter(([one]) => one === name);
  if (!sets.length) return null;
  return h("div", {}, h("h4", {}, "Shapes"), sets.slice(0, 4).map(([, step, inputs, outputs]) => h("p", {}, h("span", { class: "faint" }, `from step ${step} `), h("code", {}, `${inputs} → ${outputs}`))));
}
