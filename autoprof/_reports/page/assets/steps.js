// Steps over time: their length, their phases, and the slowest ones to click.

const STEP_CHARTS = { times: null, phases: null, level: null };

const SLOW = 1.25; // a slow step takes this many median steps
const MOST_SLOW = 16;

function levelFor(run, low, high, width) {
  const coarse = [...run.levels].reverse();
  const fits = run.levels.find((level) => {
    const inside = level.middle.filter((step) => step >= low && step <= high).length;
    return inside <= Math.max(1.5 * width, 64);
  });
  return fits || coarse[0];
}

function slowSteps(run) {
  return (run.slow || []).filter((one) => one.ns > SLOW * (run.p50 || 1)).slice(0, MOST_SLOW);
}

function stepSection() {
  if (!RUN.levels || !RUN.levels.length || !RUN.levels[0].middle.length) return null;
  const slow = slowSteps(RUN);
  const recorded = plural(RUN.recorded, "recorded step");
  const about = `${recorded}${RUN.levels[0].stride > 1 ? `, in bins: line p50, band to p95, thin line max` : ""}. Drag to zoom, double-click to see all, click a step to see its parts.`;
  MOUNTED.push(() => mountSteps(slow));
  LISTENERS.push((changed) => changed.has("step") && drawStep());
  return section(
    "steps",
    "Steps over time",
    about,
    PAIR ? h("div", { class: "legend" }, RUNS.map((run) => h("span", {}, h("i", { class: "swatch", style: { background: `var(--${run === RUN ? "accent" : "second"})` } }), `${"AB"[run.index]} ${run.name}`))) : null,
    h("p", { class: "hover faint", id: "step-hover" }, " "),
    h("div", { class: "chart", id: "step-chart" }),
    h("h4", {}, "Phases of a step", h("span", { class: "faint" }, " mean")),
    h("div", { class: "chart", id: "phase-chart" }),
    slow.length
      ? h(
          "div",
          { class: "chips", id: "slow" },
          h("span", { class: "faint" }, "slowest"),
          slow.slice(0, 12).map((one) => h("a", { href: hashFor({ step: one.step }), "data-step": one.step }, `${one.step.toLocaleString("en")} `, h("b", {}, formatNs(one.ns)))),
        )
      : null,
    h("div", { id: "step", class: "panel", hidden: true }),
    scalarCharts(),
  );
}

function stepData(level) {
  const { p50, p95, most } = level.times;
  const others = PAIR && RUNS[1].levels.length ? [otherTimes(level)] : [];
  return [level.middle, most, p95, p50, ...others];
}

// The medians of the other run at the same step numbers.
function otherTimes(level) {
  const other = RUNS[1].levels[RUNS[1].levels.length - 1];
  const { p50 } = other.times;
  let at = 0;
  return level.middle.map((step) => {
    while (at + 1 < other.middle.length && other.first[at + 1] <= step) at++;
    return step < other.first[0] || step > other.last[other.last.length - 1] + 1 ? null : p50[at];
  });
}

function phaseData(level) {
  const names = PHASES.filter((phase) => level.phases.has(phase));
  const stacked = [];
  let below = level.middle.map(() => 0);
  for (const phase of names) {
    below = level.phases.get(phase).map((ns, at) => ns + below[at]);
    stacked.push(below);
  }
  return [names, [level.middle, ...stacked]];
}

function mountSteps(slow) {
  const holder = document.getElementById("step-chart");
  const first = RUN.levels[RUN.levels.length - 1];
  const everything = [RUN.levels[0].first[0], RUN.levels[0].last[RUN.levels[0].last.length - 1]];
  const begin = levelFor(RUN, ...everything, holder.clientWidth) || first;
  STEP_CHARTS.level = begin;
  const markers = slowMarkers(slow);
  const show = (at) => hoverStep(at);
  let busy = false;
  const onZoom = (plot) => {
    const { min, max } = plot.scales.x;
    if (busy || min === null || min === undefined || !STEP_CHARTS.times || !STEP_CHARTS.phases) return;
    busy = true;
    const level = levelFor(RUN, min, max, plot.width);
    const changed = level !== STEP_CHARTS.level;
    STEP_CHARTS.level = level;
    const phases = phaseData(level)[1];
    for (const [chart, data] of [[STEP_CHARTS.times, stepData(level)], [STEP_CHARTS.phases, phases]]) {
      if (changed) chart.show(data);
      if (changed || chart !== plot) chart.setScale("x", { min, max });
    }
    busy = false;
  };
  const data = stepData(begin);
  const binned = RUN.levels[0].stride > 1 || begin.stride > 1;
  const series = [
    { stroke: () => (binned ? faint(css("--accent"), 0.35) : "transparent"), width: 1 },
    { stroke: () => "transparent", width: 1 },
    { stroke: stroke("--accent"), width: 1.5 },
  ];
  if (PAIR && RUNS[1].levels.length) series.push({ stroke: stroke("--second"), width: 1.5 });
  STEP_CHARTS.times = makeChart(holder, {
    data,
    series,
    bands: binned ? [{ series: [2, 3], fill: () => faint(css("--accent"), 0.2) }] : undefined,
    height: 200,
    y: timeUnit(mostOf(data[1])),
    label: "length of the steps",
    onHover: show,
    onPick: (at) => pickStep(at, slow),
    onZoom,
    hooks: { draw: [markers] },
    sync: "steps",
  });
  const [names, stacked] = phaseData(begin);
  const layers = names.map((phase) => ({ stroke: phaseColor(phase), fill: phaseColor(phase), width: 0.5, points: { show: false } }));
  // The highest layer is drawn first, so that each lower one covers its part.
  STEP_CHARTS.phases = makeChart(document.getElementById("phase-chart"), {
    data: stacked,
    series: layers.map((one) => ({ ...one, fill: undefined })),
    bands: names.map((_, at) => ({ series: [at + 1, at], fill: layers[at].fill })).slice(1),
    hooks: { drawSeries: [], drawClear: [(plot) => fillLowest(plot, layers)] },
    height: 150,
    y: timeUnit(mostOf(stacked[stacked.length - 1])),
    label: "phases of the steps",
    onHover: show,
    onPick: (at) => pickStep(at, slow),
    onZoom,
    sync: "steps",
  });
  hoverStep(null);
  drawStep();
}

