// The data of the page, and its codes: a duration is a 16-bit number on a logarithmic scale (see codes.py).

const DATA = JSON.parse(document.getElementById("data").textContent);
const PER_NAT = 2000;
const PHASES = Object.keys(DATA.colors);
const PAIR = DATA.runs.length > 1;

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

function range(count) {
  return Array.from({ length: count }, (_, at) => at);
}

// One run, its columns decoded when they are first needed.
class Run {
  constructor(data, index) {
    Object.assign(this, data);
    this.data = data;
    this.index = index;
    const rows = data.rows;
    this.count = rows.name.length;
    this.names = rows.name.map((at) => rows.texts[at]);
    this.fqns = rows.fqn.map((at) => (at < 0 ? null : rows.texts[at]));
    this.byName = new Map();
    this.names.forEach((name, at) => {
      if (!this.byName.has(name)) this.byName.set(name, []);
      this.byName.get(name).push(at);
    });
    this.levels = (data.levels || []).map((level) => new Level(level));
    if (data.history) {
      this.historyFirst = sums(data.history.first);
      this.historyLast = sums(data.history.last);
    }
  }

  get rowHistory() {
    if (!this._history) {
      const { p50, p95, most } = this.data.history;
      const median = codesOf(p50);
      this._history = { p50: median, p95: p95 ? codesOf(p95) : median, most: most ? codesOf(most) : median };
    }
    return this._history;
  }

  // The history of a row: medians, 95th percentiles and maxima in nanoseconds; null where it has none.
  historyOf(row) {
    const bins = this.historyFirst ? this.historyFirst.length : 0;
    if (!bins || row >= this.data.history.rows) return null;
    const part = (codes) => Array.from(codes.subarray(row * bins, (row + 1) * bins), nsOf);
    const { p50, p95, most } = this.rowHistory;
    return { p50: part(p50), p95: part(p95), most: part(most) };
  }

  // The medians of all rows in the bin that holds a step.
  rowsAt(step) {
    const bins = this.historyFirst ? this.historyFirst.length : 0;
    const bin = this.historyFirst ? this.historyFirst.findLastIndex((first) => first <= step) : -1;
    if (bin < 0) return null;
    const { p50 } = this.rowHistory;
    return range(this.count).map((row) => (row < this.data.history.rows ? nsOf(p50[row * bins + bin]) : null));
  }

  // The usual time of a row: its median over the run.
  usual(row) {
    const known = this.rows.p50_ns[row];
    if (known !== null && known !== undefined) return known;
    const bars = this.histograms && this.histograms[row];
    if (!bars || bars.length < 3) return null;
    const counts = bars.slice(2);
    let left = counts.reduce((sum, one) => sum + one, 0) / 2;
    const at = counts.findIndex((one) => (left -= one) <= 0);
    return bars[0] * bars[1] ** (at + 0.5);
  }
}

// The steps at one resolution.
class Level {
  constructor(data) {
    this.stride = data.stride;
    this.first = sums(data.first);
    this.last = sums(data.last);
    this.middle = this.first.map((first, at) => (first + this.last[at]) / 2);
    this.data = data;
  }

  get times() {
    if (!this._times) {
      const median = Array.from(codesOf(this.data.p50), nsOf);
      const { p95, most } = this.data;
      this._times = {
        p50: median,
        p95: p95 ? Array.from(codesOf(p95), nsOf) : median,
        most: most ? Array.from(codesOf(most), nsOf) : median,
      };
    }
    return this._times;
  }

  get phases() {
    if (!this._phases) {
      this._phases = new Map(
        PHASES.filter((phase) => phase in this.data.phases).map((phase) => [
          phase,
          Array.from(codesOf(this.data.phases[phase]), (code) => nsOf(code) || 0),
        ]),
      );
    }
    return this._phases;
  }
}

const RUNS = DATA.runs.map((data, index) => new Run(data, index));
const RUN = RUNS[0];
