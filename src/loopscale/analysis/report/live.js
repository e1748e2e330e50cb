// The live page. Server-sent events bring parts of the state as data, and this script shows them.
// Every text of a study is set as text and never as markup, so no label and no traceback can become code.
"use strict";

const constants = JSON.parse(document.getElementById("constants").textContent);
const settings = {responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtonsToRemove: ["select2d", "lasso2d"]};
const narrow = window.matchMedia("(max-width: 40rem)");
const dashes = ["solid", "dash", "dot", "dashdot", "longdash"];
const LEAST_PAUSE = 1500;  // milliseconds between two drawings of a figure
const DRAWING_SHARE = 15;  // a drawing is followed by a pause of this many times the drawing
const CURVE = "curve ";
const MOST_MARKED = 400;
const MOST_ENTRIES = 24;  // a longer legend would leave no room for the curves

const parts = new Map();
const place = id => document.getElementById(id);
const part = (name, otherwise) => parts.has(name) ? parts.get(name) : otherwise;

// ---- texts and tables

function setText(node, text) {
  text = String(text === null || text === undefined ? "" : text);
  if (node.textContent !== text) node.textContent = text;
}

function digits(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(4))) : "–";
}

function clock(seconds) {
  const minutes = Math.round(seconds / 60), hours = Math.floor(minutes / 60);
  if (hours >= 48) return `${Math.round(hours / 24)} days`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes >= 2 ? `${minutes} min` : `${Math.round(seconds)} s`;
}

// Rows keep their elements from message to message, so that an opened traceback and a selection stay.
function fill(body, rows, write) {
  const known = new Map(Array.from(body.rows, row => [row.dataset.id, row]));
  rows.forEach((row, number) => {
    let line = known.get(row.id);
    if (!line) {
      line = document.createElement("tr");
      line.dataset.id = row.id;
    }
    known.delete(row.id);
    if (body.rows[number] !== line) body.insertBefore(line, body.rows[number] || null);
    write(row).forEach((cell, column) => {
      let box = line.cells[column];
      if (!box) {
        box = document.createElement(column ? "td" : "th");
        if (!column) box.scope = "row";
        if (cell.kind) box.className = cell.kind;
        line.appendChild(box);
      }
      if (cell.detail !== undefined) setDetail(box, cell.text, cell.detail); else setText(box, cell.text);
    });
  });
  known.forEach(line => line.remove());
}

function setDetail(box, text, detail) {
  if (!box.firstChild) box.append(document.createElement("span"), document.createElement("details"));
  const [line, more] = box.children;
  setText(line, text);
  more.hidden = !detail;
  if (!more.firstChild) {
    more.append(document.createElement("summary"), document.createElement("pre"));
    more.firstChild.textContent = "all that is recorded";
    more.lastChild.tabIndex = 0;
  }
  setText(more.lastChild, detail);
}

const word = text => ({text});
const count = text => ({text, kind: "n"});

function show(id, visible) {
  place(id).hidden = !visible;
}

// 100 % stands for a study without any work left.
function percentDone(header) {
  return `${Math.floor(100 * header.work)} %`;
}

function showHeader() {
  const header = part("header", {});
  setText(place("study"), header.study || "…");
  setText(place("source"), header.source ? ` · after ${header.source}` : "");
  setText(place("store"), header.store);
  setText(place("question"), header.question || "Waiting for the records");
  const waits = header.stage ? ` Waits for ${header.stage}.` : "";
  setText(place("state"), `The study ${header.state}.${waits}`.replace(/^The study (over|stopped)/, "The study is $1")
    .replace("The study not", "The state of the study is not"));
  place("work").value = header.work || 0;
  const facts = [];
  if (header.work !== undefined) facts.push([percentDone(header), "of the work"]);
  if (header.planned !== undefined) facts.push([`${header.over} of ${header.planned}`, "trials are over"]);
  if (header.baselines) facts.push([`${header["baselines over"]} of ${header.baselines}`, "baselines"]);
  if (header.running) {
    const left = header["seconds left"];
    facts.push(left === null ? ["time left", "not known yet"] : [`about ${clock(left)}`, "left"]);
  }
  for (const budget of header.budget || []) {
    facts.push(budget.limit === null ? [digits(budget.used), `${budget.unit} used`]
      : [digits(budget.left), `of ${digits(budget.limit)} ${budget.unit} left`]);
  }
  const list = place("facts");
  while (list.children.length > facts.length) list.lastChild.remove();
  facts.forEach(([strong, rest], number) => {
    if (!list.children[number]) {
      const item = document.createElement("li");
      item.append(document.createElement("strong"), " ", document.createElement("span"));
      list.append(item);
    }
    setText(list.children[number].firstChild, strong);
    setText(list.children[number].lastChild, rest);
  });
  show("report-place", Boolean(header.report));
  setText(place("report-place"), header.report ? `The final report is ${header.report}` : "");
  const alarms = [header.away, header["ended early"]];
  if (header.problem) {
    const since = new Date(1000 * header.problem[0]).toLocaleTimeString();
    alarms.push(`The records do not answer since ${since}: ${header.problem[1]}. The page shows the last known state.`);
  }
  const alarm = place("alarm");
  setText(alarm, alarms.filter(Boolean).join(" "));
  alarm.hidden = !alarm.textContent;
  const share = header.work === undefined ? "" : `${percentDone(header)} · `;
  document.title = `${share}${header.study || "live"} · loopscale`;
  showHours(header.budget || []);
  showChoice(header.labels || []);
}