// The area below the first layer, which has no layer under it to make a band with.
function fillLowest(plot, layers) {
  if (!layers.length) return;
  const { ctx, data } = plot;
  const zero = plot.valToPos(0, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
  ctx.clip();
  ctx.beginPath();
  data[0].forEach((step, at) => {
    const x = plot.valToPos(step, "x", true);
    const y = plot.valToPos(data[1][at], "y", true);
    if (at) ctx.lineTo(x, y);
    else {
      ctx.moveTo(x, zero);
      ctx.lineTo(x, y);
    }
  });
  ctx.lineTo(plot.valToPos(data[0][data[0].length - 1], "x", true), zero);
  ctx.fillStyle = layers[0].fill;
  ctx.fill();
  ctx.restore();
}

// The slowest steps as buttons over the chart, placed again whenever it is drawn.
function slowMarkers(slow) {
  const buttons = slow.map((one) => {
    const button = h("button", { type: "button", class: "marker", "data-step": one.step, "aria-label": `step ${one.step}, ${formatNs(one.ns)}` });
    button.addEventListener("mousedown", (event) => event.stopPropagation());
    button.addEventListener("click", (event) => {
      event.stopPropagation();
      choose({ step: one.step });
    });
    tip(button, () => [h("b", {}, `step ${one.step.toLocaleString("en")}`), h("div", {}, `${formatNs(one.ns)}, usually ${formatNs(RUN.p50)}`)]);
    return button;
  });
  return (plot) => {
    slow.forEach((one, at) => {
      const button = buttons[at];
      if (button.parentNode !== plot.over) plot.over.append(button);
      const { min, max } = plot.scales.x;
      button.hidden = one.step < min || one.step > max;
      button.style.left = `${plot.valToPos(one.step, "x")}px`;
      button.style.top = `${plot.valToPos(one.ns / (plot.unit || timeUnit(mostOf(stepData(STEP_CHARTS.level)[1]))[0]), "y")}px`;
      button.classList.toggle("chosen", one.step === STATE.step);
    });
  };
}

function pickStep(at, slow) {
  const level = STEP_CHARTS.level;
  const inside = slow.filter((one) => one.step >= level.first[at] && one.step <= level.last[at]);
  choose({ step: inside.length ? inside[0].step : level.last[at] });
}

function hoverStep(at) {
  const hover = document.getElementById("step-hover");
  const level = STEP_CHARTS.level;
  if (at === null || !level || at >= level.middle.length) {
    replace(hover, `p50 ${formatNs(RUN.p50)} · p95 ${formatNs(RUN.p95)} · max ${formatNs(RUN.most)}`);
    return;
  }
  const { p50, p95, most } = level.times;
  const times = level.stride > 1 ? `p50 ${formatNs(p50[at])}, p95 ${formatNs(p95[at])}, max ${formatNs(most[at])}` : formatNs(p50[at]);
  const phases = [...level.phases].filter(([, column]) => column[at] > 0.01 * p50[at]).map(([phase, column]) => `${phase} ${formatNs(column[at])}`);
  replace(hover, `${stepsText(level.first[at], level.last[at])}: ${times} · ${phases.join(" · ")}`);
}

// The excess of each row over its usual time, without that of the rows inside it.
function ownExcess(run, values) {
  const excess = values.map((ns, row) => (ns === null ? null : ns - (run.usual(row) ?? 0)));
  const own = [...excess];
  run.rows.parent.forEach((parent, row) => {
    if (parent >= 0 && own[parent] !== null && excess[row] !== null) own[parent] -= excess[row];
  });
  return own;
}

function drawStep() {
  const panel = document.getElementById("step");
  if (!panel) return;
  if (STEP_CHARTS.times) STEP_CHARTS.times.redraw(false, false);
  document.querySelectorAll("#slow a").forEach((one) => one.classList.toggle("chosen", Number(one.dataset.step) === STATE.step));
  panel.hidden = STATE.step === null;
  if (STATE.step === null) return;
  const exact = (RUN.slow || []).find((one) => one.step === STATE.step);
  const level = RUN.levels[0];
  const bin = level.first.findLastIndex((first) => first <= STATE.step);
  if (!exact && (bin < 0 || STATE.step > level.last[bin])) {
    replace(panel, h("p", { class: "note" }, `Step ${STATE.step} was not recorded.`));
    return;
  }
  const single = exact || level.first[bin] === level.last[bin];
  const codes = exact && codesOf(exact.rows);
  const values = exact ? range(RUN.count).map((row) => (row < codes.length ? nsOf(codes[row]) : null)) : RUN.rowsAt(STATE.step);
  const phases = exact ? new Map(Object.entries(exact.phases)) : new Map([...level.phases].map(([phase, column]) => [phase, column[bin]]));
  const length = exact ? exact.ns : level.times.p50[bin];
  const title = single ? `Step ${STATE.step.toLocaleString("en")}` : `Steps ${level.first[bin].toLocaleString("en")} to ${level.last[bin].toLocaleString("en")}, medians`;
  const own = values ? ownExcess(RUN, values) : [];
  const rows = range(own.length).filter((row) => own[row] !== null && RUN.rows.lane[row] === 0 && Math.abs(own[row]) > 0.002 * length).sort((a, b) => own[b] - own[a]);
  const longest = Math.max(...rows.map((row) => Math.abs(own[row])), 1);
  const shown = rows.slice(0, 8);
  replace(
    panel,
    h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => choose({ step: null }) }, "×"),
    h("h3", {}, title, h("span", { class: "faint" }, ` ${formatNs(length)}, ${formatChange(length - RUN.p50)} against the median step${exact ? ` · ${new Date(exact.start).toLocaleTimeString()}` : ""}`)),
    h(
      "div",
      { class: "split" },
      h("div", {}, h("h4", {}, "Phases"), phaseDifferences(phases)),
      h(
        "div",
        {},
        h("h4", {}, "Longer than usual", h("span", { class: "faint" }, " without the names inside")),
        shown.length && own[shown[0]] > 0
          ? table(
              ["name", "phase", "here", "usually", "longer by", ""],
              shown.filter((row) => own[row] > 0).map((row) => [moduleLink(RUN.names[row]), [swatch(RUN.rows.phase[row]), RUN.rows.phase[row]], formatNs(values[row]), formatNs(RUN.usual(row)), formatChange(own[row]), bar(own[row] / longest, phaseColor(RUN.rows.phase[row]))]),
            )
          : h("p", { class: "faint" }, values ? "No name took longer than usual: the difference is in the phases." : "There are no rows for this step."),
      ),
    ),
  );
}

