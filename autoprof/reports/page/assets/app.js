// The page: its sections in order, and the search.

// Functions that draw what needs a place on the page first.
const MOUNTED = [];
const TITLES = { card: "Verdict", tree: "Tree", steps: "Steps", memory: "Memory", text: "All figures" };

const SECTIONS = [cardSection, treeSection, stepSection, memorySection, textSection].map((make) => make()).filter(Boolean);
replace(document.getElementById("main"), SECTIONS);
replace(document.getElementById("nav"), SECTIONS.map((one) => h("button", { type: "button", onclick: () => one.scrollIntoView() }, TITLES[one.id])));
replace(document.getElementById("footer"), `written by autoprof ${DATA.version} at ${DATA.written} · charts by uPlot 1.6.32 (MIT licence) · this page loads nothing from any network`);

// The browser's own list of suggestions: any part of a name or of a module's path.
const SEARCH = document.getElementById("search");
replace(document.getElementById("names"), [...BY_NAME].map(([name, rows]) => h("option", { value: name }, rows.map((row) => ROWS.fqn[row]).find(Boolean) || "")));
SEARCH.addEventListener("change", () => {
  const words = SEARCH.value.toLowerCase();
  const name = BY_NAME.has(SEARCH.value) ? SEARCH.value : [...BY_NAME.keys()].find((one) => one.toLowerCase().includes(words));
  if (!words) return;
  const node = [...walk(TREE)].find((one) => one.name === name);
  choose({ module: name || SEARCH.value, zoom: (node && node.parent && node.parent.key) || null });
  document.getElementById("module")?.scrollIntoView({ block: "nearest" });
  SEARCH.value = "";
});

addEventListener("hashchange", applyHash);
addEventListener("popstate", applyHash);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
applyHash();
MOUNTED.forEach((mount) => mount());
if (STATE.module) document.getElementById("tree")?.scrollIntoView();
else if (STATE.step !== null) document.getElementById("steps")?.scrollIntoView();
document.documentElement.dataset.ready = "yes";
