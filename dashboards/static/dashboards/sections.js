// A board is long: its sections fold, and this browser remembers which. On a narrow screen only the
// first is open until somebody says otherwise. Charts of folded sections are not drawn.
(() => {
  "use strict";
  const boards = window.boards, board = boards.board, KEY = "emberline.sections";
  const sections = [...board.querySelectorAll("[data-section]")], all = board.querySelector("[data-fold-all]");
  const remembered = () => {
    try {
      return JSON.parse(window.localStorage.getItem(KEY)) || {};
    } catch { // storage is off, or not ours
      return {};
    }
  };
  const remember = (changed) => {
    const open = Object.fromEntries(changed.map((section) => [section.dataset.section, section.open]));
    try {
      window.localStorage.setItem(KEY, JSON.stringify({ ...remembered(), ...open }));
    } catch { /* then it is as it was at the next visit */ }
    name();
  };
  const name = () => { if (all) all.textContent = sections.some((section) => section.open) ? "Fold all" : "Unfold all"; };

  const known = remembered(), narrow = window.matchMedia("(max-width: 767px)").matches;
  sections.forEach((section, place) => {
    section.open = known[section.dataset.section] ?? (!narrow || place === 0);
    // Its own click only: what a script opens is not what somebody chose.
    section.querySelector("summary").addEventListener("click", () => window.setTimeout(() => remember([section])));
  });
  if (all && sections.length > 1) {
    all.hidden = false;
    all.addEventListener("click", () => {
      const open = !sections.some((section) => section.open);
      sections.forEach((section) => { section.open = open; });
      remember(sections);
    });
  }
  const unfold = (section) => {
    if (!section) return;
    section.open = true;
    name();
    section.scrollIntoView({ block: "start" });
    section.querySelector("summary").focus({ preventScroll: true });
  };
  board.addEventListener("click", (event) => {
    const link = event.target.closest("[data-jump]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault(); // the address stays what the board shows
    unfold(board.querySelector(link.hash));
  });
  if (window.location.hash) unfold(sections.find((section) => `#${section.id}` === window.location.hash));
  name();

  const LACKING = ["not_scraped", "absent", "needs", "unpriced", "bad_query", "too_slow"];
  (boards.arrived = boards.arrived || []).push((data) => sections.forEach((section) => {
    const states = data.panels.filter(({ id }) => section.querySelector(`[data-panel="${id}"]`)).map(({ state }) => state);
    const without = states.filter((state) => LACKING.includes(state)).length, old = states.filter((state) => state === "stale").length;
    const told = [`${states.length} panel${states.length === 1 ? "" : "s"}`, without && `${without} without numbers`, old && `${old} with old numbers`];
    section.querySelector("[data-told]").textContent = told.filter(Boolean).join(", ");
  }));
})();
