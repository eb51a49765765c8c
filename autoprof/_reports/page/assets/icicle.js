// The icicle: a block for each name, as wide as its time, below the name around it. A click zooms.

const ROW_PX = 23;
const LEAST_PX = 2;

class Icicle {
  constructor(run, onHint) {
    this.run = run;
    this.blocks = new Map();
    this.onHint = onHint;
    this.holder = h("div", { class: "icicle", role: "tree", "aria-label": `Time of a step by module, run ${run.name}` });
    this.holder.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => {
      if (this.width && Math.abs(this.holder.clientWidth - this.width) > 1) this.draw();
    }).observe(this.holder);
  }

  get root() {
    return treeOf(this.run, STATE.view);
  }

  get focus() {
    return (STATE.zoom && nodeAt(this.root, STATE.zoom)) || this.root;
  }

  draw() {
    this.width = this.holder.clientWidth;
    const { focus } = this;
    const shown = new Map();
    const shorts = [];
    const above = [];
    for (let node = focus.parent; node; node = node.parent) above.unshift(node);
    above.forEach((node, depth) => shown.set(node, [0, this.width, depth, "above"]));
    let deepest = above.length;
    const place = (node, left, width, depth) => {
      shown.set(node, [left, width, depth, ""]);
      deepest = Math.max(deepest, depth);
      let at = left;
      const short = [];
      for (const child of node.children) {
        const size = node.total ? (width * child.total) / node.total : 0;
        if (size >= LEAST_PX) place(child, at, size, depth + 1);
        else short.push(child);
        at += size;
      }
      const end = left + (node.total ? (width * node.children.reduce((sum, one) => sum + one.total, 0)) / node.total : 0);
      const size = short.reduce((sum, one) => sum + one.total, 0) * (node.total ? width / node.total : 0);
      if (size >= LEAST_PX) {
        shorts.push([end - size, size, depth + 1, short]);
        deepest = Math.max(deepest, depth + 1);
      }
    };
    if (focus.total) place(focus, 0, this.width, above.length);
    for (const [node, block] of this.blocks) {
      if (!shown.has(node)) {
        block.remove();
        this.blocks.delete(node);
      }
    }
    this.holder.style.height = `${(deepest + 1) * ROW_PX}px`;
    for (const [node, [left, width, depth, kind]] of shown) this.place(node, left, width, depth, kind);
    this.placeShort(shorts);
    this.order = [...shown.keys()];
    const current = this.order.find((node) => node.name && node.name === STATE.module) || focus;
    for (const [node, block] of this.blocks) block.tabIndex = node === current ? 0 : -1;
  }

  place(node, left, width, depth, kind) {
    let block = this.blocks.get(node);
    if (!block) {
      block = h("div", { role: "treeitem", "aria-label": this.describe(node) }, h("span", {}, node.label));
      block.addEventListener("click", () => this.pick(node));
      tip(block, () => this.hint(node));
      this.blocks.set(node, block);
      this.holder.append(block);
      const color = this.fill(node);
      block.style.background = color;
      if (!color.startsWith("linear")) block.style.color = node.phase ? inkOn(phaseColor(node.phase)) : "";
    }
    block.className = `block ${kind} ${node.phase || node.parts ? "" : "plain"} ${node.parts ? "mixed" : ""}`;
    block.classList.toggle("chosen", node.name !== "" && node.name === STATE.module);
    block.classList.toggle("header", Boolean(node.header));
    Object.assign(block.style, {
      left: `${left}px`,
      width: `${Math.max(width - 1, 1)}px`,
      top: `${depth * ROW_PX}px`,
    });
    block.classList.toggle("narrow", width < Math.min(6.4 * node.label.length + 12, 46));
  }

  // The names too short for blocks of their own, which are last among their siblings, as one hatched block.
  placeShort(shorts) {
    this.holder.querySelectorAll(".short").forEach((one) => one.remove());
    for (const [left, width, depth, nodes] of shorts) {
      const block = h("div", { class: "short", "aria-hidden": "true", style: { left: `${left}px`, width: `${width}px`, top: `${depth * ROW_PX}px` } });
      const total = nodes.reduce((sum, one) => sum + one.total, 0) / Math.max(this.run.tree.steps, 1);
      tip(block, () => [h("b", {}, plural(nodes.length, "short name")), h("div", {}, `${formatNs(total)} a step together; zoom to see them`)]);
      block.addEventListener("click", () => this.pick(nodes[0].parent));
      this.holder.append(block);
    }
  }

  // In the tree by module a block has a strip with its phases, in the order of a step.
  fill(node) {
    if (!node.parts) return node.phase ? phaseColor(node.phase) : "";
    let at = 0;
    const stops = [];
    for (const phase of PHASES) {
      const ns = node.parts.get(phase) || 0;
      if (ns <= 0 || !node.total) continue;
      const end = at + (100 * ns) / node.total;
      stops.push(`${phaseColor(phase)} ${at.toFixed(2)}% ${end.toFixed(2)}%`);
      at = end;
    }
    return stops.length ? `linear-gradient(90deg, ${stops.join(", ")}) bottom / 100% 5px no-repeat` : "";
  }

  perStep(node) {
    return node.total / Math.max(this.run.tree.steps, 1);
  }

  describe(node) {
    const phase = node.phase && node.phase !== node.label ? `, ${node.phase}` : "";
    return `${node.label}${phase}: ${formatNs(this.perStep(node))} a step, ${formatShare(node.total / this.root.total)}`;
  }

  hint(node) {
    const steps = Math.max(this.run.tree.steps, 1);
    const inside = node.children.reduce((sum, one) => sum + one.total, 0);
    const facts = [
      ["a step", `${formatTime(this.perStep(node), node.calls / steps)} · ${formatShare(node.total / this.root.total)}`],
    ];
    if (node.children.length && node !== this.root) facts.push(["self", formatNs((node.total - inside) / steps)]);
    if (node.calls) facts.push(["calls a step", formatCount(node.calls / steps)]);
    if (node.parts) {
      for (const phase of PHASES) {
        const ns = node.parts.get(phase);
        if (ns > 0) facts.push([[swatch(phase), phase], formatNs(ns / steps)]);
      }
    }
    return [
      h("b", {}, node.name || node.label),
      node.phase && node.phase !== node.label ? h("div", {}, swatch(node.phase), node.phase) : null,
      h("dl", {}, facts.map(([word, text]) => [h("dt", {}, word), h("dd", {}, text)])),
    ].filter(Boolean);
  }

  pick(node) {
    document.getElementById("tip").hidden = true;
    const zoom = node === this.root ? null : node.children.length || node === this.focus ? node.path : STATE.zoom;
    const named = node.name && !node.header && this.run.byName.has(node.name);
    choose({ zoom: node === this.focus && node.parent && STATE.module === node.name ? node.parent.path || null : zoom, module: named ? node.name : STATE.module });
  }

  onKey(event) {
    const node = this.order.find((one) => this.blocks.get(one) === document.activeElement);
    if (!node) return;
    const siblings = node.parent ? node.parent.children.filter((one) => this.blocks.has(one)) : [node];
    const at = siblings.indexOf(node);
    const target = {
      ArrowUp: () => node.parent,
      ArrowDown: () => node.children.find((one) => this.blocks.has(one)),
      ArrowLeft: () => siblings[at - 1],
      ArrowRight: () => siblings[at + 1],
    }[event.key];
    if (target) {
      event.preventDefault();
      this.move(target());
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pick(node);
      this.move(node);
    }
  }

  move(node) {
    const block = node && this.blocks.get(node);
    if (!block) return;
    for (const one of this.blocks.values()) one.tabIndex = -1;
    block.tabIndex = 0;
    block.focus();
  }
}

