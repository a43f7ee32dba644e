// The legend of a chart: a key of each series with its colour, dash and latest value. A click hides it.
(() => {
  "use strict";
  const boards = window.boards, SVG = document.querySelector("svg").namespaceURI; // an icon of the page
  const hidden = new WeakMap(); // chart -> names of hidden series
  const of = (chart) => hidden.get(chart) || hidden.set(chart, new Set()).get(chart);
  const shape = (tag, attributes) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const swatch = (trace) => {
    const filled = trace.type === "bar" || trace.stackgroup, colour = (trace.type === "bar" ? trace.marker : trace.line).color;
    const drawing = shape("svg", { viewBox: "0 0 20 10", "aria-hidden": "true" });
    if (filled) drawing.append(shape("rect", { width: 20, height: 10, rx: 2 }));
    else drawing.append(shape("line", { x1: 0, y1: 5, x2: 20, y2: 5, "stroke-width": 3, "stroke-dasharray": (trace.line.dash || "").replace(/[a-z]+/g, "").replace(/^,|,$/g, "") || "none" }));
    drawing.dataset.colour = colour;
    return drawing;
  };
  const tint = (list) => list.querySelectorAll("[data-colour]").forEach(({ dataset, firstChild, style }) => {
    style.color = boards.ink(dataset.colour);
    firstChild.setAttribute(firstChild.tagName === "rect" ? "fill" : "stroke", "currentColor");
  });
  const key = (chart, trace, value) => {
    const label = Object.assign(document.createElement("span"), { textContent: trace.name, className: "text-truncate" });
    const latest = Object.assign(document.createElement("span"), { textContent: value, className: "panel-value" });
    const button = Object.assign(document.createElement("button"), { type: "button", title: `Show or hide ${trace.name}` });
    button.setAttribute("aria-pressed", String(!of(chart).has(trace.name)));
    button.append(swatch(trace), label, latest);
    button.addEventListener("click", () => {
      const names = of(chart), on = names.delete(trace.name);
      if (!on) names.add(trace.name);
      button.setAttribute("aria-pressed", String(on));
      boards.redraw(chart);
    });
    return boards.make("li", button);
  };
  boards.legend = (card, { figure, table }) => {
    const list = card.querySelector(".panel-legend"), chart = card.querySelector(".panel-chart");
    const traces = figure && card.dataset.kind !== "numbers" ? figure.data.filter(({ type, meta }) => type !== "heatmap" && meta !== "before") : [];
    const last = table.head.indexOf("Last");
    const latest = new Map(table.rows.map((cells) => [cells[0], cells[last]]));
    const held = list.contains(document.activeElement) ? [...list.querySelectorAll("button")].indexOf(document.activeElement) : -1;
    list.hidden = !traces.length;
    list.replaceChildren(...traces.map((trace) => key(chart, trace, latest.get(trace.name) || "")));
    tint(list);
    if (held >= 0) list.querySelectorAll("button")[held]?.focus();
  };
  boards.select.push((traces, chart) => traces.map((trace) => (of(chart).has(trace.name.replace(/ \(previous\)$/, "")) ? { ...trace, visible: false } : trace)));
  document.addEventListener("emberline:theme", () => document.querySelectorAll(".panel-legend").forEach(tint));
})();
