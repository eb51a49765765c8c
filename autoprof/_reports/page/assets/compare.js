// Two runs side by side: step, phases and rows with their changes and confidence intervals.

function compareSection() {
  if (!PAIR) return null;
  const { comparison } = DATA;
  const names = h("p", {}, h("b", { class: "run-a" }, "A "), RUNS[0].name, h("br"), h("b", { class: "run-b" }, "B "), RUNS[1].name);
  if (comparison.reason) return section("compare", "Two runs", null, names, h("p", { class: "note" }, comparison.reason));
  const rows = [...comparison.whole, ...comparison.phases.map((one) => ({ ...one, name: "" }))];
  const different = comparison.rows.filter((one) => one.verdict !== "same");
  return section(
    "compare",
    "Two runs",
    "B against A: medians of their steps, and the change with its 95 % confidence interval.",
    names,
    changeTable(rows),
    h("h3", {}, "Modules", h("span", { class: "faint" }, ` ${plural(different.length, "row")} of ${comparison.rows.length} differ or are inconclusive; largest difference first`)),
    comparison.rows.length ? changeTable([...different, ...comparison.rows.filter((one) => one.verdict === "same")].slice(0, 40)) : null,
    comparison.memory.length ? [h("h3", {}, "Memory"), changeTable(comparison.memory.slice(0, 12))] : null,
    unpaired("Only in B", comparison.added),
    unpaired("Only in A", comparison.removed),
    comparison.differences.length
      ? [h("h3", {}, "Settings that differ"), table(["key", "A", "B"], comparison.differences.map((one) => [one.key, one.a.join(", "), one.b.join(", ")]), { class: "text" })]
      : null,
    comparison.notes.length ? h("ul", { class: "faint" }, comparison.notes.map((note) => h("li", {}, note))) : null,
  );
}

function changeTable(rows) {
  const widest = Math.max(...rows.map((one) => Math.abs((one.ratio ?? 1) - 1)), 0.05);
  return table(
    ["", "phase", "A", "B", "change", "95 % interval", "", "verdict"],
    rows.map((one) => {
      const format = one.unit === "ns" ? formatNs : one.unit === "bytes" ? formatBytes : (value) => (value === null ? "–" : `${digits(value)} ${one.unit}`);
      const percent = (ratio) => (ratio === null ? "–" : `${ratio >= 1 ? "+" : "−"}${Math.abs(100 * (ratio - 1)).toFixed(1)} %`);
      const interval = one.low === null || one.high === null ? "–" : `${percent(one.low)} to ${percent(one.high)}`;
      return [
        RUN.byName.has(one.name) ? moduleLink(one.name) : one.name.replace(/_bytes$/, "").replaceAll("_", " "),
        one.phase ? [swatch(one.phase), one.phase] : "",
        format(one.a),
        format(one.b),
        percent(one.ratio),
        interval,
        changeBar(one, widest),
        h("span", { class: `verdict ${one.verdict}`, title: one.why }, one.verdict),
      ];
    }),
    { class: "changes" },
  );
}

// The interval as a bar around no change: left is less, right is more.
function changeBar(one, widest) {
  if (one.ratio === null) return "";
  const at = (ratio) => 50 + 50 * Math.max(-1, Math.min(1, (ratio - 1) / widest));
  const low = at(one.low ?? one.ratio);
  const high = at(one.high ?? one.ratio);
  return h("span", { class: `change-bar ${one.verdict}` }, h("i", { style: { left: `${low}%`, width: `${Math.max(high - low, 1.5)}%` } }), h("b", { style: { left: `${at(one.ratio)}%` } }));
}

function unpaired(title, rows) {
  if (!rows.length) return null;
  return [h("h3", {}, title), table(["name", "phase", "time a step", "share"], rows.slice(0, 20).map((one) => [one.name, [swatch(one.phase), one.phase], formatNs(one.ns), formatShare(one.share)]))];
}