function phaseDifferences(phases) {
  const steps = Math.max(RUN.steps, 1);
  const usual = new Map(RUN.phases.map(([phase, ns]) => [phase, ns / steps]));
  const names = PHASES.filter((phase) => phases.get(phase) || usual.get(phase));
  const most = Math.max(...names.map((phase) => phases.get(phase) || 0), 1);
  return table(
    ["phase", "here", "mean step", "difference", ""],
    names.map((phase) => {
      const here = phases.get(phase) || 0;
      return [[swatch(phase), phase], formatNs(here), formatNs(usual.get(phase) || 0), formatChange(here - (usual.get(phase) || 0)), bar(here / most, phaseColor(phase))];
    }),
  );
}

// Logged scalars (loss, learning rate) over the steps, so that a slow step is seen beside them.
function scalarCharts() {
  const { steps, series } = RUN.scalars || { steps: [], series: {} };
  const names = Object.keys(series || {}).slice(0, 6);
  if (!names.length || steps.length < 2) return null;
  const at = sums(steps);
  const holders = names.map((name) => h("div", {}, h("h4", {}, name), h("div", { class: "chart" })));
  MOUNTED.push(() =>
    holders.forEach((holder, index) =>
      makeChart(holder.lastChild, { data: [at, series[names[index]]], series: [{ stroke: stroke("--ink"), width: 1.2, spanGaps: true }], height: 110, y: [1, ""], fromZero: false, label: names[index], onPick: (point) => choose({ step: at[point] }) }),
    ),
  );
  return h("details", { class: "scalars" }, h("summary", {}, `Logged values: ${names.join(", ")}`), h("div", { class: "grid" }, holders));
}
