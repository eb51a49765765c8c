// Numbers as the reports of the terminal write them.

function digits(value, most = 3) {
  const size = Math.abs(value);
  const places = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return value.toFixed(Math.min(places, most));
}

function formatNs(ns) {
  if (ns === null || ns === undefined) return "–";
  const size = Math.abs(ns);
  for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (size >= 0.9995 * scale) return `${digits(ns / scale)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

// A time of a row; below the resolution of the clock it is only known to be less.
function formatTime(ns, calls = 1) {
  const limit = (RUN.clockLimit || 0) * Math.max(calls, 1);
  return ns && ns < limit ? `<${formatNs(limit)}` : formatNs(ns);
}

function formatChange(ns) {
  return ns === null ? "–" : `${ns > 0 ? "+" : ns < 0 ? "−" : ""}${formatNs(Math.abs(ns))}`;
}

function formatShare(share) {
  if (share === null || share === undefined) return "–";
  const percent = 100 * share;
  return percent && Math.abs(percent) < 0.05 ? "<0.1 %" : `${percent.toFixed(1)} %`;
}

function formatBytes(count) {
  if (count === null || count === undefined) return "–";
  let size = count;
  for (const [unit, places] of [["B", 0], ["KiB", 1], ["MiB", 1], ["GiB", 2]]) {
    if (Math.abs(size) < 1023.95) return `${size.toFixed(places)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(2)} TiB`;
}

function formatCount(count) {
  return Math.abs(count - Math.round(count)) < 0.05 ? Math.round(count).toLocaleString("en") : count.toFixed(1);
}

function formatSpan(ns) {
  const seconds = ns / 1e9;
  if (seconds < 60) return formatNs(ns);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  return `${Math.floor(seconds / 3600)} h ${String(Math.floor((seconds % 3600) / 60)).padStart(2, "0")} min`;
}

function plural(count, word) {
  return `${formatCount(count)} ${word}${count === 1 ? "" : "s"}`;
}

// The scale and unit for an axis that reaches this many nanoseconds.
function timeUnit(most) {
  return most >= 1e9 ? [1e9, "s"] : most >= 1e6 ? [1e6, "ms"] : most >= 1e3 ? [1e3, "µs"] : [1, "ns"];
}

function byteUnit(most) {
  for (const [scale, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (most >= scale) return [scale, unit];
  }
  return [1, "B"];
}
