// The tree of calls in two forms: by phase (each name below the phase in which it ran) and by module (phases merged).

function makeNode(name, label, phase, total, parent) {
  return { name, label, phase, total, parent, calls: 0, row: -1, children: [], parts: null, path: "" };
}

// Give nodes their places: the longest child first, a label without the parent's name, a path that names the node.
function finish(node, keepOrder = false) {
  if (!keepOrder) node.children.sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1));
  for (const child of node.children) {
    const above = node.name && child.name.startsWith(`${node.name}/`) ? node.name.length + 1 : 0;
    child.label = child.label || (child.name === node.name ? child.phase : child.name.slice(above)) || child.name;
    child.parent = node;
    child.path = `${node.path}~${child.phase || ""}.${child.name}`;
    finish(child);
  }
  return node;
}

// Put siblings that share an unmeasured part of their names below a header: A above A/B and A/C.
function withHeaders(children, above) {
  const measured = new Set(children.map((child) => child.name));
  const prefix = above ? `${above}/` : "";
  const groups = new Map();
  const result = [];
  for (const child of children) {
    const rest = child.name.startsWith(prefix) ? child.name.slice(prefix.length) : child.name;
    const head = rest.includes("/") && child.name.startsWith(prefix) ? prefix + rest.split("/")[0] : null;
    if (head === null || measured.has(head)) result.push(child);
    else if (groups.has(head)) groups.get(head).push(child);
    else groups.set(head, [child]);
  }
  for (const [head, group] of groups) {
    if (group.length === 1) result.push(group[0]);
    else {
      const node = makeNode(head, "", group[0].phase, group.reduce((sum, one) => sum + one.total, 0), null);
      node.header = true;
      node.children = withHeaders(group, head);
      if (group[0].parts) {
        node.parts = new Map();
        for (const one of group) for (const [phase, ns] of one.parts) addPart(node.parts, phase, ns);
      }
      result.push(node);
    }
  }
  return result;
}

function callNodes(run) {
  const { parent, row, ns, calls } = run.tree;
  const nodes = row.map((at, index) => {
    const node = makeNode(run.names[at] || "?", "", run.rows.phase[at] || "other", ns[index], null);
    node.row = at;
    node.calls = calls[index];
    return node;
  });
  nodes.forEach((node, at) => {
    if (parent[at] >= 0) nodes[parent[at]].children.push(node);
  });
  return { nodes, roots: nodes.filter((_, at) => parent[at] < 0) };
}

function headersBelow(node) {
  node.children.forEach(headersBelow);
  node.children = withHeaders(node.children, node.name);
}

function phaseTree(run) {
  const root = makeNode("", "step", null, run.tree.total, null);
  const { roots } = callNodes(run);
  roots.forEach(headersBelow);
  for (const phase of PHASES) {
    const below = roots.filter((node) => node.phase === phase);
    const unnamed = run.tree.model[phase] || 0;
    const total = below.reduce((sum, node) => sum + node.total, unnamed);
    if (!total) continue;
    const node = makeNode("", phase, phase, total, root);
    node.children = withHeaders(below, "");
    if (unnamed) node.children.push(makeNode("", "model (in no name)", phase, unnamed, node));
    const [only] = node.children;
    if (node.children.length === 1 && only.name.toLowerCase() === phase) root.children.push(only);
    else root.children.push(node);
  }
  if (run.tree.other > 0) root.children.push(makeNode("", "other (in no span)", "other", run.tree.other, root));
  return finish(root, true);
}

function addPart(parts, phase, ns) {
  parts.set(phase, (parts.get(phase) || 0) + ns);
}

function moduleTree(run) {
  const root = makeNode("", "step", null, run.tree.total, null);
  root.parts = new Map();
  const { roots } = callNodes(run);
  const place = (node, chain) => {
    const known = chain.find((one) => one.name === node.name);
    let own = chain;
    if (!known) {
      const above = chain[chain.length - 1];
      let merged = above.children.find((one) => one.name === node.name);
      if (!merged) {
        merged = makeNode(node.name, "", null, 0, above);
        merged.parts = new Map();
        above.children.push(merged);
      }
      merged.calls = Math.max(merged.calls, node.calls);
      own = [...chain, merged];
    }
    const self = node.total - node.children.reduce((sum, one) => sum + one.total, 0);
    for (const one of own) addPart(one.parts, node.phase, self);
    node.children.forEach((child) => place(child, own));
  };
  roots.forEach((node) => place(node, [root]));
  for (const [label, phase, ns] of [
    ...Object.entries(run.tree.model).map(([phase, ns]) => [`model (in no name)`, phase, ns]),
    ["other (in no span)", "other", Math.max(run.tree.other, 0)],
  ]) {
    if (!ns) continue;
    addPart(root.parts, phase, ns);
    const known = root.children.find((one) => one.label === label);
    if (known) addPart(known.parts, phase, ns);
    else {
      const node = makeNode("", label, phase, ns, root);
      node.parts = new Map([[phase, ns]]);
      root.children.push(node);
    }
  }
  const total = (node) => {
    node.children.forEach(total);
    node.total = node === root ? run.tree.total : [...node.parts.values()].reduce((sum, ns) => sum + ns, 0);
    node.children = withHeaders(node.children, node.name);
  };
  total(root);
  return finish(root);
}

const TREES = new Map();

function treeOf(run, view) {
  const key = `${run.index} ${view}`;
  if (!TREES.has(key)) TREES.set(key, view === "module" ? moduleTree(run) : phaseTree(run));
  return TREES.get(key);
}

function* walk(node) {
  yield node;
  for (const child of node.children) yield* walk(child);
}

function nodeAt(root, path) {
  for (const node of walk(root)) if (node.path === path) return node;
  return null;
}
