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
  const name = () => { if (all) all.textContent = sections.some((section) => section.open) ? "Collapse all" : "Expand all"; };

  const narrow = window.matchMedia("(max-width: 767px)").matches, chosen = new WeakSet(), lines = new Map();
  // By what is remembered; else a section without a chart is folded.
  const fold = (section) => {
    section.open = remembered()[section.dataset.section] ?? (!lines.get(section) && (!narrow || section === sections[0]));
    name();
  };
  sections.forEach((section) => {
    fold(section);
    // Its own click only: what a script opens is not what somebody chose.
    section.querySelector("summary").addEventListener("click", () => window.setTimeout(() => remember([section])));
  });
  if (all && sections.length > 1) {
    all.hidden = false;
    all.addEventListener("click", () => {
      const open = !sections.some((section) => section.open);
      sections.forEach((section) => { section.open = open; chosen.add(section); });
      remember(sections);
    });
  }
  const unfold = (section) => {
    if (!section) return;
    chosen.add(section);
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

  (boards.arrived = boards.arrived || []).push((data) => sections.forEach((section) => {
    const inside = data.panels.filter(({ id }) => section.querySelector(`[data-panel="${id}"]`));
    const groups = boards.grouped(section, inside), count = groups.reduce((sum, { panels }) => sum + panels.length, 0);
    const old = inside.filter(({ state }) => state === "stale").length, lacking = groups.every((group) => group.lacking);
    const without = boards.isEmpty(data) || (Boolean(inside.length) && count === inside.length), what = lacking ? "unavailable" : "without data";
    const head = `${inside.length} panel${inside.length === 1 ? "" : "s"}`;
    const told = without && count ? [`${head} ${what}: ${groups.map(({ title }) => title).join("; ")}`] : [head, count && `${count} ${what}`, old && `${old} stale`];
    section.querySelector("[data-told]").textContent = told.filter(Boolean).join(", ");
    if (without === Boolean(lines.get(section))) return;
    lines.set(section, without);
    if (!chosen.has(section)) fold(section);
  }));
})();
