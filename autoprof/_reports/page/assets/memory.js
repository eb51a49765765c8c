// Memory over the steps, and by name.

const MEMORY_COLORS = { allocated: "#0072b2", reserved: "#e69f00", peak: "#d55e00", rss: "#009e73", "rss peak": "#56b4e9" };
const MEMORY_PARTS = [["parameter_bytes", "parameters", "#0072b2"], ["gradient_bytes", "gradients", "#e69f00"], ["state_bytes", "optimizer state", "#009e73"], ["activation_bytes", "growth in forward", "#cc79a7"]];
const MEMORY_NAMES = 24;

function memorySection() {
  const { memory } = RUN;
  const { steps, series } = memory.history || { steps: [], series: {} };
  const kinds = Object.keys(series || {}).filter((kind) => kind !== "inactive split" && series[kind].some((value) => value !== null));
  const names = memory.names.filter((one) => MEMORY_PARTS.some(([part]) => one[part] > 0));
  if (!kinds.length && !names.length && !Object.keys(memory.last).length) return null;
  const holder = h("div", { class: "chart", id: "memory-chart" });
  if (kinds.length && steps.length) {
    MOUNTED.push(() => {
      const at = sums(steps);
      makeChart(holder, {
        data: [at, ...kinds.map((kind) => series[kind])],
        series: kinds.map((kind) => ({ stroke: MEMORY_COLORS[kind] || "#7f7f7f", width: 1.5, spanGaps: true, dash: kind.includes("peak") ? [6, 4] : undefined })),
        height: 170,
        y: byteUnit(mostOf(...kinds.map((kind) => series[kind]))),
        fromZero: false,
        label: "memory over the steps",
        onPick: (point) => choose({ step: at[point] }),
      });
    });
  }
  return section(
    "memory",
    "Memory",
    kinds.length ? "Readings at the end of each step; of several steps, the largest. The axis may not start at zero." : null,
    h("div", { class: "legend" }, kinds.map((kind) => h("span", {}, h("i", { class: "swatch", style: { background: MEMORY_COLORS[kind] || "#7f7f7f" } }), kind, " ", h("b", {}, formatBytes(memory.last[kind]))))),
    kinds.length ? holder : null,
    wholeMemory(memory.whole),
    names.length ? memoryTable(names) : null,
    Object.entries(memory.unmeasured).length ? h("ul", { class: "faint small" }, Object.entries(memory.unmeasured).map(([what, reason]) => h("li", {}, `${what}: unmeasured, ${reason}`))) : null,
  );
}

function wholeMemory(whole) {
  if (!whole) return null;
  const parts = [...MEMORY_PARTS.slice(0, 3), ["buffer_bytes", "buffers"], ["peak_bytes", "peak"]].filter(([part]) => whole[part] !== undefined);
  return parts.length ? h("p", { class: "wide" }, h("b", {}, "The whole model "), parts.map(([part, word]) => `${word} ${formatBytes(whole[part])}`).join(" · ")) : null;
}

function memoryTable(names) {
  const parts = MEMORY_PARTS.filter(([part]) => names.some((one) => one[part] > 0));
  const sum = (one) => parts.reduce((bytes, [part]) => bytes + Math.max(one[part] || 0, 0), 0);
  const sorted = [...names].sort((a, b) => sum(b) - sum(a));
  const most = Math.max(sum(sorted[0]), 1);
  const rows = sorted.slice(0, MEMORY_NAMES).map((one) => [
    moduleLink(one.name),
    ...parts.map(([part]) => formatBytes(one[part])),
    h("span", { class: "meter wide" }, parts.map(([part, , color]) => h("span", { style: { width: `${(100 * Math.max(one[part] || 0, 0)) / most}%`, background: color } }))),
  ]);
  const heads = ["name", ...parts.map(([, word, color]) => h("span", {}, h("i", { class: "swatch", style: { background: color } }), word)), ""];
  return [
    h("h3", {}, "By name", h("span", { class: "faint" }, " a name includes the modules in it")),
    table(heads, rows),
    sorted.length > MEMORY_NAMES ? h("p", { class: "faint" }, `and ${plural(sorted.length - MEMORY_NAMES, "more name")} with less`) : null,
  ];
}
