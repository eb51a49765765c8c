// Time in no span, and the lines of the program that ran then.

function lineSection() {
  const other = RUN.phases.find(([phase]) => phase === "other");
  if (!RUN.lines.length) return null;
  const share = other && RUN.total ? other[1] / RUN.total : 0;
  return section(
    "lines",
    RUN.lines[0].kind === "unattributed" ? "Unattributed time by line" : "Sampled time by line",
    `${formatShare(share)} of the step is in no span. The training thread's stack was sampled; a line's share is of its kind of time.`,
    RUN.lines.map((kind) => [
      h("h3", {}, kind.kind, h("span", { class: "faint" }, ` ${plural(kind.samples, "sample")}${kind.samples < 10 ? ", too few to rely on" : ""}`)),
      table(
        ["line", "calls", "source", "share", ""],
        kind.lines.map((line) => [h("code", {}, line.where), h("code", {}, line.call), h("code", { class: "source" }, line.source), formatShare(line.share), bar(line.share, phaseColor(kind.kind.split(" ")[0]))]),
        { class: "lines" },
      ),
    ]),
  );
}
