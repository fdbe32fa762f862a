// Timelines on canvases that share one zoom: wheel with Ctrl, drag, two fingers, or keys.

const ROW = 34, BAR = 17, TOP = 22;

class Zoom {
  constructor(span) {
    this.span = span;
    this.from = 0;
    this.to = span;
    this.watchers = [];
  }
  set(from, to) {
    const length = Math.min(Math.max(to - from, Math.min(100, this.span)), this.span);
    this.from = Math.min(Math.max(from, 0), this.span - length);
    this.to = this.from + length;
    this.watchers.forEach((draw) => draw());
  }
  by(factor, share = 0.5) {
    const length = this.to - this.from, centre = this.from + length * share;
    this.set(centre - length * factor * share, centre + length * factor * (1 - share));
  }
  move(share) {
    const shift = (this.to - this.from) * share;
    this.set(this.from + shift, this.to + shift);
  }
}

class Block {
  constructor(timeline, sorts, row, at) {
    const [start, length, count, name, sort, busy] = timeline.rows[row].blocks.slice(6 * at, 6 * at + 6);
    Object.assign(this, { start, length, count, busy, name: timeline.names[name], sort: sorts[sort], lane: timeline.rows[row].name });
  }
  text() {
    const where = `${this.lane}, ${time(this.start / 1e6)} to ${time((this.start + this.length) / 1e6)}`;
    const many = this.count > 1 ? `${plural(this.count, "short task")} together, busy for ${time(this.busy / 1e6)}, the longest: ` : "";
    const what = this.sort.startsWith("waiting") ? `${this.sort}, before ${this.name}` : `${this.name} (${this.sort})`;
    return `${many}${what}. ${time(this.length / 1e6)} on ${where}.`;
  }
}

class TimelineView {
  constructor(timeline, sorts, zoom) {
    Object.assign(this, { timeline, sorts, zoom, row: 0, chosen: null, pointers: new Map() });
    this.height = TOP + ROW * timeline.rows.length + 4;
    this.canvas = el("canvas", {
      tabindex: "0", role: "application", "aria-roledescription": "timeline", class: "timeline",
      "aria-label": `Timeline ${timeline.label}: ${plural(timeline.steps, "step")} in ${time(timeline.span_ns / 1e6)} on ${plural(timeline.rows.length - 1, "lane")}. ` +
        "Keys: plus and minus zoom, left and right move, up and down choose a lane, n and p go from block to block, 0 shows all.",
    });
    this.canvas.style.height = `${this.height}px`;
    this.said = el("output", { "aria-live": "polite" }, "Point at a block, or press n to go through them.");
    zoom.watchers.push(() => this.draw());
    this.listen();
  }

  node() {
    const { timeline } = this;
    const lanes = timeline.rows.slice(1).map((row) => [row.name, row.tasks.toLocaleString("en"), time(row.work_ms), time(row.waiting_ms), time(row.idle_ms)]);
    const hidden = timeline.hidden_lanes > 0 ? ` The ${timeline.hidden_lanes} lanes with less work are not drawn.` : "";
    return el("figure", {},
      el("h3", {}, `${timeline.label}: ${time(timeline.step_ms)} per step, as replayed`),
      this.canvas, this.said,
      el("figcaption", {}, `One window of the steady state: ${plural(timeline.tasks, "task")} in ${plural(timeline.steps, "step")}. What runs on into the next window is drawn at the beginning of this one.${hidden}`),
      el("details", {}, el("summary", {}, `The lanes ${timeline.label} as a table`),
        table("Per lane, times of one step", [["lane"], ["tasks", true], ["work", true], ["waiting", true], ["idle", true]], lanes)));
  }

