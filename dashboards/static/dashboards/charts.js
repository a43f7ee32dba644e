// Draws what was put into a chart once it comes near the screen. Knows no board and asks nobody.
(() => {
  "use strict";
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const waiting = new WeakMap(); // chart -> the newest figure nobody has seen yet
  const shown = new WeakMap(); // chart -> its figure
  const near = new WeakSet(), born = new WeakSet();
  // `dress`: (layout, chart) => layout, and `select`: (traces, chart) => traces, before each drawing.
  // `greet`: (chart), after the first.
  const boards = (window.boards = { dress: [], select: [], greet: [], zone: { name: "UTC", offset_s: 0 } });

  // The theme's shade of a figure's colour (panels.css).
  boards.ink = (colour) => {
    const name = `--chart-${String(colour).slice(1).toLowerCase()}`;
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || colour;
  };
  const inked = (trace, part) => (trace[part] && trace[part].color ? { [part]: { ...trace[part], color: boards.ink(trace[part].color) } } : {});
  // Times in the reader's zone, and back. Texts: Plotly draws them as they are, but shifts numbers into the browser's zone.
  boards.local = (epochS) => new Date((epochS + boards.zone.offset_s) * 1000).toISOString().slice(0, 23);
  boards.epoch = (shownMs) => shownMs / 1000 - boards.zone.offset_s;
  boards.clock = (epochS) => `${boards.local(epochS).slice(0, 19).replace("T", " ")} ${boards.zone.name}`;
  const moved = (trace) => (trace.x0 === undefined ? {} : { x0: boards.local(trace.x0 / 1000) });
  const coloured = (trace) => ({ ...trace, ...moved(trace), ...inked(trace, "line"), ...inked(trace, "marker") });

  const draw = async (chart) => {
    const figure = waiting.get(chart);
    if (!figure || !near.has(chart)) return;
    waiting.delete(chart);
    const layout = boards.dress.reduce((made, add) => add(made, chart), { ...figure.layout });
    const traces = boards.select.reduce((made, choose) => choose(made, chart), figure.data.map(coloured));
    await window.Plotly.react(chart, traces, layout, config);
    if (born.has(chart)) return;
    born.add(chart);
    boards.greet.forEach((hello) => hello(chart));
  };
  // A task for each chart: between two of them the page scrolls and answers keys.
  const queue = new Set();
  let drawing = false;
  const paint = async (chart) => {
    queue.add(chart);
    if (drawing) return;
    drawing = true;
    for (const next of queue) { // also what is added meanwhile
      await new Promise((done) => { window.setTimeout(done); });
      queue.delete(next);
      await draw(next).catch(window.reportError);
    }
    drawing = false;
  };
  const watcher = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (isIntersecting) near.add(target);
      else near.delete(target);
      paint(target);
    }
  }, { rootMargin: "300px 0px" });

  boards.put = (chart, figure) => {
    chart.hidden = !figure;
    if (!figure) return;
    waiting.set(chart, figure);
    shown.set(chart, figure);
    watcher.observe(chart);
    paint(chart);
  };
  boards.redraw = (chart) => boards.put(chart, shown.get(chart));
  boards.drawn = () => [...document.querySelectorAll(".panel-chart")].filter((chart) => born.has(chart) && near.has(chart));
  document.addEventListener("emberline:theme", () => document.querySelectorAll(".panel-chart").forEach((chart) => { if (shown.has(chart)) boards.redraw(chart); }));
})();
