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

// As wide as its longest label.
function labelWidth(plot, labels) {
  if (!labels) return 50;
  plot.ctx.save();
  plot.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  const widest = Math.max(...labels.map((label) => plot.ctx.measureText(label).width)) / devicePixelRatio;
  plot.ctx.restore();
  return Math.ceil(widest) + 16;
}

// A chart of columns over the steps. `y` has the scale and unit of the axis: uPlot gets scaled values, so that its
// ticks are round. `onHover` and `onPick` get an index.
function makeChart(holder, { data, series, bands, height, y, label, fromZero = true, onHover, onPick, sync, drawClear }) {
  const [scale, unit] = y;
  const [steps, ...columns] = data;
  const width = () => Math.max(holder.clientWidth, 200);
  let dragged = false;
  const release = (plot, _target, handler) => (event) => {
    dragged = plot.select.width > 6;
    return handler(event);
  };
  const options = {
    width: width(),
    height,
    legend: { show: false },
    padding: [8, 12, 0, 0],
    cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false, dist: 6 }, sync: sync ? { key: sync, setSeries: false } : undefined, bind: { mouseup: release } },
    scales: { x: { time: false }, y: { range: (_plot, low, high) => limits(low, high, fromZero) } },
    axes: [
      axis({ size: 26, values: (_plot, splits) => splits.map((step) => (Number.isInteger(step) ? step.toLocaleString("en") : "")) }),
      axis({ size: labelWidth, values: (_plot, splits) => splits.map((value) => axisValue(value, unit, splits)) }),
    ],
    series: [{}, ...series.map((one) => ({ spanGaps: false, points: { show: steps.length < 2 }, ...one }))],
    bands,
    hooks: { setCursor: [(plot) => onHover && onHover(plot.cursor.idx ?? null)], drawClear: [shadeUnrecorded, ...(drawClear ? [drawClear] : [])] },
  };
  const scaled = columns.map((column) => column.map((value) => (value === null ? null : value / scale)));
  const chart = new uPlot(options, [steps, ...scaled], holder);
  chart.root.setAttribute("role", "img");
  chart.root.setAttribute("aria-label", label);
  chart.over.addEventListener("click", () => {
    if (!dragged && onPick && Number.isInteger(chart.cursor.idx)) onPick(chart.cursor.idx);
    dragged = false;
  });
  new ResizeObserver(() => {
    if (holder.clientWidth && Math.abs(holder.clientWidth - chart.width) > 1) chart.setSize({ width: width(), height });
  }).observe(holder);
  CHARTS.add(chart);
  return chart;
}

function limits(low, high, fromZero) {
  if (low === null || high === null || low === undefined) return [0, 1];
  if (fromZero || low < 0.6 * high) return [Math.min(0, low), high > 0 ? 1.06 * high : 1];
  const room = Math.max(0.08 * (high - low), 0.002 * Math.abs(high), 1e-12);
  return [low - room, high + room];
}

function axisValue(value, unit, splits) {
  const step = splits.length > 1 ? Math.abs(splits[1] - splits[0]) : 1;
  let places = 0;
  while (places < 4 && Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) > 1e-6) places++;
  return `${value.toFixed(places)}${unit ? ` ${unit}` : ""}`;
}

// Shade the steps for which a chart has no value, and say so where there is room.
function shadeUnrecorded(plot) {
  const { ctx, data, bbox } = plot;
  const { min, max } = plot.scales.x;
  const known = data[0].filter((_, at) => data.slice(1).some((column) => (column[at] ?? null) !== null));
  const gaps = known.slice(1).map((step, at) => step - known[at]).sort((a, b) => a - b);
  const usual = gaps.length ? gaps[gaps.length >> 1] : 1;
  const edges = [Math.min(data[0][0], known[0] ?? max), ...known, data[0][data[0].length - 1]];
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  for (let at = 1; at < edges.length; at++) {
    const [from, to] = [Math.max(edges[at - 1], min), Math.min(edges[at], max)].map((step) => plot.valToPos(step, "x", true));
    if (edges[at] - edges[at - 1] <= 4 * usual || to - from < 24 * devicePixelRatio) continue;
    ctx.fillStyle = css("--raised");
    ctx.fillRect(from, bbox.top, to - from, bbox.height);
    ctx.fillStyle = css("--faint");
    if (to - from > 80 * devicePixelRatio) ctx.fillText("not recorded", (from + to) / 2, bbox.top + bbox.height / 2);
  }
  ctx.restore();
}