function treeSection() {
  const icicles = RUNS.filter((run) => run.tree.total > 0).map((run) => new Icicle(run));
  if (!icicles.length) return null;
  const crumbs = h("div", { class: "crumbs" });
  const switches = ["phase", "module"].map((view) =>
    h("button", { type: "button", "data-view": view, onclick: () => choose({ view, zoom: null }) }, `by ${view}`),
  );
  const detail = h("div", { id: "module", class: "panel" });
  const draw = () => {
    switches.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.view === STATE.view)));
    icicles.forEach((one) => one.draw());
    const [{ focus, root }] = icicles;
    const path = [];
    for (let node = focus; node; node = node.parent) path.unshift(node);
    replace(
      crumbs,
      path.length > 1
        ? path.flatMap((node, at) => [
            at ? " › " : "",
            h("a", { href: hashFor({ zoom: node === root ? null : node.path }) }, node.label),
          ])
        : h("span", { class: "faint" }, "click a block to zoom; arrows and Enter work too"),
    );
  };
  LISTENERS.push((changed) => {
    if (changed.has("view")) icicles.forEach((one) => (one.blocks.forEach((block) => block.remove()), one.blocks.clear()));
    if (changed.has("view") || changed.has("zoom") || changed.has("module")) draw();
  });
  MOUNTED.push(draw);
  const steps = plural(RUN.tree.steps, "recorded step");
  return section(
    "tree",
    "Where a step goes",
    `A block is as wide as its mean time in ${steps}; the blocks below it ran inside it, longest first.${RUN.phases.some(([phase]) => phase === "recompute") ? " Recompute runs inside backward." : ""}`,
    h("div", { class: "controls" }, h("div", { class: "switch", role: "group", "aria-label": "Order" }, switches), crumbs),
    phaseLegend(),
    icicles.map((one) => [PAIR ? h("h3", { class: "run-name" }, `${"AB"[one.run.index]}  ${one.run.name}`) : null, one.holder]),
    detail,
  );
}

function phaseLegend() {
  const total = Math.max(RUN.total, 1);
  return h(
    "div",
    { class: "legend" },
    RUN.phases.map(([phase, ns]) => h("span", {}, swatch(phase), phase, " ", h("b", {}, formatShare(ns / total)))),
  );
}
