// Sections of the page: each takes the data and returns an element.

function head(data) {
  const { job } = data, asked = data.scenario.join(" + ");
  const facts = [job.devices.join(", ") || job.processor || "no accelerator named", job.framework, plural(job.ranks, "rank"),
    plural(job.steps, "step"), plural(job.tasks, "task"), job.batch_size ? `${job.batch_size} samples per step and rank` : null];
  return [
    el("h1", {}, asked ? `What if: ${asked}?` : "The job as recorded"),
    el("p", { class: "soft" }, job.source),
    el("ul", { class: "facts soft" }, ...facts.filter(Boolean).map((fact) => el("li", {}, fact))),
  ];
}

// what may be wrong in these very numbers stands before them
function doubtsSection(data) {
  if (!data.doubts.length) return null;
  return section("doubts", "Doubts", el("p", {}, "Something in these very numbers may be wrong:"), el("div", { class: "unvalidated" }, list(data.doubts.map(doubtText))));
}

function statusClass(status) {
  return status.replace(" ", "-");
}

function doubtText({ code, place, text }) {
  return `${code}${place ? `, ${place}` : ""}: ${text}`;
}

function headline(data) {
  const [low, high] = data.interval_ms, asked = data.scenario.length > 0;
  const figure = (label, text, more) => el("div", {}, el("div", { class: "label" }, label), el("div", { class: "figure" }, text, more ? el("small", {}, ` ${more}`) : null));
  const by = data.measured_by === "unprofiled" ? "measured without the profiler" : "measured under the profiler";
  const samples = data.samples_ratio === 1 ? "as fast" : "as many samples per second";
  const figures = [figure(`Step, ${by}`, time(data.baseline_step_ms))];
  if (asked) figures.push(figure("Step, predicted", time(data.predicted_step_ms)), figure("That is", times(data.speedup), samples));
  else figures.push(figure("Step, replayed", time(data.replayed_step_ms), signed(data.replay_error_pct)));
  const bars = el("figure", {}, intervalPicture(data),
    el("figcaption", {}, `Upper bar: before. Lower bar: after, with the range that should hold the true step in ${data.level_pct} of 100 cases.`));
  return section("headline", asked ? "The prediction" : "The recording", el("div", { class: "headline" }, ...figures),
    asked ? el("p", {}, el("span", { class: `badge ${statusClass(data.status)}` }, data.status), ` ${data.level_pct} % interval: ${time(low)} to ${time(high)}`) : null,
    asked ? bars : null,
    asked && data.status === "unvalidated" ? el("p", { class: "soft" }, "Unvalidated: see below what is missing, and measure before you rely on it.") : null,
    asked && data.status === "tested elsewhere" ? el("p", { class: "soft" }, "Tested elsewhere: measured pairs agree with such answers, but not on this kind of hardware and job; see below where.") : null);
}

function breakdownSection(data) {
  const place = el("div", {}), asked = data.scenario.length > 0;
  const pick = (by) => {
    const parts = data.parts[by], most = Math.max(1e-9, ...parts.flatMap((part) => [...part.work_ms, ...part.path_ms]));
    const heads = asked
      ? [[by], ["work before", true], ["after", true], ["on path before", true], ["after", true], ["work before and after"]]
      : [[by], ["work", true], ["on the critical path", true], ["work"]];
    const rows = parts.map((part) => asked
      ? [part.part, ...part.work_ms.map(time), ...part.path_ms.map(time), meters([part.work_ms[0] / most, "before"], [part.work_ms[1] / most, "after"])]
      : [part.part, time(part.work_ms[0]), time(part.path_ms[0]), meters([part.work_ms[0] / most, "after"])]);
    place.replaceChildren(table(`Times of one step by ${by}`, heads, rows));
  };
  return section("breakdown", "Where the time goes",
    el("p", { class: "soft" }, "Work is summed up over all lanes, which run side by side; only what lies on the critical path makes the step longer."),
    choices("by", "By:", [["cause", "kind of work"], ["phase", "phase"], ["module", "module"]], pick), place);
}

// of the job as recorded: nothing is said of what the recording does not tell
function useSection({ use }) {
  if (!use) return null;
  const share = (pct) => `${pct.toPrecision(3)} %`, reached = (rate, peak) => rate === null ? "" : `${rate.toPrecision(4)}${peak ? ` (${share(100 * rate / peak)})` : ""}`;
  const facts = [`The device works for ${share(use.busy_pct)} of a step.`];
  if (use.sm_idle_pct !== null) facts.push(`Multiprocessors have no block for ${share(use.sm_idle_pct)} of the kernels' time.`);
  if (use.communication_ms) facts.push(`Communication takes ${time(use.communication_ms)}, beside ${time(use.exposed_communication_ms)} of which nothing runs.`);
  if (use.mfu_pct !== null) facts.push(`Model FLOPs utilisation: ${share(use.mfu_pct)} of ${use.peak_tflops} TFLOP/s in ${use.precision}; with what is computed again ${share(use.hfu_pct)}.`);
  const rows = use.kernel_classes.filter((each) => each.tflops || each.gbps).map((each) => [each.class, time(each.ms), reached(each.tflops, each.peak_tflops), reached(each.gbps, each.peak_gbps)]);
  return section("use", "Use of the device, as recorded", list([...facts, ...use.missing]),
    rows.length ? table("What classes of kernels reach, and of the device's peak", [["class"], ["time", true], ["TFLOP/s", true], ["GB/s", true]], rows) : null);
}

