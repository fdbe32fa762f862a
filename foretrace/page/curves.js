// Pictures in SVG: the interval around a prediction, and step time against a faster part.

const SHADES = ["#3b7dd8", "#d1495b", "#2e9b62", "#d79a1e", "#8a5cd6", "#1899a8", "#a8714c", "#7a8390"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const KINDS = { lane: "host and device", kernels: "kernels", phase: "phases", module: "modules" };
const MOST_CURVES = 8;

function intervalPicture(data) {
  const [low, high] = data.interval_ms, before = data.baseline_step_ms, after = data.predicted_step_ms;
  const most = Math.max(high, before, after) * 1.03, width = 600;
  const x = (ms) => (width * ms) / most;
  const bar = (name, y, ms) => drawn("rect", { x: 0, y, width: Math.max(1, x(ms)), height: 16, rx: 3, fill: `var(--${name})` });
  const whiskers = drawn("path", { d: `M${x(low)} 28v24M${x(low)} 40H${x(high)}M${x(high)} 28v24`, stroke: "var(--ink)", "stroke-width": 2, fill: "none" });
  const text = `Before ${time(before)}, after ${time(after)}, between ${time(low)} and ${time(high)} at ${data.level_pct} %.`;
  return drawn("svg", { viewBox: `0 0 ${width} 56`, role: "img", "aria-label": text, preserveAspectRatio: "none", height: 56, class: "interval" },
    bar("before", 4, before), bar("after", 32, after), whiskers);
}

function curvesPicture(sensitivity, curves, width) {
  const height = 300, left = 52, right = 10, bottom = 36, top = 10;
  const percents = [0, ...sensitivity.less_time_percent];
  const most = Math.max(sensitivity.measured_step_ms, ...curves.flatMap((curve) => curve.step_ms)) * 1.05;
  const x = (value) => left + ((width - left - right) * value) / 100;
  const y = (ms) => height - bottom - ((height - bottom - top) * ms) / most;
  const label = (text, at, more = {}) => drawn("text", { x: at[0], y: at[1], class: "quiet", ...more }, text);
  const parts = [];
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const ms = (share * most) / 1.05;
    parts.push(drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(ms), y2: y(ms) }));
    parts.push(label(time(ms), [left - 6, y(ms) + 4], { "text-anchor": "end" }));
  }
  for (const value of [0, 25, 50, 75, 100]) parts.push(label(`${value} %`, [x(value), height - bottom + 16], { "text-anchor": value === 100 ? "end" : "middle" }));
  parts.push(label("less time in this part", [(left + width - right) / 2, height - 4], { "text-anchor": "middle" }));
  curves.forEach((curve, at) => {
    const points = percents.map((value, i) => [value, i ? curve.step_ms[i - 1] : sensitivity.measured_step_ms]).sort((a, b) => a[0] - b[0]);
    parts.push(drawn("polyline", {
      points: points.map(([value, ms]) => `${x(value).toFixed(1)},${y(ms).toFixed(1)}`).join(" "),
      fill: "none", stroke: SHADES[at], "stroke-width": 2.2, "stroke-dasharray": DASHES[at % DASHES.length],
    }, drawn("title", {}, curve.part)));
  });
  const best = curves[0];
  const text = best ? `Step time against less time in one part. Most is gained by ${best.part}: ${time(Math.min(...best.step_ms))} if it took none.` : "No curves.";
  return drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text }, ...parts);
}

function curvesLegend(curves) {
  return el("ul", { class: "legend" }, ...curves.map((curve, at) => el("li", {},
    Object.assign(drawn("svg", { viewBox: "0 0 26 8", "aria-hidden": "true", class: "key" },
      drawn("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: SHADES[at], "stroke-width": 2.5, "stroke-dasharray": DASHES[at % DASHES.length] }))),
    ` ${curve.part} (${time(curve.work_ms)})`)));
}

function sensitivitySection(sensitivity) {
  const place = el("figure", {});
  let shown = [];
  const draw = () => { if (place.clientWidth) place.replaceChildren(curvesPicture(sensitivity, shown, Math.max(280, place.clientWidth)), curvesLegend(shown)); };
  const kinds = Object.entries(KINDS).filter(([of]) => sensitivity.parts.some((part) => part.of === of));
  const pick = (of) => { shown = sensitivity.parts.filter((part) => part.of === of).slice(0, MOST_CURVES); draw(); };
  const heads = [["part"], ["work", true], ...sensitivity.less_time_percent.map((value) => [`−${value} %`, true])];
  const rows = sensitivity.parts.map((part) => [`${part.of}: ${part.part}`, time(part.work_ms), ...part.step_ms.map(time)]);
  const node = section("sensitivity", "What each part of the job is worth",
    el("p", { class: "soft" }, "The step of the unchanged job if one part took that much less time. A flat line: nothing is gained there."),
    choices("curves", "Parts:", kinds, pick), place,
    el("details", {}, el("summary", {}, "All curves as a table"), table("Step time if one part took less time", heads, rows)));
  new ResizeObserver(draw).observe(place);
  return node;
}
