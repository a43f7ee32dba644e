// How a board is looked at: zoom and other times without leaving the page, one crosshair for all
// charts, a line's own page, pictures and links. The address always says what is shown.
(() => {
  "use strict";
  const boards = window.boards, board = boards.board, SHORTEST = 60;

  // ---- another look: the server draws its tools, the charts stay until their numbers come
  const parts = "[data-board-tools], [data-panel] .panel-actions";
  const ids = (root) => [...root.querySelectorAll("[data-panel]")].map((card) => card.dataset.panel).join();
  let turn = 0; // a look asked for later is not undone by the late answer to an earlier one
  boards.go = async (url, push = true, exact = false) => {
    const mine = (turn += 1);
    try {
      const answer = await fetch(url, { redirect: "error", signal: AbortSignal.timeout(15000) });
      const text = await answer.text();
      if (mine !== turn) return;
      const page = new DOMParser().parseFromString(text, "text/html");
      const other = page.querySelector("[data-board]"), old = [...board.querySelectorAll(parts)];
      const made = other ? [...other.querySelectorAll(parts)] : [];
      if (!answer.ok || ids(other) !== ids(board) || made.length !== old.length) throw new Error("another page");
      const held = document.activeElement && document.activeElement.getAttribute("aria-label");
      old.forEach((node, at) => node.replaceWith(made[at]));
      for (const name of ["url", "pollS", "endpointUrl"]) if (name in other.dataset) board.dataset[name] = other.dataset[name];
      // Times typed without a zone are the reader's own: the address gets epoch seconds, for others to open.
      if (push) window.history.pushState(null, "", exact ? new URL(board.dataset.url, window.location).search : url);
      if (held) board.querySelector(`[data-board-tools] [aria-label="${CSS.escape(held)}"]`)?.focus();
      boards.poll();
    } catch {
      if (mine === turn) window.location.assign(url);
    }
  };
  const here = (url) => url.origin === window.location.origin && url.pathname === window.location.pathname;
  board.addEventListener("click", (event) => {
    const link = event.target.closest("[data-board-tools] a[href]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || link.hasAttribute("download") || !here(new URL(link.href))) return;
    event.preventDefault();
    boards.go(link.href);
  });
  board.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-board-tools] form");
    if (!form) return;
    event.preventDefault();
    const said = [...new FormData(form)].filter(([, value]) => value !== "");
    boards.go(`${window.location.pathname}?${new URLSearchParams(said)}`, true, said.some(([name]) => name === "from"));
  });
  window.addEventListener("popstate", () => boards.go(window.location.href, false));

  // ---- zoom: a stretch drawn in one chart is the time of all
  const seconds = (moment) => boards.epoch(typeof moment === "number" ? moment : Date.parse(`${moment.replace(" ", "T")}Z`));
  const zoomed = (change) => {
    const ends = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (ends.some((end) => end === undefined)) return;
    const [from, to] = ends.map(seconds), middle = (from + to) / 2, half = Math.max(to - from, SHORTEST) / 2;
    boards.go(boards.url({ from: Math.floor(middle - half), to: Math.ceil(middle + half), range: null }).href);
  };

  // ---- crosshair: the moment under the pointer, in every chart
  const mark = (chart, moment) => {
    const axes = chart._fullLayout && chart._fullLayout.xaxis;
    let line = chart.parentElement.querySelector(".panel-crosshair");
    if (moment === null || !axes || axes.type !== "date") { if (line) line.hidden = true; return; }
    if (!line) chart.parentElement.append((line = Object.assign(boards.make("div"), { className: "panel-crosshair" })));
    const at = axes.d2p(moment), inside = at >= 0 && at <= axes._length, tall = chart._fullLayout._size;
    line.hidden = !inside;
    line.style.cssText = `left:${axes._offset + at}px;top:${tall.t}px;height:${tall.h}px`;
  };
  const point = (moment, from) => boards.drawn().forEach((chart) => { if (chart !== from) mark(chart, moment); else mark(chart, null); });

  boards.greet.push((chart) => {
    const card = chart.closest("[data-panel]");
    chart.on("plotly_relayout", zoomed);
    chart.on("plotly_doubleclick", () => board.querySelector("[data-zoom-out]")?.click());
    chart.on("plotly_hover", ({ points }) => point(points[0].x, chart));
    chart.on("plotly_unhover", () => point(null, chart));
    chart.on("plotly_click", ({ points }) => {
      const name = points[0].data.meta === "before" ? "" : points[0].data.name, href = name && boards.leads(card, name);
      if (href) window.location.assign(href);
    });
  });

  // ---- all charts of times have the same times; hidden lines stay hidden. One panel fills the screen.
  boards.dress.push((layout, chart) => {
    const made = { ...layout }, { start, end } = boards.data.window;
    if (layout.xaxis && layout.xaxis.type === "date") made.xaxis = { ...layout.xaxis, range: [boards.local(start), boards.local(end)], uirevision: board.dataset.url };
    if (board.dataset.full !== undefined) made.height = Math.max(320, window.innerHeight - chart.getBoundingClientRect().top - window.scrollY - 90);
    return made;
  });

  // ---- a picture, and a link to just these times
  const save = (href, name) => Object.assign(document.createElement("a"), { href, download: name }).click();
  const picture = async (card) => {
    const chart = card.querySelector(".panel-chart"), title = card.querySelector(".card-title").textContent.trim();
    if (!chart.data) return;
    const ink = getComputedStyle(document.body), ground = getComputedStyle(card).backgroundColor;
    const layout = { ...chart.layout, width: 1200, height: 600, paper_bgcolor: ground, plot_bgcolor: ground,
      font: { ...chart.layout.font, color: ink.color, family: "sans-serif" }, title: { text: title, x: 0.02 },
      margin: { ...chart.layout.margin, t: 60 }, showlegend: card.dataset.kind !== "numbers", legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom" } };
    const made = await window.Plotly.toImage({ data: chart.data, layout }, { format: "png", width: 1200, height: 600, scale: 2 });
    save(made, `${document.title.split(" · ")[0]}-${card.dataset.panel}.png`.replace(/[^\w.-]+/g, "-").toLowerCase());
  };
  const link = async (button) => {
    const { start, end } = boards.data.window;
    const url = boards.url({ from: start, to: end, range: null, refresh: null }).href;
    try {
      await navigator.clipboard.writeText(url);
      window.emberline.toast("Link to this time range copied.", "success");
    } catch { // no right to the clipboard, or no TLS
      window.history.replaceState(null, "", url);
      window.emberline.toast("Clipboard unavailable. The page address is now the link to this time range.", "info");
    }
    button.focus();
  };
  board.addEventListener("click", (event) => {
    const button = event.target.closest("[data-png], [data-copy-link], [data-board-refresh]");
    if (!button) return;
    if (button.matches("[data-png]")) picture(button.closest("[data-panel]"));
    else if (button.matches("[data-board-refresh]")) boards.poll();
    else if (boards.data) link(button);
  });
})();
