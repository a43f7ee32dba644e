// One request for the whole page, then Plotly.react: its constant uirevision keeps zoom and hidden lines.
(() => {
  "use strict";
  const board = document.querySelector("[data-board]"); // this script comes with such pages only
  const status = board.querySelector("[data-board-status]");
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const pause = Number(board.dataset.pollS) * 1000;
  let failures = 0, timer = 0, busy = false, good = "";

  const row = (tags, cells) => {
    const line = document.createElement("tr");
    line.append(...cells.map((text, at) => {
      const cell = document.createElement(at ? tags[1] : "th");
      cell.textContent = text;
      return cell;
    }));
    return line;
  };
  const draw = (panel) => {
    const card = board.querySelector(`[data-panel="${panel.id}"]`);
    const chart = card.querySelector(".panel-chart"), note = card.querySelector(".panel-message");
    card.dataset.state = panel.state;
    note.hidden = !panel.message;
    note.className = `panel-message alert alert-${panel.message ? panel.message.level : "info"}`;
    for (const part of panel.message ? ["title", "text", "fix"] : []) note.querySelector(`[data-${part}]`).textContent = panel.message[part];
    if (panel.state === "prometheus") return; // the last chart stays: old, not wrong
    chart.hidden = !panel.figure;
    chart.setAttribute("aria-label", panel.spoken);
    if (panel.figure) window.Plotly.react(chart, panel.figure.data, panel.figure.layout, config);
    card.querySelector("thead").replaceChildren(row(["th", "th"], panel.table.head));
    card.querySelector("tbody").replaceChildren(...panel.table.rows.map((cells) => row(["th", "td"], cells)));
  };
  const say = (text, stale) => {
    status.textContent = stale && good ? `Stale since ${good}. ${text}` : text;
    status.classList.toggle("board-stale", stale);
  };
  const show = (data) => {
    failures = 0;
    data.panels.forEach(draw);
    if (data.fault) return say(data.fault.title + ".", true);
    good = data.at;
    say(`Scraped now: ${data.scraped.map((job) => `${job.label} ${job.up} of ${job.known}`).join(", ")}. ${data.at}`, false);
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
    timer = window.setTimeout(poll, Math.min(60000, pause * 2 ** failures));
  };
  document.addEventListener("visibilitychange", poll);
  document.addEventListener("DOMContentLoaded", poll);
})();
