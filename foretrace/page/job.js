// The whole job: how many steps, how long they take, at what cost, each with its interval.

const JOB_PARTS = { steps: "Steps", step: "One step", job: "All steps", cost: "Cost" };
const LONG_TIMES = [[172_800, 86_400, "days"], [7_200, 3_600, "h"], [120, 60, "min"]];

function amount(value, unit) {
  const digits = (number) => number.toLocaleString("en", { maximumSignificantDigits: Math.max(3, Math.ceil(Math.log10(Math.abs(number) + 1))) });
  if (unit !== "s") return unit === "steps" ? digits(Math.round(value)) : `${digits(value)}${NARROW}${unit}`;
  const long = LONG_TIMES.find(([least]) => value >= least);
  if (long) return `${digits(value / long[1])}${NARROW}${long[2]}`;
  return value >= 10 ? `${digits(value)}${NARROW}s` : time(value * 1000);
}

function jobTable(answers, title, suffix) {
  const known = Object.entries(JOB_PARTS).filter(([part]) => answers[part + suffix]);
  const span = ({ interval: [low, high], unit }) => (low === high ? "exact" : `${amount(low, unit)} – ${amount(high, unit)}`);
  const cells = (found) => [amount(found.value, found.unit), span(found), el("span", { class: found.status.replace(" ", "-") }, found.status)];
  const level = known.map(([part]) => Math.round(100 * answers[part + suffix].level))[0];
  const heads = [["of the job"], ["value", true], [`in ${level} % of cases`, true], ["status"]];
  return table(`The job ${title}, each figure with its interval`, heads, known.map(([part, name]) => [name, ...cells(answers[part + suffix])]));
}

function jobSection(data) {
  const found = data.whole_job, { answers } = found, is_changed = "step after" in answers;
  const tables = [...(is_changed ? [jobTable(answers, "after the change", " after")] : []), jobTable(answers, is_changed ? "before" : "as recorded", "")];
  const figure = (label, name) => (answers[name] ? el("div", {}, el("div", { class: "label" }, label), el("div", { class: "figure" }, amount(answers[name].value, answers[name].unit))) : null);
  const after = is_changed ? " after" : "";
  const more = found.tables.map((each) => table(each.title, Object.keys(each.rows[0]).map((name, at) => [name, at > 0]),
    each.rows.map((row) => Object.values(row).map((value) => (typeof value === "number" ? value.toLocaleString("en") : String(value ?? "unknown"))))));
  const own = (lines, known) => lines.filter((line) => !known.includes(line));
  const notes = (title, lines) => (lines.length ? el("div", {}, el("h3", {}, title), list(lines)) : null);
  return section("job", "The whole job", el("p", { class: "soft" }, found.title.replace("The whole job: ", "")),
    el("div", { class: "headline" }, figure("It takes", `job${after}`), figure("and costs", `cost${after}`)),
    ...(Object.keys(answers).length ? tables : [el("p", { class: "error" }, "No answer: the reason stands among the warnings.")]),
    ...more, el("div", { class: "columns" }, notes("Assumes, beyond the prediction", own(found.assumptions, data.assumptions)), notes("Warnings, beyond those of the prediction", own(found.warnings, data.warnings))));
}
