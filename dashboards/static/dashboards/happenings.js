// What happened meanwhile: a line in every chart, and a list for who reads.
(() => {
  "use strict";
  const boards = window.boards, board = boards.board, make = boards.make, DRAWN = 30;
  const list = board.querySelector("[data-board-notes]");
  const COLOURS = { alert: "#D55E00", rollback: "#CC79A7", worker: "#E69F00", node: "#E69F00" };
  const colour = (note) => boards.ink(COLOURS[note.kind] || "#0072B2");
  const WORDS = { deploy: "Change", rollback: "Rollback", strategy: "Strategy", scale: "Scale", pause: "Pause", worker: "Worker", node: "Cache", alert: "Alert" };
  const words = (note) => [WORDS[note.kind], note.endpoint, note.text, note.who && `by ${note.who}`].filter(Boolean).join(" · ");
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

  const item = (note) => {
    const what = note.url ? Object.assign(make("a", note.text), { href: note.url }) : make("span", note.text);
    const kind = Object.assign(make("span", WORDS[note.kind]), { className: "badge board-note-kind" });
    kind.style.borderColor = colour(note);
    const until = note.end ? ` – ${boards.clock(note.end).slice(11)}` : "";
    const when = Object.assign(make("span", boards.clock(note.at) + until), { className: "text-secondary" });
    const rest = [note.endpoint, note.who && `by ${note.who}`].filter(Boolean).join(", ");
    return make("li", when, " ", kind, " ", what, rest ? ` (${rest})` : "");
  };
  (boards.arrived = boards.arrived || []).push((data) => {
    if (!list || !data.notes) return;
    const left = data.notes_left_out;
    list.hidden = !data.notes.length;
    list.querySelector("[data-count]").textContent = data.notes.length + left;
    list.querySelector("ul").replaceChildren(...data.notes.map(item), ...(left ? [make("li", `${left} earlier events not shown`)] : []));
  });
  boards.dress.push((layout) => {
    const notes = ((boards.data && boards.data.notes) || []).slice(0, DRAWN);
    if (!notes.length || !layout.xaxis || layout.xaxis.type !== "date") return layout;
    const line = (note, at, dash) => ({ type: "line", xref: "x", yref: "paper", x0: boards.local(at), x1: boards.local(at), y0: 0, y1: 1, layer: "below",
      line: { color: colour(note), width: 1.5, dash } });
    const shapes = notes.flatMap((note) => [line(note, note.at, "dash"), ...(note.end ? [line(note, note.end, "dot")] : [])]);
    const flags = notes.map((note) => ({ x: boards.local(note.at), y: 1, xref: "x", yref: "paper", yanchor: "bottom", text: "▾", showarrow: false,
      font: { size: 14 }, hovertext: `${boards.clock(note.at)}<br>${escaped(words(note))}`, captureevents: true }));
    return { ...layout, shapes: [...(layout.shapes || []), ...shapes], annotations: [...(layout.annotations || []), ...flags],
      margin: { ...layout.margin, t: Math.max(20, layout.margin.t) } };
  });
})();
