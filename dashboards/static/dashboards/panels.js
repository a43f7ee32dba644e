// One request for the whole page, then Plotly.react: its constant uirevision keeps zoom and hidden lines.
(() => {
  "use strict";
  const board = document.querySelector("[data-board]"); // this script comes with such pages only
  const status = board.querySelector("[data-board-status]");
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const pause = Number(board.dataset.pollS) * 1000;
  let failures = 0, timer = 0, busy = false, good = "";
  const make = (tag, ...inside) => {
    const node = document.createElement(tag);
    node.append(...inside);
    return node;
  };
  const row = (tag, cells) => make("tr", ...cells.map((text, at) => make(at ? tag : "th", text)));
  const tell = (place, message) => {
    const note = place.querySelector(".panel-message");
    note.hidden = !message;
    if (!message) return;
    note.className = `panel-message alert alert-${message.level}`;
    for (const part of ["title", "text", "fix"]) note.querySelector(`[data-${part}]`).textContent = message[part];
  };
  const draw = (panel, fault) => {
    const card = board.querySelector(`[data-panel="${panel.id}"]`), chart = card.querySelector(".panel-chart");
    card.dataset.state = panel.state;
    tell(card, fault ? null : panel.message); // what is true of the whole page is said once
    if (panel.state === "prometheus") return; // the last chart stays: old, not wrong
    chart.hidden = !panel.figure;
    chart.setAttribute("aria-label", panel.spoken);
    if (panel.figure) window.Plotly.react(chart, panel.figure.data, panel.figure.layout, config);
    card.querySelector("thead").replaceChildren(row("th", panel.table.head));
    card.querySelector("tbody").replaceChildren(...panel.table.rows.map((cells) => row("td", cells)));
  };
  const say = (text, stale) => {
    status.textContent = stale && good ? `Stale since ${good}. ${text}` : text;
    status.className = stale ? "board-stale" : "text-secondary";
  };
  const show = (data) => {
    failures = 0;
    tell(board, data.fault);
    data.panels.forEach((panel) => draw(panel, data.fault));
    if (!data.fault) good = data.at;
    say(data.fault ? `${data.fault.title}.` : `Scraped now: ${data.scraped}. ${data.at}`, Boolean(data.fault));
  };
  const ask = async () => {
    const answer = await fetch(board.dataset.url, { redirect: "manual", signal: AbortSignal.timeout(20000) });
    if (answer.type === "opaqueredirect") window.location.reload(); // logged out meanwhile
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    show(await answer.json());
  };
  const poll = async () => {
    window.clearTimeout(timer);
    if (busy || document.hidden) return; // a hidden tab asks nothing; it asks at once when shown
    busy = true;
    await ask().catch((error) => { failures += 1; say(`The console does not answer (${error.message}).`, true); });
    busy = false;
    if (pause) timer = window.setTimeout(poll, Math.min(60000, pause * 2 ** failures));
  };
  document.addEventListener("visibilitychange", poll);
  document.addEventListener("DOMContentLoaded", poll);
})();
