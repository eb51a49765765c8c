// The data of the page. Times are nanoseconds; those of many steps and rows are 32-bit numbers as base64.

const DATA = JSON.parse(document.getElementById("data").textContent);
const RUN = DATA.run;
const ROWS = RUN.rows;
const RECORDS = RUN.records;
const PHASES = Object.keys(DATA.colors);

// The numbers of a text; null where a row did not occur.
function timesOf(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return Array.from(new Float32Array(bytes.buffer), (ns) => (Number.isNaN(ns) ? null : ns));
}

ROWS.all = ROWS.name.map((_, row) => row);
const BY_NAME = new Map();
ROWS.name.forEach((name, row) => BY_NAME.set(name, [...(BY_NAME.get(name) || []), row]));

if (RECORDS) {
  RECORDS.middle = RECORDS.first.map((step, at) => (step + RECORDS.last[at]) / 2);
  // The first column is the length of the steps; the others are the longest rows.
  const bins = RECORDS.first.length;
  const columns = (times) => Array.from({ length: times.length / bins }, (_, at) => times.slice(at * bins, (at + 1) * bins));
  [RECORDS.mean, ...RECORDS.rowMean] = columns(timesOf(RECORDS.mean));
  [RECORDS.most, ...RECORDS.rowMost] = columns(timesOf(RECORDS.most));
}
