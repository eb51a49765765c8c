// Search by parts of a name or of a module's path.

const HITS = 12;

function searchIndex() {
  const entries = new Map();
  for (const run of RUNS) {
    run.names.forEach((name, row) => {
      const known = entries.get(name) || { name, text: "", total: 0, paths: new Set() };
      known.total = Math.max(known.total, run.rows.total_ns[row] || 0);
      if (run.fqns[row]) known.paths.add(run.fqns[row]);
      entries.set(name, known);
    });
  }
  return [...entries.values()]
    .map((one) => ({ ...one, text: [one.name, ...one.paths].join("\n").toLowerCase() }))
    .sort((a, b) => b.total - a.total);
}

function mountSearch() {
  const input = document.getElementById("search");
  const list = document.getElementById("hits");
  const index = searchIndex();
  let found = [];
  let at = 0;
  const draw = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length ? index.filter((one) => words.every((word) => one.text.includes(word))) : [];
    const more = found.length - HITS;
    replace(
      list,
      found.slice(0, HITS).map((one, position) =>
        h("li", { role: "option", id: `hit-${position}`, "aria-selected": String(position === at), onmousedown: (event) => (event.preventDefault(), take(position)) }, h("span", { class: "hit-name" }, one.name), h("span", { class: "faint" }, formatShare(one.total / Math.max(RUN.total, 1)))),
      ),
      more > 0 ? h("li", { class: "faint", role: "presentation" }, `and ${formatCount(more)} more: type more of the name`) : null,
      words.length && !found.length ? h("li", { class: "faint", role: "presentation" }, "no module has this in its name") : null,
    );
    list.hidden = !words.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    input.setAttribute("aria-activedescendant", found.length ? `hit-${at}` : "");
  };
  const take = (position) => {
    const one = found[position];
    if (!one) return;
    input.value = "";
    input.blur();
    draw();
    const node = [...walk(treeOf(RUN, STATE.view))].filter((node) => node.name === one.name).sort((a, b) => b.total - a.total)[0];
    choose({ module: one.name, zoom: node && node.parent ? node.parent.path || null : STATE.zoom });
    document.getElementById("module")?.scrollIntoView({ block: "nearest" });
  };
  input.addEventListener("input", () => ((at = 0), draw()));
  input.addEventListener("focus", draw);
  input.addEventListener("blur", () => ((list.hidden = true), input.setAttribute("aria-expanded", "false")));
  input.addEventListener("keydown", (event) => {
    const count = Math.min(found.length, HITS);
    if (event.key === "ArrowDown" && count) at = (at + 1) % count;
    else if (event.key === "ArrowUp" && count) at = (at + count - 1) % count;
    else if (event.key === "Enter") return take(at);
    else if (event.key === "Escape") return (input.value = ""), draw(), input.blur();
    else return;
    event.preventDefault();
    draw();
  });
}