  draw() {
    const width = this.canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!width) return;
    this.canvas.width = width * ratio;
    this.canvas.height = this.height * ratio;
    const paint = this.canvas.getContext("2d");
    paint.scale(ratio, ratio);
    paint.clearRect(0, 0, width, this.height);
    this.axis(paint, width);
    this.timeline.rows.forEach((row, at) => this.lane(paint, width, row, at));
  }

  axis(paint, width) {
    const { from, to } = this.zoom, wanted = (to - from) / Math.max(2, width / 110);
    const unit = 10 ** Math.floor(Math.log10(wanted));
    const step = unit * [1, 2, 5, 10].find((each) => each * unit >= wanted);
    paint.font = "11px system-ui, sans-serif";
    paint.textBaseline = "alphabetic";
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const x = ((at - from) / (to - from)) * width;
      paint.fillStyle = style("--line");
      paint.fillRect(x, TOP - 6, 1, this.height - TOP + 2);
      paint.fillStyle = style("--soft");
      if (x < width - 40) paint.fillText(axisTime(at, step), x + 2, 11);
    }
  }

  lane(paint, width, row, at) {
    const y = TOP + ROW * at, { from, to } = this.zoom, scale = width / (to - from), { blocks } = row;
    paint.fillStyle = at === this.row && document.activeElement === this.canvas ? style("--accent") : style("--soft");
    paint.font = "11px system-ui, sans-serif";
    paint.fillText(row.name, 2, y + 10);
    paint.fillStyle = style("--track");
    paint.fillRect(0, y + 14, width, BAR);
    for (let i = this.first(blocks, from) * 6; i < blocks.length && blocks[i] < to; i += 6) {
      const [start, length, count, , sort, busy] = [blocks[i], blocks[i + 1], blocks[i + 2], 0, blocks[i + 4], blocks[i + 5]];
      const left = Math.max(0, (start - from) * scale), right = Math.min(width, (start + length - from) * scale);
      const fill = count > 1 ? Math.max(0.35, Math.min(1, busy / Math.max(1, length))) : 1;
      paint.fillStyle = colour(this.sorts[sort]);
      paint.fillRect(left, y + 14 + BAR * (1 - fill), Math.max(0.7, right - left - (right - left > 3 ? 0.6 : 0)), BAR * fill);
      if (right - left > 44) this.write(paint, row, i, left, right, y);
    }
    if (this.chosen && this.chosen.row === at) this.frame(paint, width, row, y);
  }

  write(paint, row, i, left, right, y) {
    const count = row.blocks[i + 2], text = count > 1 ? `${count} tasks` : this.timeline.names[row.blocks[i + 3]];
    const room = Math.floor((right - left - 6) / 6);
    paint.fillStyle = isBright(paint.fillStyle) ? "#10151b" : "#ffffff";
    paint.fillText(text.length > room ? `${text.slice(0, Math.max(1, room - 1))}…` : text, left + 3, y + 26);
  }

  frame(paint, width, row, y) {
    const { from, to } = this.zoom, [start, length] = row.blocks.slice(6 * this.chosen.at, 6 * this.chosen.at + 2);
    paint.strokeStyle = style("--focus");
    paint.lineWidth = 2;
    paint.strokeRect(((start - from) / (to - from)) * width - 1, y + 13, Math.max(3, (length / (to - from)) * width + 2), BAR + 2);
  }

  // the first block that ends after *moment*; blocks may overlap a little, so one more is taken
  first(blocks, moment) {
    let low = 0, high = blocks.length / 6;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (blocks[6 * middle] + blocks[6 * middle + 1] < moment) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  choose(row, at) {
    this.row = row;
    this.chosen = { row, at };
    this.said.textContent = new Block(this.timeline, this.sorts, row, at).text();
    this.draw();
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect(), row = Math.floor((event.clientY - box.top - TOP) / ROW);
    if (row < 0 || row >= this.timeline.rows.length) return;
    const { from, to } = this.zoom, moment = from + ((event.clientX - box.left) / box.width) * (to - from);
    const { blocks } = this.timeline.rows[row], near = ((to - from) / box.width) * 3;
    let best = -1, nearest = near;
    for (let at = this.first(blocks, moment - near); at < blocks.length / 6 && blocks[6 * at] <= moment + near; at += 1) {
      const away = Math.max(blocks[6 * at] - moment, moment - blocks[6 * at] - blocks[6 * at + 1], 0);
      if (away < nearest || (best < 0 && away <= near)) [best, nearest] = [at, away];
    }
    if (best >= 0) this.choose(row, best);
  }

  step(by) {
    const { blocks } = this.timeline.rows[this.row], count = blocks.length / 6;
    if (!count) return;
    const here = this.chosen && this.chosen.row === this.row ? this.chosen.at + by : this.first(blocks, this.zoom.from);
    const at = Math.min(Math.max(here, 0), count - 1), middle = blocks[6 * at] + blocks[6 * at + 1] / 2;
    if (middle < this.zoom.from || middle > this.zoom.to) this.zoom.move((middle - (this.zoom.from + this.zoom.to) / 2) / (this.zoom.to - this.zoom.from));
    this.choose(this.row, at);
  }

  key(event) {
    const rows = this.timeline.rows.length, { zoom } = this;
    const acts = {
      "+": () => zoom.by(0.5), "=": () => zoom.by(0.5), "-": () => zoom.by(2), 0: () => zoom.set(0, zoom.span),
      ArrowLeft: () => zoom.move(-0.2), ArrowRight: () => zoom.move(0.2),
      ArrowUp: () => this.turn((this.row + rows - 1) % rows), ArrowDown: () => this.turn((this.row + 1) % rows),
      n: () => this.step(1), p: () => this.step(-1),
    };
    if (!(event.key in acts) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  turn(row) {
    this.row = row;
    this.said.textContent = `Lane: ${this.timeline.rows[row].name}`;
    this.draw();
  }

  listen() {
    const { canvas, zoom, pointers } = this;
    canvas.addEventListener("keydown", (event) => this.key(event));
    ["focus", "blur"].forEach((each) => canvas.addEventListener(each, () => this.draw()));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      zoom.by(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width);
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => zoom.by(0.4, event.offsetX / canvas.clientWidth));
    canvas.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, event.clientX); this.point(event); });
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    ["pointerup", "pointercancel", "pointerleave"].forEach((each) => canvas.addEventListener(each, (event) => pointers.delete(event.pointerId)));
  }

  moved(event) {
    const { pointers, canvas, zoom } = this;
    if (!pointers.has(event.pointerId)) { if (!pointers.size) this.point(event); return; }
    const old = [...pointers.values()];
    const shift = event.clientX - pointers.get(event.pointerId);
    pointers.set(event.pointerId, event.clientX);
    if (pointers.size === 1) { if (Math.abs(shift) > 0) zoom.move(-shift / canvas.clientWidth); return; }
    const now = [...pointers.values()], spread = (xs) => Math.max(20, Math.max(...xs) - Math.min(...xs));
    const centre = (now.reduce((a, b) => a + b) / now.length - canvas.getBoundingClientRect().left) / canvas.clientWidth;
    zoom.by(spread(old) / spread(now), centre);
  }
}

