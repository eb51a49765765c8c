// The data of the page, and its codes: a duration is a 16-bit number on a logarithmic scale (see history.py).

const DATA = JSON.parse(document.getElementById("data").textContent);
const RUN = DATA.run;
const ROWS = RUN.rows;
const RECORDS = RUN.records;
const PHASES = Object.keys(DATA.colors);
const PER_NAT = 2000;

function codesOf(text) {
  const raw = atob(text);
  const codes = new Uint16Array(raw.length / 2);
  for (let at = 0; at < codes.length; at++) codes[at] = raw.charCodeAt(2 * at) | (raw.charCodeAt(2 * at + 1) << 8);
  return codes;
}

// Nanoseconds of a code; null where a row did not occur.
function nsOf(code) {
  return code === 0 ? null : code === 1 ? 0 : Math.exp((code - 2) / PER_NAT);
}

function sums(differences) {
  let sum = 0;
  return differences.map((one) => (sum += one));
}

function middles(first, last) {
  return first.map((step, at) => (step + last[at]) / 2);
}

ROWS.names = ROWS.name.map((at) => ROWS.texts[at]);
ROWS.fqns = ROWS.fqn.map((at) => (at < 0 ? null : ROWS.texts[at]));
ROWS.all = ROWS.names.map((_, row) => row);
const BY_NAME = new Map();
ROWS.names.forEach((name, row) => BY_NAME.set(name, [...(BY_NAME.get(name) || []), row]));

if (RECORDS) {
  for (const part of [RECORDS, RECORDS.rows]) {
    part.first = sums(part.first);
    part.last = sums(part.last);
    part.middle = middles(part.first, part.last);
    part.p50 = codesOf(part.p50);
    part.p95 = codesOf(part.p95);
  }
  RECORDS.p50 = Array.from(RECORDS.p50, nsOf);
  RECORDS.p95 = Array.from(RECORDS.p95, nsOf);
}

// The history of a row: medians and 95th percentiles in nanoseconds; null where the page has none.
function historyOf(row) {
  if (!RECORDS || row >= RECORDS.rows.kept) return null;
  const bins = RECORDS.rows.first.length;
  const part = (codes) => Array.from(codes.subarray(row * bins, (row + 1) * bins), nsOf);
  return { p50: part(RECORDS.rows.p50), p95: part(RECORDS.rows.p95) };
}

// The medians of all rows in the bin that holds a step.
function rowsAt(step) {
  const { first, kept, p50 } = RECORDS.rows;
  const bin = first.findLastIndex((one) => one <= step);
  return ROWS.all.map((row) => (row < kept ? nsOf(p50[row * first.length + bin]) : null));
}