function showHours(budget) {
  show("no-hours", !budget.length);
  show("hour-table", budget.length);
  fill(place("hour-rows"), budget.map(row => ({...row, id: row.unit})), row => [
    word(row.unit), count(digits(row.used)), count(row.limit === null ? "no limit" : digits(row.limit)), count(digits(row.left)),
  ]);
}

function showChoice(labels) {
  const chosen = place("chosen");
  if (chosen.options.length === labels.length + 1) return;
  while (chosen.options.length > 1) chosen.lastChild.remove();
  labels.forEach((label, number) => {
    const option = document.createElement("option");
    option.value = String(number);
    option.textContent = label || "the study";
    chosen.append(option);
  });
}

function showCells() {
  fill(place("cell-rows"), part("cells", []), row => [
    word(row.label), word(row.state), word(row.tuned), count(row.pruned), word(row.replicates), count(row.running),
    count(row.without), count(digits(row.best)),
  ]);
}

function showWorkers() {
  const rows = part("workers", []);
  show("no-workers", !rows.length);
  show("worker-table", rows.length);
  fill(place("worker-rows"), rows, row => [
    word(row.name), word(row.cell), word(row.does), word(row.host || "–"),
    count(row.steps ? `${row.step} of ${row.steps}` : "–"),
    count(row.steps ? `${Math.round(100 * row.step / row.steps)} %` : "–"), count(digits(row.error)), count(row.attempt),
  ]);
}

function showFailures() {
  const failures = part("failures", {rows: [], "left out": 0});
  show("no-failures", !failures.rows.length);
  show("failure-table", failures.rows.length);
  setText(place("omitted-failures"), failures["left out"] ? `${failures["left out"]} more are left out.` : "");
  fill(place("failure-rows"), failures.rows, row => [
    word(`${row.name} (${row.trial})`), word(row.cell), {text: row.what, kind: "what"}, count(row.step),
    {text: row.reason, detail: row.detail, kind: "reason"},
  ]);
}

function showDecisions() {
  const decisions = part("decisions", []);
  show("decision-section", decisions.length);
  show("decision-link", decisions.length);
  fill(place("decision-rows"), decisions, row => [
    word(row.question), count(row.look), count(digits(row.estimate)), word(row.word), {text: row.end, kind: "reason"},
  ]);
}

// ---- figures

const markup = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const colour = cell => constants.palette[Math.max(cell, 0) % constants.palette.length];
const dash = cell => dashes[Math.floor(Math.max(cell, 0) / constants.palette.length) % dashes.length];

function labelOf(cell) {
  return markup((part("header", {}).labels || [])[cell] || "the study");
}

function baseLayout(choice) {
  const axis = {gridcolor: "#e4e7ec", linecolor: "#667085", zeroline: false, ticks: "outside", automargin: true};
  return {
    font: {family: "system-ui, sans-serif", size: 14, color: "#1d2939"}, paper_bgcolor: "white", plot_bgcolor: "white",
    margin: {l: narrow.matches ? 52 : 64, r: 16, t: 16, b: 56}, height: 440, hovermode: "closest",
    legend: {orientation: "h", yref: "container", yanchor: "bottom", y: 0, x: 0},
    dragmode: narrow.matches ? false : "zoom",
    uirevision: `cell ${choice}`,  // zoom and hidden series stay from drawing to drawing
    xaxis: {...axis}, yaxis: {...axis},
  };
}

