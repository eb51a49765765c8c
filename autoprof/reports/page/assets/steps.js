// Steps over time: their length, their phases, and the slowest ones to click.

const SLOW = 1.25; // a slow step takes this many median steps

function stepSection() {
  if (!RECORDS) return null;
  const slow = RECORDS.slow.filter((one) => one.ns > SLOW * (RUN.p50 || 1));
  const times = h("div", { class: "chart", id: "step-chart" });
  const phases = h("div", { class: "chart", id: "phase-chart" });
  MOUNTED.push(() => mountSteps(times, phases, slow));
  LISTENERS.push((changed) => changed.has("step") && drawStep());
  const chips = slow.map((one) => h("a", { href: hashFor({ step: one.step }), "data-step": one.step }, `${one.step.toLocaleString("en")} `, h("b", {}, formatNs(one.ns))));
  const binned = RECORDS.stride > 1 ? ", in bins: line mean, band to max" : "";
  return section(
    "steps",
    "Steps over time",
    `${plural(RECORDS.recorded, "recorded step")} of ${RUN.allSteps.toLocaleString("en")}${binned}. Drag to zoom, double-click to see all, click a step to see its parts.`,
    times,
    h("h4", {}, "Phases of a step", h("span", { class: "faint" }, " mean")),
    phases,
    chips.length ? h("div", { class: "chips", id: "slow" }, h("span", { class: "faint" }, "slowest"), chips) : null,
    h("div", { id: "step", class: "panel", hidden: true }),
  );
}

function mountSteps(times, phases, slow) {
  const { first, last, mean, most } = RECORDS;
  const names = PHASES.filter((phase) => RECORDS.phases[phase].some((ns) => ns > 0));
  const onPick = (at) => {
    const inside = slow.find((one) => one.step >= first[at] && one.step <= last[at]);
    choose({ step: inside ? inside.step : last[at] });
  };
  const shared = { onPick, sync: "steps" };
  makeChart(times, { ...shared, ...bandTo([["length", css("--accent"), most, mean]]), height: 200, y: timeUnit(most), label: "length of the steps" });
  // Each phase with those below it, the whole first: a smaller area covers the lower part of a larger one.
  const sums = [];
  for (const phase of names) sums.unshift(RECORDS.phases[phase].map((ns, at) => ns + (sums.length ? sums[0][at] : 0)));
  makeChart(phases, {
    ...shared,
    columns: sums,
    series: names.toReversed().map((phase) => ({ label: phase, stroke: phaseColor(phase), fill: phaseColor(phase), width: 0.5, value: (_plot, _value, _series, at) => formatNs(RECORDS.phases[phase][at]) })),
    height: 150,
    y: timeUnit(...sums),
    label: "phases of the steps",
  });
  drawStep();
}

// The excess of each row over its median, without that of the rows inside it; null where it did not occur.
function ownExcess(values) {
  const excess = values.map((ns, row) => (ns === null ? null : ns - ROWS.p50_ns[row]));
  const own = [...excess];
  ROWS.parent.forEach((parent, row) => {
    if (parent >= 0 && own[parent] !== null && excess[row] !== null) own[parent] -= excess[row];
  });
  return own;
}

function drawStep() {
  const panel = document.getElementById("step");
  if (!panel) return;
  document.querySelectorAll("#slow a").forEach((one) => one.classList.toggle("chosen", Number(one.dataset.step) === STATE.step));
  panel.hidden = STATE.step === null;
  if (STATE.step === null) return;
  const exact = RECORDS.slow.find((one) => one.step === STATE.step);
  const bin = RECORDS.first.findLastIndex((first) => first <= STATE.step);
  if (!exact && (bin < 0 || STATE.step > RECORDS.last[bin])) {
    replace(panel, h("p", { class: "note" }, `Step ${STATE.step} was not recorded.`));
    return;
  }
  const values = exact ? timesOf(exact.rows) : RECORDS.rowMean.map((column) => column[bin]);
  const phases = new Map(PHASES.map((phase) => [phase, exact ? exact.phases[phase] || 0 : RECORDS.phases[phase][bin]]));
  const length = exact ? exact.ns : RECORDS.mean[bin];
  const isSingle = exact || RECORDS.first[bin] === RECORDS.last[bin];
  const words = isSingle ? stepsText(STATE.step, STATE.step) : `${stepsText(RECORDS.first[bin], RECORDS.last[bin])}, means`;
  const when = exact ? ` · ${new Date(exact.start).toLocaleTimeString()}` : "";
  replace(
    panel,
    h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => choose({ step: null }) }, "×"),
    h("h3", {}, `${words[0].toUpperCase()}${words.slice(1)}`, h("span", { class: "faint" }, ` ${formatNs(length)}, ${formatChange(length - RUN.p50)} against the median step${when}`)),
    h("div", { class: "split" }, h("div", {}, h("h4", {}, "Phases"), phaseDifferences(phases)), h("div", {}, h("h4", {}, "Longer than usual", h("span", { class: "faint" }, " without the names inside")), longerRows(values, length))),
  );
}

function longerRows(values, length) {
  const own = ownExcess(values);
  const rows = ROWS.all.filter((row) => ROWS.lane[row] === 0 && own[row] > 0.002 * length).sort((a, b) => own[b] - own[a]).slice(0, 8);
  if (!rows.length) return h("p", { class: "faint" }, "No name took longer than usual: the difference is in the phases.");
  return table(
    ["name", "phase", "here", "usually", "longer by"],
    rows.map((row) => {
      const phase = ROWS.phase[row];
      return [moduleLink(ROWS.name[row]), [swatch(phase), phase], formatNs(values[row]), formatNs(ROWS.p50_ns[row]), formatChange(own[row])];
    }),
  );
}

function phaseDifferences(phases) {
  const usual = new Map(RUN.phases.map(([phase, ns]) => [phase, ns / Math.max(RUN.steps, 1)]));
  const names = PHASES.filter((phase) => phases.get(phase) || usual.get(phase));
  return table(
    ["phase", "here", "mean step", "difference"],
    names.map((phase) => {
      const [here, mean] = [phases.get(phase), usual.get(phase) || 0];
      return [[swatch(phase), phase], formatNs(here), formatNs(mean), formatChange(here - mean)];
    }),
  );
}
