// The excess of each rank over the median of the others: by step, and by module. A cell is as strong as its excess.

const WIDE_CELLS = 12;
const LOW_ROWS = 16;

function rankExcess(found) {
  if (!found) return null;
  if (!found.ranks) return h("p", { class: "note" }, found.text);
  const ranks = found.ranks.map((rank) => `rank ${rank}`);
  const steps = found.steps.map((step, at) => stepsOf(found, at));
  const bySteps = heatMap({
    label: "Excess of each rank by step",
    rows: ranks.map((name) => h("span", {}, name)),
    names: ranks,
    heads: [],
    columns: steps,
    values: found.byStep,
    slow: found.ranks.map((rank) => found.slow.includes(rank)),
    pick: (_row, column) => choose({ step: found.steps[column] }),
  });
  const byRows = heatMap({
    label: "Excess of each rank by module",
    rows: found.rows.map(([name, phase]) => h("span", {}, swatch(phase), moduleLink(name), h("span", { class: "faint" }, ` ${phase}`))),
    names: found.rows.map(([name, phase]) => `${name} ${phase}`),
    heads: found.ranks.map(String),
    columns: ranks,
    values: found.rows.map((_, row) => found.byRow.map((times) => times[row])),
    slow: found.rows.map(() => false),
    pick: (row) => choose({ module: found.rows[row][0] }),
  });
  const key = h(
    "p",
    { class: "faint small" },
    h("i", { class: "swatch", style: { background: css("--second") } }),
    "longer than the median of the other ranks ",
    h("i", { class: "swatch", style: { background: css("--accent"), marginLeft: "12px" } }),
    "shorter; arrows move, Enter opens",
  );
  const more = found.hidden ? h("p", { class: "faint" }, `and ${plural(found.hidden, "more rank")} with less excess`) : null;
  return h(
    "div",
    { id: "rank-excess" },
    h("p", { class: found.slow.length ? "found wide" : "wide" }, found.text),
    h("h3", {}, "Who is late, and when", h("span", { class: "faint" }, ` own work beyond the others' in ${plural(found.compared, "step")} that all recorded`)),
    bySteps,
    h("div", { class: "heat-ends faint", style: { maxWidth: `${260 + steps.length * 30}px` } }, h("span", {}, `step ${found.steps[0].toLocaleString("en")}`), h("span", {}, steps[steps.length - 1])),
    h("h3", {}, "In which module", h("span", { class: "faint" }, " mean excess a step, by rank")),
    byRows,
    key,
    more,
  );
}

function stepsOf(found, at) {
  const first = found.steps[at];
  const next = found.steps[at + 1];
  const several = found.compared > found.steps.length && next !== undefined;
  return several ? `steps ${first.toLocaleString("en")} to ${(next - 1).toLocaleString("en")}` : `step ${first.toLocaleString("en")}`;
}

// A grid of cells that is walked by the arrow keys: one cell has the focus. Values are microseconds.
function heatMap({ label, rows, names, heads, columns, values, slow, pick }) {
  const most = Math.max(...values.map((row) => Math.max(...row.map(Math.abs))), 1);
  const wide = heads.length > 0 && columns.length <= WIDE_CELLS;
  const cells = values.map((row, at) =>
    row.map((us, column) => {
      const text = formatChange(1000 * us);
      const cell = h("div", { class: `cell ${us < 0 ? "less" : "more"}${Math.abs(us) > 0.6 * most ? " strong" : ""}`, role: "gridcell", tabindex: -1, "aria-label": `${names[at]}, ${columns[column]}: ${text}` }, h("i", { style: { opacity: (Math.abs(us) / most).toFixed(3) } }), wide ? h("span", {}, text) : null);
      tip(cell, () => [h("b", {}, names[at]), h("div", {}, columns[column]), h("div", {}, text)]);
      cell.addEventListener("click", () => pick(at, column));
      return cell;
    }),
  );
  const grid = h(
    "div",
    {
      class: `heat${values.length > LOW_ROWS ? " low" : ""}`,
      role: "grid",
      "aria-label": label,
      style: { gridTemplateColumns: `max-content repeat(${columns.length}, minmax(${wide ? 74 : 3}px, 1fr))`, maxWidth: `${260 + columns.length * (wide ? 110 : 30)}px` },
    },
    heads.length ? h("div", { class: "heat-row", role: "row" }, h("span", {}), heads.map((head, at) => h("span", { class: "heat-head", role: "columnheader", "aria-label": columns[at] }, columns.length <= 32 || at % 8 === 0 ? (wide ? columns[at] : head) : ""))) : null,
    cells.map((row, at) => h("div", { class: "heat-row", role: "row" }, h("span", { class: `heat-name${slow[at] ? " slow" : ""}`, role: "rowheader" }, rows[at]), row)),
  );
  if (cells.length && cells[0].length) cells[0][0].tabIndex = 0;
  grid.addEventListener("keydown", (event) => {
    const row = cells.findIndex((one) => one.includes(document.activeElement));
    if (row < 0) return;
    const column = cells[row].indexOf(document.activeElement);
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter") pick(row, column);
    else if (move && cells[row + move[0]] && cells[row + move[0]][column + move[1]]) {
      cells[row][column].tabIndex = -1;
      const next = cells[row + move[0]][column + move[1]];
      next.tabIndex = 0;
      next.focus();
    } else if (!move) return;
    event.preventDefault();
    event.stopPropagation();
  });
  return h("div", { class: "scroll" }, grid);
}
