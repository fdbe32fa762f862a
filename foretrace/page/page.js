// Puts the page together, from the data in it or, live, from what the server answers.

function show(data) {
  document.getElementById("top").replaceChildren(...head(data));
  const main = document.getElementById("main");
  const place = document.getElementById("shown") ?? main.appendChild(el("div", { id: "shown" }));
  place.replaceChildren(...[doubtsSection(data)].filter(Boolean), headline(data), ...(data.whole_job ? [jobSection(data)] : []), timelineSection(data), limitsSection(data), ...[useSection(data)].filter(Boolean), breakdownSection(data), notesSection(data), evidenceSection(data));
}

function showOutlook(place, { advice, sensitivity }) {
  place.replaceChildren(sensitivitySection(sensitivity), adviceSection(advice));
}

async function askOutlook(place, trace) {
  const asked = (place.dataset.trace = String(trace));
  place.replaceChildren(section("advice", "What to try", el("p", { class: "soft", role: "status" }, "Trying every what-if …")));
  const found = await answer("outlook", trace);
  if (place.dataset.trace !== asked) return;
  if (found.error) place.replaceChildren(section("advice", "What to try", el("p", { class: "error" }, found.error)));
  else showOutlook(place, found);
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent), main = document.getElementById("main");
  const outlook = el("div", { id: "outlook" });
  main.replaceChildren();
  if (data.live) {
    const form = new Form(data.live, (found, trace) => { show(found); if (trace !== null) askOutlook(outlook, trace); });
    main.append(form.node());
  }
  show(data);
  main.append(outlook);
  if (data.live) askOutlook(outlook, 0);
  else showOutlook(outlook, data);
  document.getElementById("end").append(`Predicted by Foretrace ${data.version} from one recording; the method and its limits stand in its documentation.`);
}

start();
