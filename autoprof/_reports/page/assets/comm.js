// The communication of this rank: the parts of a step, and each kind of communication.

const COMM_COLORS = { compute: "#0072b2", exposed: "#d55e00", idle: "#e69f00" };
const COMM_ROWS = 24;

function commSection() {
  const found = RUN.communication;
  if (!found) return null;
  const words = Object.keys(COMM_COLORS);
  const strip = h("span", { class: "meter wide" }, words.map((word) => h("span", { style: { width: `${(100 * found.parts[word]) / Math.max(found.step, 1)}%`, background: COMM_COLORS[word] } })));
  tip(strip, () => [h("b", {}, "mean step"), h("dl", {}, words.map((word) => [h("dt", {}, h("i", { class: "swatch", style: { background: COMM_COLORS[word] } }), word), h("dd", {}, formatNs(found.parts[word]))]))]);
  const rows = found.rows.slice(0, COMM_ROWS).map((one) => [
    one.kind,
    one.group,
    one.phase,
    one.calls.toLocaleString("en"),
    one.message === null ? "-" : formatBytes(one.message),
    one.time === null ? "-" : formatNs(one.time),
    formatNs(one.exposed),
    one.bus,
  ]);
  return section(
    "communication",
    "Communication",
    `${found.text}.`,
    strip,
    rows.length ? table(["kind", "group", "phase", "calls a step", "message", "time a step", "exposed", "bus at least"], rows) : null,
    found.rows.length > COMM_ROWS ? h("p", { class: "faint" }, `and ${plural(found.rows.length - COMM_ROWS, "more row")} with less`) : null,
    found.unassigned ? h("p", { class: "faint" }, `${formatNs(found.unassigned)} of the exposed time are in no row: no end or begin was seen.`) : null,
    found.note ? h("p", { class: "faint" }, `${found.note}.`) : null,
  );
}
