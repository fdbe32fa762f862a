"use strict";
// Elements, numbers and colours. Text is only ever set as text, never as markup.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function drawn(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const NARROW = "\u00a0"; // keeps a number and its unit on one line

function time(ms) {
  if (ms === null || ms === undefined) return "unknown";
  const size = Math.abs(ms);
  if (size >= 10_000) return `${(ms / 1000).toFixed(1)}${NARROW}s`;
  if (size >= 1) return `${ms.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)}${NARROW}ms`;
  return size === 0 ? "0" : `${(ms * 1000).toFixed(size < 0.01 ? 2 : 0)}${NARROW}µs`;
}

const percent = (share) => `${(100 * share).toFixed(share !== 0 && Math.abs(share) < 0.1 ? 1 : 0)}${NARROW}%`;
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)} %`;
const times = (factor) => `${factor.toFixed(2)}×`;
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

const COLOURS = {
  gemm: "#3b7dd8", conv: "#1f9e89", attention: "#8a5cd6", norm: "#c2803a", softmax: "#d4679f",
  pointwise: "#dba42b", reduce: "#7fa33b", copy: "#8f8f8f", optimizer: "#b0553f",
  embedding: "#4aa3c7", communication: "#d14545", memcpy: "#a08670", memset: "#b6a694",
  "data loading": "#5f8f5f", host: "#6f86b5", launch: "#93a8d1", sync: "#c4a0c9",
};

function colour(sort) {
  if (sort.startsWith("waiting")) return style("--wait");
  return COLOURS[sort] ?? "#7a8390";
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
}

function list(notes, tag = "ul") {
  return el(tag, { class: "notes" }, ...notes.map((note) => el("li", {}, note)));
}

// heads: [text, isNumber]; cells are texts or nodes, the first of a row is its heading
function table(caption, heads, rows) {
  const cell = (value, at) => {
    if (at === 0) return el("th", { scope: "row" }, value);
    if (value instanceof Node) return el("td", { class: value.classList.contains("meters") ? "bar" : "" }, value);
    return el("td", { class: heads[at][1] ? "number" : "" }, value);
  };
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, ...heads.map(([text, isNumber]) => el("th", { scope: "col", class: isNumber ? "number" : "" }, text)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell))))));
}

// bars of [share, class] below one another; the numbers stand beside them as text
function meters(...shares) {
  const bars = shares.map(([share, name]) => {
    const filled = el("i", { class: name });
    filled.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    filled.style.minWidth = share > 0 ? "1px" : "0";
    return el("span", { class: "meter" }, filled);
  });
  return el("div", { class: "meters", "aria-hidden": "true" }, ...bars);
}

// radio buttons that look like tabs; act(value) runs at once and on each change
function choices(name, title, options, act) {
  const field = el("fieldset", { class: "choices" }, el("legend", {}, title));
  options.forEach(([value, text], at) => field.append(el("label", {},
    el("input", { type: "radio", name, value, checked: at === 0, on: { change: () => act(value) } }),
    el("span", {}, text))));
  if (options.length) act(options[0][0]);
  return field;
}
