// The card: cause, reason, next step; the other findings; the facts of the run.

function cardSection() {
  const { card } = RUN;
  const [first, ...others] = card.findings;
  const facts = new Map(card.facts);
  const ended = new Map(RUN.about).get("ended");
  const title = facts.get("Verdict") || (RUN.empty ? "No figures" : "No verdict: no rule was judged");
  const words = title.replace(/^\[(critical|warning)\] /, "");
  return h(
    "section",
    { id: "card", "aria-labelledby": "card-title" },
    h(
      "div",
      { class: "card-grid" },
      h(
        "div",
        {},
        h("p", { class: "eyebrow" }, RUN.name, " · ", RUN.headline.replace(/^autoprof: /, "")),
        h("h1", { id: "card-title" }, first ? h("span", { class: `badge ${card.severity}` }, card.severity) : null, first && first.name && RUN.byName.has(first.name) ? h("a", { href: hashFor({ module: first.name }) }, words) : words),
        ended.startsWith("closed") ? null : h("p", { class: "note" }, h("b", {}, "How the run ended "), ended),
        RUN.empty ? h("p", {}, `${RUN.empty}.`) : null,
        facts.has("Why") ? h("p", { class: "why" }, h("b", {}, "Why "), facts.get("Why")) : null,
        facts.has("Next") ? h("p", { class: "why" }, h("b", {}, "Next "), facts.get("Next")) : null,
        others.length ? h("div", { class: "others" }, others.map(otherFinding)) : null,
      ),
      h("dl", { class: "facts" }, RUN.facts.map(([label, text]) => [h("dt", {}, label), h("dd", {}, text)])),
    ),
    phaseBar(),
  );
}

function otherFinding(one) {
  const gain = one.gain ? ` · up to ${formatNs(one.gain)} a step` : "";
  const place = [one.name, one.phase, one.rank === undefined ? null : `rank ${one.rank}`].filter(Boolean).join(" ");
  return h(
    "details",
    {},
    h("summary", {}, h("span", { class: `badge ${one.severity}` }, one.severity), h("b", {}, one.rule), place ? ` ${place}` : "", h("span", { class: "faint" }, gain)),
    h("p", {}, h("b", {}, "Why "), one.why),
    h("p", {}, h("b", {}, "Next "), one.next),
    one.name && RUN.byName.has(one.name) ? h("p", {}, moduleLink(one.name, `Show ${one.name}`)) : null,
  );
}

function phaseBar() {
  if (!RUN.total) return null;
  return h(
    "div",
    { class: "phase-bar", role: "img", "aria-label": `Phases of a step: ${RUN.phases.map(([phase, ns]) => `${phase} ${formatShare(ns / RUN.total)}`).join(", ")}` },
    RUN.phases
      .filter(([, ns]) => ns > 0)
      .map(([phase, ns]) => {
        const share = ns / RUN.total;
        const color = phaseColor(phase);
        const part = h("span", { style: { width: `${100 * share}%`, background: color, color: inkOn(color) } }, share > 0.07 ? `${phase} ${Math.round(100 * share)} %` : "");
        tip(part, () => [h("b", {}, phase), h("div", {}, `${formatNs(ns / RUN.steps)} a step · ${formatShare(share)}`)]);
        return part;
      }),
  );
}

function moreSection() {
  const parts = [];
  if (RUN.whatIf.length) {
    parts.push(
      h("h3", {}, "What if"),
      table(
        ["change", "step", "throughput", "memory", "assumed"],
        RUN.whatIf.map((one) => [one.change, formatNs(one.step_ns), one.throughput === undefined ? "–" : `${digits(one.throughput)} ${RUN.unit}/s`, formatBytes(one.memory_bytes), h("span", { class: "faint" }, one.assumed)]),
        { class: "last-text" },
      ),
    );
  }
  if (RUN.excluded.length) {
    parts.push(h("h3", {}, "Excluded from steps"), table(["name", "times", "total"], RUN.excluded.map(([name, calls, ns]) => [name, formatCount(calls), formatSpan(ns)])));
  }
  const separate = range(RUN.count).filter((row) => RUN.rows.lane[row] !== 0 && RUN.rows.mean_ns[row]);
  if (separate.length) {
    parts.push(
      h("h3", {}, "Beside the step", h("span", { class: "faint" }, " other threads, parallel streams, logged durations")),
      table(["name", "phase", "mean", "p95"], separate.slice(0, 40).map((row) => [moduleLink(RUN.names[row]), RUN.rows.phase[row], formatNs(RUN.rows.mean_ns[row]), formatNs(RUN.rows.p95_ns[row])])),
    );
  }
  if (RUN.card.unjudged.length) {
    const reasons = new Map();
    for (const [rule, missing] of RUN.card.unjudged) reasons.set(missing, [...(reasons.get(missing) || []), rule]);
    parts.push(h("h3", {}, "Not judged"), h("ul", {}, [...reasons].map(([missing, rules]) => h("li", {}, h("b", {}, rules.join(", ")), ` missing: ${missing}`))));
  }
  if (RUN.notes.length) parts.push(h("h3", {}, "Notes"), h("ul", {}, RUN.notes.map((note) => h("li", {}, note))));
  const records = [];
  if (RUN.badLines) records.push(`${plural(RUN.badLines, "incomplete line")} of steps.jsonl skipped`);
  if (RUN.droppedRows) records.push(`${plural(RUN.droppedRows, "row")} beyond the limit left out`);
  if (RUN.levels.length === 0) records.push("no records of steps (the sink jsonl writes them), so the page has only the summary");
  for (const run of RUNS) {
    parts.push(h("h3", {}, PAIR ? `Run ${"AB"[run.index]}` : "This run"), h("dl", { class: "facts wide" }, [...run.about, ...(run === RUN ? records.map((text) => ["records", text]) : [])].map(([label, text]) => [h("dt", {}, label), h("dd", {}, label === "configuration" ? h("details", { class: "bare" }, h("summary", {}, "as JSON"), h("code", {}, text)) : text)])));
  }
  return section("more", "More about the run", null, ...parts);
}
