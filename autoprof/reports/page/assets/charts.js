// Charts over the steps, drawn by uPlot in the colours of the page.

const CHARTS = new Set();

function redrawCharts() {
  CHARTS.forEach((chart) => (chart.root.isConnected ? chart.redraw(false, true) : CHARTS.delete(chart)));
}

function stroke(name) {
  return () => css(name);
}

function faint(color, share) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, ${share})`;
}

// The scale and unit for an axis that reaches the largest value of these columns.
function timeUnit(...columns) {
  return unitOf([[1e9, "s"], [1e6, "ms"], [1e3, "µs"]], columns, "ns");
}

function byteUnit(...columns) {
  return unitOf([[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]], columns, "B");
}

function unitOf(units, columns, smallest) {
  const most = columns.reduce((largest, column) => column.reduce((one, value) => Math.max(one, value), largest), 0);
  return units.find(([scale]) => most >= scale) || [1, smallest];
}

function axis(extra) {
  const color = { stroke: stroke("--grid"), width: 1 };
  return { stroke: stroke("--faint"), grid: color, ticks: { ...color, size: 4 }, font: "11px system-ui, sans-serif", ...extra };
}

// For each name, colour, maxima and means a line; where a bin has several steps, a band from the means to the maxima.
function bandTo(entries) {
  const line = ([label, color]) => ({ label, stroke: color, width: 1.5 });
  if (RECORDS.stride === 1) return { columns: entries.map(([, , , mean]) => mean), series: entries.map(line) };
  return {
    columns: entries.flatMap(([, , most, mean]) => [most, mean]),
    series: entries.flatMap(([label, color]) => [{ label: `${label} max`, stroke: faint(color, 0.35), width: 1 }, line([label, color])]),
    bands: entries.map(([, color], at) => ({ series: [2 * at + 1, 2 * at + 2], fill: faint(color, 0.2) })),
  };
}

// Where no column has a value, as pairs of steps; where a line spans gaps, only those at the ends.
function stepsWithout(steps, columns, spans) {
  const found = [];
  let from = null;
  steps.forEach((step, at) => {
    const empty = columns.every((column) => column[at] === null);
    if (empty && from === null) from = Math.max(at - 1, 0);
    if (from === null || (empty && at < steps.length - 1)) return;
    if (!spans || !from || empty) found.push([steps[from], step]);
    from = null;
  });
  return found;
}

// Say it where there is room for the words.
function markAbsent(plot, absent) {
  const clip = (step) => Math.min(Math.max(plot.valToPos(step, "x"), 0), plot.over.clientWidth);
  const marks = absent.map((steps) => steps.map(clip)).filter(([left, right]) => right - left > 64);
  plot.over.querySelectorAll(".absent").forEach((one) => one.remove());
  plot.over.append(...marks.map(([left, right]) => h("div", { class: "absent", style: { left: `${left}px`, width: `${right - left}px` } }, "nothing recorded")));
}

// A chart of columns over the steps; series with labels are in a legend that has the values at the pointer. `y` has the
// scale and unit of the axis: uPlot gets scaled values, so that its ticks are round. `onPick` gets an index.
function makeChart(holder, { columns, series, bands, height, y, label, fromZero = true, onPick, sync }) {
  const [scale, unit] = y;
  // The axis reaches to the last step of the run, recorded or not.
  const bins = RECORDS.middle.length;
  const end = Math.max(RUN.allSteps, RECORDS.last[bins - 1]);
  const beyond = end > RECORDS.middle[bins - 1];
  const steps = beyond ? [...RECORDS.middle, end] : RECORDS.middle;
  const drawn = beyond ? columns.map((column) => [...column, null]) : columns;
  const absent = stepsWithout(steps, drawn, series.some((one) => one.spanGaps));
  const hovered = (_plot, _value, _series, at) => (at in RECORDS.first ? stepsText(RECORDS.first[at], RECORDS.last[at]) : "–");
  const width = () => Math.max(holder.clientWidth, 200);
  let dragged = false;
  const release = (plot, _target, handler) => (event) => {
    dragged = plot.select.width > 6;
    return handler(event);
  };
  const options = {
    width: width(),
    height,
    legend: { show: series.some((one) => one.label) },
    padding: [8, 12, 0, 0],
    cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false, dist: 6 }, sync: sync ? { key: sync, setSeries: false } : undefined, bind: { mouseup: release } },
    scales: { x: { time: false }, y: fromZero ? { range: (_plot, _low, high) => [0, 1.06 * high || 1] } : {} },
    axes: [
      axis({ size: 26, values: (_plot, splits) => splits.map((step) => (Number.isInteger(step) ? step.toLocaleString("en") : "")) }),
      axis({ size: 84, values: (_plot, splits) => splits.map((value) => `${Number(value.toPrecision(6))} ${unit}`) }),
    ],
    series: [{ label: "at", value: hovered }, ...series.map((one) => ({ spanGaps: false, points: { show: bins < 2 }, value: (_plot, value) => formatNs(value === null ? null : value * scale), ...one }))],
    bands,
    hooks: { draw: [(plot) => markAbsent(plot, absent)] },
  };
  const scaled = drawn.map((column) => column.map((value) => (value === null ? null : value / scale)));
  const chart = new uPlot(options, [steps, ...scaled], holder);
  chart.root.setAttribute("role", "img");
  chart.root.setAttribute("aria-label", label);
  chart.over.addEventListener("click", () => {
    if (!dragged && onPick && chart.cursor.idx < bins) onPick(chart.cursor.idx);
    dragged = false;
  });
  new ResizeObserver(() => {
    if (holder.clientWidth && Math.abs(holder.clientWidth - chart.width) > 1) chart.setSize({ width: width(), height });
  }).observe(holder);
  CHARTS.add(chart);
  return chart;
}
