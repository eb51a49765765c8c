// The last state of each rank of a run that was killed, or in which a step did not end.

function lastStateSection() {
  const found = RUN.flight;
  if (!found) return null;
  return section(
    "last",
    "The last state of each rank",
    `${found.verdict}. The flight recorder wrote this before the run ended; "last sign" is the time before the last sign of any rank.`,
    table(found.head, found.rows),
    found.hidden ? h("p", { class: "faint" }, `and ${plural(found.hidden, "more rank")} that this page leaves out`) : null,
  );
}
