// The page: its sections in order, its keys, its theme.

// Functions that draw what needs a place on the page first.
const MOUNTED = [];
const KEYS = [
  ["/", "search a module"],
  ["m", "tree by module, or by phase"],
  ["arrows", "move in the tree; Enter zooms"],
  ["Esc", "zoom out, or close"],
  ["j k", "next, previous slow step"],
  ["1 – 9", "go to a section"],
  ["t", "light or dark"],
  ["?", "these keys"],
];

function mountSections() {
  const main = document.getElementById("main");
  const sections = [cardSection(), compareSection(), treeSection(), stepSection(), memorySection(), lineSection(), commSection(), rankSection(), lastStateSection(), moreSection()].filter(Boolean);
  replace(main, sections);
  const titles = { card: "Verdict", compare: "Compare", tree: "Tree", steps: "Steps", memory: "Memory", lines: "Lines", communication: "Communication", ranks: "Ranks", last: "Last states", more: "More" };
  replace(
    document.getElementById("nav"),
    sections.map((one) => h("button", { type: "button", onclick: () => one.scrollIntoView() }, titles[one.id])),
  );
  replace(document.getElementById("footer"), `written by autoprof ${DATA.version} at ${DATA.written} · charts by uPlot 1.6.32 (MIT licence) · this page loads nothing from any network`);
  return sections;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  redrawCharts();
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function mountKeys(sections) {
  const dialog = document.getElementById("keys");
  replace(dialog, h("h2", {}, "Keys"), h("dl", { class: "facts" }, KEYS.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])), h("form", { method: "dialog" }, h("button", {}, "Close")));
  const help = () => (dialog.open ? dialog.close() : dialog.showModal());
  const theme = () => setTheme(isDark() ? "light" : "dark");
  document.getElementById("help").addEventListener("click", help);
  document.getElementById("theme").addEventListener("click", theme);
  document.getElementById("brand").addEventListener("click", (event) => (event.preventDefault(), scrollTo(0, 0)));
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea")) return;
    const slow = slowSteps(RUN);
    const at = slow.findIndex((one) => one.step === STATE.step);
    if (event.key === "/") event.preventDefault(), document.getElementById("search").focus();
    else if (event.key === "?") help();
    else if (event.key === "t") theme();
    else if (event.key === "m") choose({ view: STATE.view === "phase" ? "module" : "phase", zoom: null });
    else if (event.key === "j" && slow.length) choose({ step: slow[Math.min(at + 1, slow.length - 1)].step });
    else if (event.key === "k" && slow.length) choose({ step: slow[Math.max(at - 1, 0)].step });
    else if (event.key === "Escape" && !dialog.open) zoomOut();
    else if (/^[1-9]$/.test(event.key) && sections[event.key - 1]) sections[event.key - 1].scrollIntoView();
  });
}

function zoomOut() {
  if (STATE.zoom) {
    const node = nodeAt(treeOf(RUN, STATE.view), STATE.zoom);
    choose({ zoom: node && node.parent ? node.parent.path || null : null });
  } else if (STATE.step !== null) choose({ step: null });
  else if (STATE.module) choose({ module: null });
}

// On paper everything is open and light.
function mountPrinting() {
  let before = null;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme ?? "";
    document.querySelectorAll("details").forEach((one) => ((one.wasOpen = one.open), (one.open = true)));
    setTheme("light");
  });
  addEventListener("afterprint", () => {
    document.querySelectorAll("details").forEach((one) => (one.open = one.wasOpen));
    if (before) setTheme(before);
    else delete document.documentElement.dataset.theme, redrawCharts();
  });
}

const SECTIONS = mountSections();
LISTENERS.push((changed) => (changed.has("module") || changed.has("view")) && drawModule());
addEventListener("hashchange", applyHash);
addEventListener("popstate", applyHash);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
applyHash();
MOUNTED.forEach((mount) => mount());
drawModule();
mountSearch();
mountKeys(SECTIONS);
mountPrinting();
if (STATE.module) document.getElementById("tree")?.scrollIntoView();
else if (STATE.step !== null) document.getElementById("steps")?.scrollIntoView();
document.documentElement.dataset.ready = "yes";