function axisTime(ns, step) {
  const digits = (unit) => Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  if (step >= 1e9) return `${(ns / 1e9).toFixed(0)} s`;
  return step >= 1e4 ? `${(ns / 1e6).toFixed(digits(1e6))} ms` : `${(ns / 1e3).toFixed(digits(1e3))} µs`;
}

function isBright(hex) {
  const value = parseInt(hex.slice(1), 16);
  return 0.3 * (value >> 16) + 0.59 * ((value >> 8) & 255) + 0.11 * (value & 255) > 140;
}

function timelineSection(data) {
  const zoom = new Zoom(Math.max(1, ...data.timelines.map((each) => each.span_ns)));
  const views = data.timelines.map((each) => new TimelineView(each, data.sorts, zoom));
  const button = (text, label, act) => el("button", { type: "button", "aria-label": label, on: { click: act } }, text);
  const used = new Set(data.timelines.flatMap((each) => each.rows.flatMap((row) => row.blocks.filter((_, at) => at % 6 === 4))));
  const sorts = [...used].map((at) => data.sorts[at]);
  const shown = [...sorts.filter((sort) => !sort.startsWith("waiting")), ...(sorts.some((sort) => sort.startsWith("waiting")) ? ["waiting, on the critical path"] : [])];
  const node = section("timelines", data.timelines.length > 1 ? "Timelines before and after" : "Timeline",
    el("div", { class: "tools", role: "group", "aria-label": "Zoom of the timelines" },
      button("+ Zoom in", "Zoom in", () => zoom.by(0.5)), button("− Zoom out", "Zoom out", () => zoom.by(2)),
      button("←", "Move left", () => zoom.move(-0.3)), button("→", "Move right", () => zoom.move(0.3)),
      button("All", "Show all", () => zoom.set(0, zoom.span))),
    el("p", { class: "soft" }, "Drag to move; Ctrl or Shift with the wheel, two fingers, or + and − to zoom. Both timelines share one scale."),
    ...views.map((view) => view.node()),
    el("ul", { class: "legend", "aria-label": "Colours" }, ...shown.map(legendEntry)));
  const redraw = () => views.forEach((view) => view.draw());
  new ResizeObserver(redraw).observe(node);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  return node;
}

function legendEntry(sort) {
  const mark = el("i", { "aria-hidden": "true" });
  mark.style.background = sort.startsWith("waiting") ? "var(--wait)" : colour(sort);
  return el("li", {}, mark, sort);
}