function limitsSection(data) {
  const asked = data.scenario.length > 0, { before, after } = data.limiting_lanes;
  const pace = before === after || !asked ? `The pace is set by ${before}${asked ? ", before and after" : ""}.` : `The pace was set by ${before}; now by ${after}.`;
  const notes = [pace, ...Object.entries(data.pace).filter(([when, text]) => text && (asked || when === "before")).map(([when, text]) => (asked ? `${when}: ${text}` : text))];
  if (asked) notes.push(`Over all lanes, the change takes away ${time(data.work_saved_ms)} of work and adds ${time(data.work_added_ms)}. ` +
    `If all changed and added work cost nothing, a step would still take ${time(data.bound_step_ms)}.`);
  const labels = Object.keys(data.limits);
  const causes = [...new Set(labels.flatMap((label) => Object.keys(data.limits[label])))];
  const most = Math.max(1e-9, ...labels.flatMap((label) => Object.values(data.limits[label])));
  const rows = causes.map((cause) => {
    const found = labels.map((label) => data.limits[label][cause] ?? 0);
    return [cause, ...found.map(time), meters(...found.map((ms, at) => [ms / most, found.length > 1 && at === 0 ? "before" : "after"]))];
  });
  const segments = (label) => table(`Longest parts of the critical path ${label}, per step`, [["task"], ["time", true], [`times in ${plural(data.job.steps, "step")}`, true], ["why"], ["lane"]],
    data.path[label].map((each) => [each.name, time(each.ms), each.count.toLocaleString("en"), each.why === "work" ? "its own work" : `waits: ${each.why}`, each.lane]));
  return section("limits", "What limits the step, and the critical path", list(notes),
    table("Critical path by cause, one step", [["cause"], ...labels.map((label) => [label, true]), ["share"]], rows),
    ...labels.map((label, at) => el("details", { open: at === labels.length - 1 }, el("summary", {}, `What the path consists of ${label}`), segments(label))));
}

function adviceSection(advice) {
  const own = (each) => each.doubts.map(doubtText).filter((text) => !advice.doubts.map(doubtText).includes(text));
  const row = (each) => {
    const [low, high] = each.interval_ms, limits = Object.entries(each.limits).filter(([, share]) => share >= 0.05).slice(0, 3);
    const notes = [each.saves === "memory" ? "needs less memory" : null, ...own(each), ...each.warnings.filter((note) => note.includes("does not fit"))].filter(Boolean);
    return [each.scenario.join(" + "), times(each.throughput_gain), time(each.predicted_step_ms), `${time(low)} – ${time(high)}`,
      el("span", { class: statusClass(each.status) }, each.status), limits.map(([cause, share]) => `${cause} ${percent(share)}`).join(", "), notes.join("; ")];
  };
  const heads = [["what-if"], ["samples/s", true], ["step", true], ["interval", true], ["status"], ["then limited by"], ["note"]];
  const shown = (caption, found) => {
    const rows = found.map(row), width = rows.some((cells) => cells.at(-1)) ? heads.length : heads.length - 1;
    return table(caption, heads.slice(0, width), rows.map((cells) => cells.slice(0, width)));
  };
  const parts = [shown("Every what-if that applies, best first", advice.advice)];
  if (advice.combinations.length) parts.push(shown("The best together, replayed and not added up", advice.combinations));
  if (advice.inapplicable.length) parts.push(el("details", {}, el("summary", {}, `${plural(advice.inapplicable.length, "what-if")} that ${advice.inapplicable.length === 1 ? "does" : "do"} not apply`),
    table("Does not apply", [["what-if"], ["why"]], advice.inapplicable.map((each) => [each.scenario, each.reason]))));
  const settles = (each) => `${each.scenarios.join(", ")}: ${each.question} ${each.action} (about ${each.minutes} min${each.scenarios.length > 1 ? " each" : ""})`;
  if (advice.to_settle.length) parts.push(el("h3", {}, "What would settle what is open"), list(advice.to_settle.map(settles)));
  if (advice.warnings.length) parts.push(el("h3", {}, "Holds for all of them"), list(advice.warnings));
  return section("advice", "What to try", ...parts);
}

function notesSection(data) {
  const block = (title, notes, none) => el("div", {}, el("h3", {}, title), notes.length ? list(notes) : el("p", { class: "soft" }, none));
  return section("notes", "Assumptions and warnings", el("div", { class: "columns" },
    block("Assumes", data.assumptions, "Nothing beyond the recording."), block("Warnings", data.warnings, "None.")));
}

function evidenceSection(data) {
  const known = (value) => (value === null ? "unknown" : `${value.toFixed(1)} %`);
  const off = `Without any change the replay is ${signed(data.replay_error_pct)} off the measured step.`;
  const many = data.measured_steps_ms.length;
  const notes = [off, `The measured step is the trimmed mean of ${plural(many, "step")}${many > 1 ? `, from ${time(Math.min(...data.measured_steps_ms))} to ${time(Math.max(...data.measured_steps_ms))}` : ""}.`];
  const rows = data.errors_of_pairs.map((each) => [each.transform, each.hardware.toUpperCase(),
    each.source === "measured" ? "operators timed on the machine" : "a rule", each.pairs ? String(each.pairs) : "none", known(each.median_pct), known(each.p90_pct)]);
  const costs = Object.entries(data.cost_sources).sort((a, b) => b[1] - a[1]).map(([source, share]) => [source, percent(share)]);
  return section("evidence", "How it was tested", list(notes),
    data.evidence.length ? el("h3", {}, "Measured pairs that tell of it") : null, data.evidence.length ? list(data.evidence) : null,
    rows.length ? table("Before/after pairs that were really measured, and how far off predictions of them were",
      [["what-if"], ["on"], ["costs from"], ["pairs", true], ["median error", true], ["9 of 10 below", true]], rows) : null,
    table("Where the cost of the work comes from", [["source"], ["share of all work", true]], costs));
}
