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

function jobRows(answers) {
  const span = ({ interval: [low, high], unit }) => (low === high ? "exact" : `${amount(low, unit)} – ${amount(high, unit)}`);
  const cells = (found) => (found ? [amount(found.value, found.unit), span(found), el("span", { class: found.status }, found.status)] : ["unknown", "", ""]);
  return Object.entries(JOB_PARTS).filter(([part]) => answers[part]).map(([part, name]) => [name, ...cells(answers[part]), ...(answers["step after"] ? cells(answers[`${part} after`]) : [])]);
}

function jobSection(data) {
  const found = data.whole_job, { answers } = found, level = Object.values(answers).map((each) => Math.round(100 * each.level))[0];
  const sides = answers["step after"] ? ["before", "after"] : ["as recorded"];
  const heads = [["of the job"], ...sides.flatMap((side) => [[side, true], [`in ${level} % of cases`, true], ["status"]])];
  const figure = (label, name) => (answers[name] ? el("div", {}, el("div", { class: "label" }, label), el("div", { class: "figure" }, amount(answers[name].value, answers[name].unit))) : null);
  const after = answers["step after"] ? " after" : "";
  const more = found.tables.map((each) => table(each.title, Object.keys(each.rows[0]).map((name, at) => [name, at > 0]),
    each.rows.map((row) => Object.values(row).map((value) => (typeof value === "number" ? value.toLocaleString("en") : String(value ?? "unknown"))))));
  const own = (lines, known) => lines.filter((line) => !known.includes(line));
  const notes = (title, lines) => (lines.length ? el("div", {}, el("h3", {}, title), list(lines)) : null);
  return section("job", "The whole job", el("p", { class: "soft" }, found.title.replace("The whole job: ", "")),
    el("div", { class: "headline" }, figure("It takes", `job${after}`), figure("and costs", `cost${after}`)),
    Object.keys(answers).length ? table("The job, each figure with its interval", heads, jobRows(answers)) : el("p", { class: "error" }, "No answer: the reason stands among the warnings."),
    ...more, el("div", { class: "columns" }, notes("Assumes, beyond the prediction", own(found.assumptions, data.assumptions)), notes("Warnings, beyond those of the prediction", own(found.warnings, data.warnings))));
}
