// Draws the canary's figures, again when a new result is on the page.
(() => {
  "use strict";
  const place = document.querySelector("[data-canary-url]");
  const version = () => { const state = document.querySelector("[data-version]"); return state ? state.dataset.version : ""; };
  let drawn = null;
  const draw = async () => {
    const now = version();
    if (!now || now === drawn) return;
    drawn = now;
    const answer = await fetch(place.dataset.canaryUrl, { redirect: "manual", signal: AbortSignal.timeout(20000) });
    if (!answer.ok) { drawn = null; return; }
    const { charts } = await answer.json();
    if (charts.length && !document.getElementById(`chart-${charts[0].id}`)) { window.location.reload(); return; } // the first result
    for (const { id, spoken, figure } of charts) {
      const chart = document.getElementById(`chart-${id}`);
      chart.setAttribute("aria-label", spoken);
      window.boards.put(chart, figure);
    }
  };
  const attempt = () => draw().catch(() => { drawn = null; }); // the next result draws
  document.addEventListener("DOMContentLoaded", attempt);
  document.addEventListener("htmx:afterSettle", () => {
    const state = document.querySelector("[data-canary-state]"), form = document.getElementById("start-title");
    if (state && state.dataset.canaryState !== "running" && !form) window.location.reload(); // it ended: the form comes back
    attempt();
  });
})();
