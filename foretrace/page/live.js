// The served page: what-ifs and their parameters chosen here, predictions asked of the server.

class Form {
  constructor(live, show) {
    Object.assign(this, { live, show, trace: 0, chosen: [], asked: 0, timer: null });
    this.said = el("p", { role: "status", class: "soft" });
    this.rows = el("div", { class: "form" });
  }

  node() {
    const traces = el("select", { id: "trace", on: { change: (event) => { this.trace = Number(event.target.value); this.ask(0, true); } } },
      ...this.live.traces.map((name, at) => el("option", { value: at }, name)));
    const add = el("select", { id: "add" }, ...this.live.transforms.map((each) => el("option", { value: each.name }, each.name)));
    const button = el("button", { type: "button", id: "add-whatif", on: { click: () => this.add(add.value) } }, "Add");
    return section("ask", "Ask",
      el("div", { class: "tools" }, el("label", { for: "trace" }, "Trace"), traces, el("label", { for: "add" }, "What-if"), add, button),
      this.rows, this.said);
  }

  add(name) {
    const transform = this.live.transforms.find((each) => each.name === name), inputs = transform.parameters.map(parameterInput);
    const choice = { transform, inputs };
    const row = el("fieldset", { class: "whatif", on: { input: () => this.ask(150) } }, el("legend", {}, name),
      el("p", { class: "soft" }, transform.effect.replaceAll("*", "").replaceAll("`", "")),
      ...transform.parameters.map((each, at) => el("label", {}, each.required ? `${each.name} (needed)` : each.name, inputs[at])),
      el("button", { type: "button", "aria-label": `Remove ${name}`, on: { click: () => this.remove(choice, row) } }, "Remove"));
    this.chosen.push(choice);
    this.rows.append(row);
    this.ask(0);
  }

  remove(choice, row) {
    this.chosen.splice(this.chosen.indexOf(choice), 1);
    row.remove();
    document.getElementById("add").focus();
    this.ask(0);
  }

  ask(delay, isNew = false) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetch(isNew), delay);
  }

  async fetch(isNew) {
    const number = (this.asked += 1), texts = this.chosen.map(whatIfText);
    this.said.className = "soft";
    if (texts.some((text) => text === null)) { this.said.textContent = "Fill in what is needed."; return; }
    this.said.textContent = "Predicting …";
    const began = performance.now(), found = await answer("view", this.trace, texts);
    if (number !== this.asked) return;
    if (found.error) { this.said.className = "error"; this.said.textContent = found.error; return; }
    this.said.textContent = `Answered in ${time(performance.now() - began)}.`;
    this.show(found, isNew ? this.trace : null);
  }
}

async function answer(what, trace, texts = []) {
  const query = new URLSearchParams([["trace", trace], ...texts.map((text) => ["whatif", text])]);
  try {
    return await (await fetch(`/api/${what}?${query}`)).json();
  } catch (problem) {
    return { error: `The server does not answer (${problem.message}); is foretrace serve still running?` };
  }
}

function parameterInput(parameter) {
  if (parameter.type === "bool") return el("input", { type: "checkbox", checked: parameter.default === true });
  const numeric = /^(int|float)/.test(parameter.type), given = parameter.default;
  const value = given === null || given === undefined ? (parameter.required && numeric ? "2" : "") : String(given);
  return el("input", { type: "text", value, autocomplete: "off", spellcheck: "false", inputmode: numeric ? "decimal" : "text", placeholder: parameter.type });
}

// the text that the command line takes; null while a needed parameter is missing
function whatIfText({ transform, inputs }) {
  const given = [];
  for (const [at, { name, type, required, default: usual }] of transform.parameters.entries()) {
    const input = inputs[at], value = input.type === "checkbox" ? input.checked : input.value.trim();
    if (value === "" && required) return null;
    if (value === "" || String(value) === String(usual)) continue;
    given.push(`${name}=${literal(value, type)}`);
  }
  return given.length ? `${transform.name}(${given.join(", ")})` : transform.name;
}

function literal(value, type) {
  if (typeof value === "boolean") return value ? "True" : "False";
  const isNumber = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(value);
  if (isNumber && /int|float|Any/.test(type)) return value;
  return /^[[{(]/.test(value) && !/^str/.test(type) ? value : JSON.stringify(value);
}
