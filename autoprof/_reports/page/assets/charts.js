// Charts over the steps, drawn by uPlot in the colours of the page, which change with its theme.

const CHARTS = new Set();

function redrawCharts() {
  for (const chart of CHARTS) {
    if (chart.root.isConnected) chart.redraw(false, true);
    else CHARTS.delete(chart);
  }
}

function axis(extra = {}) {
  return {
    stroke: () => css("--faint"),
    grid: { stroke: () => css("--grid"), width: 1 },
    ticks: { stroke: () => css("--grid"), width: 1, size: 4 },
    font: "11px system-ui, sans-serif",
    ...extra,
  };
}

// A chart of columns over the steps. `y` has the scale and unit of the axis; `onHover` and `onPick` take an index. Its
// method `show` replaces the columns, and `unit` is the scale: uPlot has the scaled values, so that its ticks are round.
function makeChart(holder, { data: columns, series, bands, height, y, label, fromZero = true, onHover, onPick, onZoom, hooks = {}, sync }) {
  const width = () => Math.max(holder.clientWidth, 200);
  const [scale, unit] = y;
  const scaled = ([steps, ...rest]) => [steps, ...rest.map((column) => column.map((value) => (value === null ? null : value / scale)))];
  const data = scaled(columns);
  let dragged = false;
  const options = {
    width: width(),
    height,
    legend: { show: false },
    padding: [8, 12, 0, 0],
    cursor: {
      y: false,
      points: { size: 6 },
      drag: { x: true, y: false, dist: 6 },
      sync: sync ? { key: sync, setSeries: false } : undefined,
      bind: {
        mouseup: (plot, _target, handler) => (event) => {
          dragged = plot.select.width > 6;
          return handler(event);
        },
      },
    },
    scales: { x: { time: false }, y: { range: (_plot, low, high) => limits(low, high, fromZero) } },
    axes: [
      axis({ size: 26, values: (_plot, splits) => splits.map((step) => (Number.isInteger(step) ? step.toLocaleString("en") : "")) }),
      axis({ size: 58, values: (_plot, splits) => splits.map((value) => axisValue(value, unit, splits)) }),
    ],
    series: [{}, ...series.map((one) => ({ spanGaps: false, points: { show: data[0].length < 2 }, ...one }))],
    bands,
    hooks: {
      ...hooks,
      setCursor: [(plot) => onHover && onHover(plot.cursor.idx ?? null), ...(hooks.setCursor || [])],
      setScale: [(plot, key) => key === "x" && onZoom && onZoom(plot), ...(hooks.setScale || [])],
    },
  };
  const chart = new uPlot(options, data, holder);
  chart.unit = scale;
  chart.show = (next) => chart.setData(scaled(next), false);
  chart.root.setAttribute("role", "img");
  chart.root.setAttribute("aria-label", label);
  chart.over.addEventListener("click", () => {
    if (!dragged && onPick && chart.cursor.idx !== null && chart.cursor.idx !== undefined) onPick(chart.cursor.idx);
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

function stroke(name) {
  return () => css(name);
}

function faint(color, share) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, ${share})`;
}

function mostOf(...columns) {
  let most = 0;
  for (const column of columns) for (const value of column) if (value > most) most = value;
  return most;
}

// A distribution as bars on a logarithmic axis: the lower edge, the ratio of a bin's edges, the counts.
function histogram([edge, ratio, ...counts], color) {
  const most = Math.max(...counts);
  const bars = counts.map((count, at) => {
    const low = edge * ratio ** at;
    const text = `${formatNs(low)} to ${formatNs(low * ratio)}: ${plural(count, "step")}`;
    return h("span", { title: text }, h("i", { style: { height: `${(100 * count) / most}%`, background: color } }));
  });
  return h(
    "div",
    { class: "histogram", role: "img", "aria-label": "distribution of the time a step" },
    h("div", { class: "bins" }, bars),
    h("div", { class: "ends" }, h("span", {}, formatNs(edge)), h("span", {}, formatNs(edge * ratio ** counts.length))),
  );
}