// Plotly's own labels of a logarithmic axis omit the leading digit between powers.
function logTicks(values) {
  const low = Math.min(...values), high = Math.max(...values), decades = Math.log10(high / low), ticks = [];
  if (decades < 0.35) {  // on so short a range a logarithm is nearly linear
    const span = 1.25 * high - low / 1.25, power = 10 ** Math.floor(Math.log10(span / 8));
    const step = power * [1, 2, 5, 10].find(factor => span / (factor * power) <= 8);
    for (let number = Math.ceil(low / 2 / step); number * step < 2 * high; number += 1) ticks.push(number * step);
  } else {
    const steps = decades < 0.8 ? [1, 1.5, 2, 3, 4, 5, 7] : decades < 3 ? [1, 2, 5] : [1];
    for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.ceil(Math.log10(high)) + 1; power += 1) {
      for (const step of steps) ticks.push(step * 10 ** power);
    }
  }
  const tickvals = ticks.map(tick => Number(tick.toPrecision(3))).filter(tick => tick > 0);
  return {tickvals, ticktext: tickvals.map(String)};
}

function curveFigure(choice) {
  const groups = new Map(), ends = [], all = [];
  for (const [name, curve] of parts) {
    if (!name.startsWith(CURVE) || (choice !== "" && String(curve.cell) !== choice)) continue;
    const key = `${curve.cell} ${curve.role === "replicate" ? 1 : 0}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(curve);
  }
  // A line through one validation is invisible, so few validations have markers.
  const few = Array.from(groups.values()).flat().reduce((sum, curve) => sum + curve.x.length, 0) < MOST_MARKED;
  const traces = [];  // plotly uses the uid as a class of CSS: letters and digits
  for (const [key, curves] of Array.from(groups).sort((a, b) => a[0].localeCompare(b[0], undefined, {numeric: true}))) {
    const replicates = key.endsWith(" 1"), cell = curves[0].cell, x = [], y = [], text = [];
    for (const curve of curves) {
      const about = `${labelOf(cell)}<br>${markup(curve.name)}, ${markup(curve.outcome.replace(/_/g, " "))}`;
      curve.x.forEach((step, number) => {
        x.push(step); y.push(curve.y[number]); text.push(about);
        if (curve.y[number] > 0) all.push(curve.y[number]);
      });
      x.push(null); y.push(null); text.push(null);
      if (curve.outcome === "running" && curve.x.length) ends.push({curve, about});
    }
    const role = replicates ? "replicates" : "tuning";
    traces.push({
      type: "scatter", mode: few ? "lines+markers" : "lines", uid: `cell${key.replace(" ", "role")}`, marker: {size: 4, color: colour(cell)}, x, y, text, name: `${labelOf(cell)}, ${role}`,
      line: {color: colour(cell), width: replicates ? 2.4 : 1.1, dash: dash(cell)}, opacity: replicates ? 1 : 0.7,
      hovertemplate: "%{text}<br>step %{x}: %{y}<extra></extra>",
    });
  }
  if (ends.length) {
    traces.push({
      type: "scatter", mode: "markers", uid: "ends", name: "runs now", text: ends.map(end => end.about),
      x: ends.map(end => end.curve.x[end.curve.x.length - 1]), y: ends.map(end => end.curve.y[end.curve.y.length - 1]),
      marker: {size: 11, symbol: "circle-open", color: ends.map(end => colour(end.curve.cell)), line: {width: 2.5}},
      hovertemplate: "%{text}<br>step %{x}: %{y}<extra></extra>",
    });
  }
  const layout = baseLayout(choice), entries = choice === "" ? 2 * (part("header", {}).labels || []).length : 2;
  // The height depends on the cells and not on the curves so far, so that the page below does not move.
  layout.showlegend = entries <= MOST_ENTRIES;
  if (layout.showlegend) layout.height += 22 * Math.max(0, Math.ceil(entries / (narrow.matches ? 1 : 4)) - 3);
  show("no-legend", !layout.showlegend);
  Object.assign(layout.xaxis, {title: {text: "training step (count)"}, rangemode: "tozero"});
  Object.assign(layout.yaxis, {title: {text: errorTitle()}, type: "log"}, all.length ? logTicks(all) : {});
  if (!all.length) layout.annotations = [emptyNote("No validation yet.")];
  return {traces, layout};
}

function errorTitle() {
  return narrow.matches ? "validation error" : "validation error (1 = predicting nothing)";
}

function emptyNote(text) {
  return {text, showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5};
}

// The place of every value on an axis from 0 to 1, and the labels beside the axis.
function scale(values, log) {
  const present = values.filter(value => value !== null), numeric = present.every(value => typeof value === "number");
  if (numeric && present.length) {
    const logarithmic = log && Math.min(...present) > 0, map = value => logarithmic ? Math.log(value) : value;
    const low = map(Math.min(...present)), high = map(Math.max(...present));
    const at = share => low + share * (high - low), back = value => logarithmic ? Math.exp(value) : value;
    const shares = high > low ? [0, 0.5, 1] : [0.5];
    const ends = shares.map(share => back(high > low ? at(share) : low));
    const few = new Set(ends.map(end => end.toPrecision(3))).size === ends.length ? 3 : 5;
    return {
      place: value => value === null ? null : high > low ? (map(value) - low) / (high - low) : 0.5,
      ticks: shares.map((share, number) => [share, String(Number(ends[number].toPrecision(few)))]),
    };
  }
  const words = Array.from(new Set(present.map(String))).sort(), top = Math.max(words.length - 1, 1);
  return {
    place: value => value === null ? null : words.indexOf(String(value)) / top,
    ticks: words.length > 12 ? [] : words.map((text, number) => [number / top, text]),
  };
}

function pointFigure(choice) {
  const points = part("points", {settings: [], rows: []});
  const rows = points.rows.filter(row => choice === "" || String(row[0]) === choice);
  const axes = [], several = new Set(rows.map(row => row[0])).size > 1;
  if (several) axes.push({name: "cell", values: rows.map(row => labelOf(row[0]))});
  points.settings.forEach((setting, number) => {
    const values = rows.map(row => row[4][number]);
    if (new Set(values).size > 1) axes.push({name: setting.path.split(".").pop(), values, log: setting.log});
  });
  axes.push({name: "error", values: rows.map(row => row[3]), log: true});
  const scales = axes.map(axis => scale(axis.values, axis.log));
  const ranked = rows.filter(row => row[2] === "finished" && row[3] !== null).map(row => row[3]).sort((a, b) => a - b);
  const fifth = row => Math.min(4, Math.floor(5 * ranked.indexOf(row[3]) / Math.max(ranked.length, 1)));
  const groups = new Map();
  const styleOf = row => {
    if (row[2] === "running") return {name: "running", line: {color: "#D55E00", dash: "dash", width: 1.6}, order: 6};
    if (row[2] !== "finished") return {name: "pruned, stopped or without result", line: {color: "#98a2b3", dash: "dot", width: 1.2}, order: 0};
    const part = fifth(row);
    return {name: constants["names of fifths"][part], line: {color: constants.fifths[part], width: 2.6 - 0.35 * part}, order: 5 - part};
  };
  rows.forEach((row, number) => {
    const style = styleOf(row);
    if (!groups.has(style.name)) groups.set(style.name, {...style, x: [], y: [], text: []});
    const group = groups.get(style.name);
    axes.forEach((axis, column) => {
      const value = axis.values[number], shown = typeof value === "number" ? digits(value) : value === null ? "none" : value;
      group.x.push(column); group.y.push(scales[column].place(value));
      group.text.push(`${labelOf(row[0])}, ${markup(row[1])}: ${markup(row[2].replace(/_/g, " "))}<br>${markup(axis.name)} = ${axis.name === "cell" ? shown : markup(shown)}`);
    });
    group.x.push(null); group.y.push(null); group.text.push(null);
  });
  const traces = Array.from(groups.values()).sort((a, b) => a.order - b.order).map(group => ({
    type: "scatter", mode: "lines+markers", uid: `order${group.order}`, name: group.name, x: group.x, y: group.y, text: group.text,
    line: group.line, marker: {size: 6}, hovertemplate: "%{text}<extra></extra>",
  }));
  const layout = baseLayout(choice);
  Object.assign(layout.xaxis, {
    tickvals: axes.map((_, number) => number), ticktext: axes.map(axis => markup(axis.name)),
    range: [-0.15, axes.length - 1 + (narrow.matches ? 0.45 : 0.3)], fixedrange: true, showgrid: false,
  });
  Object.assign(layout.yaxis, {visible: false, range: [-0.08, 1.06], fixedrange: true});
  layout.legend.traceorder = "reversed";
  layout.shapes = axes.map((_, number) => ({type: "line", x0: number, x1: number, y0: 0, y1: 1, line: {color: "#667085", width: 1}, layer: "below"}));
  layout.annotations = scales.flatMap((each, number) => each.ticks.map(([height, text]) => ({
    x: number, y: height, text: axes[number].name === "cell" ? text : markup(text), showarrow: false, xshift: 8, xanchor: "left",
    font: {size: 11}, bgcolor: "rgba(255,255,255,0.75)",
  })));
  if (!rows.length) layout.annotations = [emptyNote("No tuning trial yet.")];
  return {traces, layout};
}

// A screen reader sees one named picture and not many vector groups.
function nameForScreenReader(plot, title) {
  plot.querySelectorAll("svg.main-svg").forEach((drawing, number) => {
    if (number) { drawing.setAttribute("aria-hidden", "true"); return; }
    drawing.setAttribute("role", "img");
    drawing.setAttribute("aria-label", title);
  });
}

// A figure is drawn when its data have changed, the page is visible, no button of the mouse is down, and a pause is over.
class LiveFigure {
  constructor(id, title, make) {
    this.plot = place(id); this.title = title; this.make = make;
    this.due = 0; this.timer = null; this.held = false;
    this.plot.addEventListener("pointerdown", () => { this.held = true; }, true);
    window.addEventListener("pointerup", () => { this.held = false; this.changed(); }, true);
    document.addEventListener("visibilitychange", () => this.changed());
    this.dirty = false;
  }

  changed(now) {
    if (now !== undefined) this.dirty = true;
    if (!this.dirty || this.timer || this.held || document.hidden) return;
    this.timer = setTimeout(() => this.draw(), now ? 0 : Math.max(0, this.due - performance.now()));
  }

  async draw() {
    this.timer = null;
    if (this.held || document.hidden) return;
    this.dirty = false;
    const began = performance.now(), {traces, layout} = this.make(place("chosen").value);
    await Plotly.react(this.plot, traces, layout, settings);
    nameForScreenReader(this.plot, this.title);
    if (!this.named) {
      this.named = true;
      this.plot.on("plotly_afterplot", () => nameForScreenReader(this.plot, this.title));
    }
    const ended = performance.now();
    this.due = ended + Math.max(LEAST_PAUSE, DRAWING_SHARE * (ended - began));
    this.changed();
  }
}

const figures = {
  curves: new LiveFigure("curve-plot", "Learning curves", curveFigure),
  points: new LiveFigure("point-plot", "Trials by point", pointFigure),
};
place("chosen").addEventListener("change", () => { figures.curves.changed(true); figures.points.changed(true); });

// ---- events

function take(changed, whole) {
  if (whole) parts.clear();
  for (const [name, value] of Object.entries(changed)) {
    if (value === null) parts.delete(name); else parts.set(name, value);
  }
  const names = Object.keys(changed), has = name => whole || names.includes(name);
  if (has("header")) showHeader();
  if (has("cells")) showCells();
  if (has("workers")) showWorkers();
  if (has("failures")) showFailures();
  if (has("decisions")) showDecisions();
  if (has("points")) {
    const points = part("points", {settings: [], "left out": 0});
    setText(place("omitted-points"), points["left out"] ? `${points["left out"]} more trials are left out.` : "");
    show("no-points", !points.settings.length);
    show("point-figure", points.settings.length);
    if (points.settings.length) figures.points.changed(false);
  }
  if (whole || names.some(name => name.startsWith(CURVE))) figures.curves.changed(false);
  if (has("omitted curves")) {
    const omitted = part("omitted curves", 0);
    setText(place("omitted-curves"), omitted ? `${omitted} more curves are left out.` : "");
  }
}

function connection(text) {
  setText(place("connection"), text);
}

const source = new EventSource("events");
const now = () => new Date().toLocaleTimeString();
source.addEventListener("state", event => { take(JSON.parse(event.data), true); connection("The page follows the study."); });
source.addEventListener("message", event => take(JSON.parse(event.data), false));
source.addEventListener("end", event => {
  source.close();
  take(JSON.parse(event.data), false);
  connection(`The server of this page has ended at ${now()}. The page shows the last state.`);
});
source.addEventListener("error", () => {
  const again = source.readyState === EventSource.CONNECTING ? "The page tries again." : "Load the page again.";
  connection(`The server of this page does not answer since ${now()}. ${again}`);
});
