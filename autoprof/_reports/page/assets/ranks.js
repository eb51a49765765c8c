// The ranks of a run: their phases side by side, and their steps over time.

const RANK_COLORS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#7b4fa3"];

function rankSection() {
  const { ranks, missing, world, hidden } = RUN.ranks;
  if (world <= 1 && ranks.length <= 1) return null;
  const most = Math.max(...ranks.map((one) => one.mean), 1);
  const rows = ranks.map((one) => {
    const parts = PHASES.filter((phase) => one.phases[phase] > 0);
    const strip = h("span", { class: "meter wide" }, parts.map((phase) => h("span", { style: { width: `${(100 * one.phases[phase]) / most}%`, background: phaseColor(phase) } })));
    tip(strip, () => [h("b", {}, `rank ${one.rank}`), h("dl", {}, parts.map((phase) => [h("dt", {}, swatch(phase), phase), h("dd", {}, formatNs(one.phases[phase]))]))]);
    const own = one.mean - (one.phases.comm || 0) - (one.phases.other || 0);
    return [`rank ${one.rank}`, one.steps.toLocaleString("en"), formatNs(one.mean), formatNs(own), formatNs(one.phases.comm || 0), strip];
  });
  const holder = h("div", { class: "chart" });
  MOUNTED.push(() => mountRanks(holder, ranks));
  const gone = missing.length ? ` There are no records of rank${missing.length > 1 ? "s" : ""} ${missing.join(", ")}.` : "";
  return section(
    "ranks",
    "Ranks",
    `${world} ranks.${gone} A rank with more work of its own makes the others wait.`,
    rankExcess(RUN.ranks.excess),
    table(["rank", "steps", "mean step", "without comm and other", "comm", "phases"], rows, { class: "last-text" }),
    hidden ? h("p", { class: "faint" }, `and ${plural(hidden, "more rank")} that this page leaves out`) : null,
    ranks.length > 1 ? [h("h3", {}, "Steps of each rank", h("span", { class: "faint" }, " mean")), h("div", { class: "legend" }, ranks.slice(0, 8).map((one, at) => h("span", {}, h("i", { class: "swatch", style: { background: RANK_COLORS[at % 8] } }), `rank ${one.rank}`))), holder] : null,
  );
}

function mountRanks(holder, ranks) {
  const shown = ranks.slice(0, 8).filter((one) => one.bins.length);
  if (shown.length < 2) return;
  const tables = shown.map((one) => [sums(one.first), one.bins]);
  const data = uPlot.join(tables);
  makeChart(holder, {
    data,
    series: shown.map((_, at) => ({ stroke: RANK_COLORS[at % 8], width: 1.5, spanGaps: true })),
    height: 150,
    y: timeUnit(mostOf(...data.slice(1))),
    fromZero: false,
    label: "steps of each rank",
  });
}
