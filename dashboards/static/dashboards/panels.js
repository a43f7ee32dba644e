// One request for the whole page; what it brings is put into cards, tables and charts.
(() => {
  "use strict";
  const boards = window.boards;
  const board = (boards.board = document.querySelector("[data-board]")); // these scripts come with such pages only
  let failures = 0, timer = 0, busy = false, again = false, good = "", etag = "", asked = "";

  const make = (boards.make = (tag, ...inside) => {
    const node = document.createElement(tag);
    node.append(...inside);
    return node;
  });
  boards.url = (changes) => {
    const url = new URL(window.location.href);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) url.searchParams.delete(name);
      else url.searchParams.set(name, value);
    }
    return url;
  };
  // Where the name of a line leads, if its panel says that it is a worker's or an endpoint's.
  boards.leads = (card, name) => {
    if (card.dataset.drill === "worker" && board.dataset.ofOne !== undefined) return boards.url({ worker: name }).href;
    if (card.dataset.drill === "endpoint") return board.dataset.endpointUrl.replace("/_/", `/${encodeURIComponent(name)}/`);
    return "";
  };
  const named = (card, name) => {
    const href = boards.leads(card, name);
    return href ? Object.assign(make("a", name), { href }) : name;
  };
  const row = (card, tag, cells) => make("tr", ...cells.map((text, at) => make(at ? tag : "th", at || tag === "th" ? text : named(card, text))));
  const tell = (place, message) => {
    const note = place.querySelector(".panel-message");
    note.hidden = !message;
    if (!message) return;
    note.className = `panel-message alert alert-${message.level}${message.text || message.fix ? "" : " panel-short"}`;
    for (const part of ["title", "text", "fix"]) note.querySelector(`[data-${part}]`).textContent = message[part];
  };
  // What three panels or more have to say in the same words is said once, above them; each keeps its title.
  const shared = (panels, enough = 3) => {
    const times = new Map();
    for (const { message } of panels) if (message) times.set(message.text, (times.get(message.text) || 0) + 1);
    const [text, count] = [...times].sort((one, other) => other[1] - one[1])[0] || ["", 0];
    return count >= enough ? panels.find(({ message }) => message && message.text === text).message : null;
  };
  // What two panels of a section lack for one reason is mended once: above them. Panel -> what it keeps.
  const lacking = (section, panels, above) => {
    const inside = panels.filter(({ id, message }) => message && message.fix && !(above && message.text === above.text) && section.querySelector(`[data-panel="${id}"]`));
    const found = shared(inside.map(({ message }) => ({ message: { ...message, text: message.fix } })), 2);
    const alike = inside.filter(({ message }) => found && message.fix === found.fix), [first] = alike;
    const text = first && alike.every(({ message }) => message.text === first.message.text) ? first.message.text : "";
    tell(section.querySelector("[data-section-message]"), found && { ...found, text });
    return alike.map((panel) => [panel, { ...panel, message: { ...panel.message, text: text ? "" : panel.message.text, fix: "" } }]);
  };
  const draw = (panel, above) => {
    const card = board.querySelector(`[data-panel="${panel.id}"]`);
    if (!card) return; // the page was opened before the board had it
    card.dataset.state = panel.state;
    const told = above && panel.message && panel.message.text === above.text;
    const short = told ? { ...panel.message, text: "", fix: "" } : panel.message;
    tell(card, panel.state === "prometheus" ? null : short); // what is true of the whole page is said once
    card.classList.toggle("panel-empty", !panel.figure && panel.state !== "prometheus");
    if (panel.state === "prometheus") return; // the last chart stays: old, not wrong
    if (panel.title) card.querySelector(`#panel-${panel.id}`).textContent = panel.title; // other without a price
    if (panel.about) card.querySelector(".panel-about").textContent = panel.about;
    const chart = card.querySelector(".panel-chart");
    chart.setAttribute("aria-label", panel.spoken);
    boards.put(chart, panel.figure);
    card.querySelector("thead").replaceChildren(row(card, "th", panel.table.head));
    card.querySelector("tbody").replaceChildren(...panel.table.rows.map((cells) => row(card, "td", cells)));
  };
  const say = (text, stale) => {
    const status = board.querySelector("[data-board-status]");
    status.textContent = stale && good ? `Stale since ${good}. ${text}` : text;
    status.className = stale ? "board-stale" : "text-secondary";
  };
  const show = (data) => {
    boards.data = data;
    const above = data.fault ? null : shared(data.panels.filter((panel) => ["stale", "not_scraped"].includes(panel.state)));
    tell(board, data.fault || above);
    (boards.arrived || []).forEach((told) => told(data));
    const kept = new Map([...board.querySelectorAll("[data-section]")].flatMap((section) => lacking(section, data.fault ? [] : data.panels, above)));
    data.panels.forEach((panel) => draw(kept.get(panel) || panel, above));
    const old = data.fault && data.panels.every((panel) => panel.state === "prometheus"); // of several sources one may be away
    if (!old) good = data.at;
    say(old ? `${data.fault.title}.` : `Scraped now: ${data.scraped}. ${data.at}`, Boolean(old));
  };
  const ask = async () => {
    const url = board.dataset.url;
    const headers = etag && url === asked ? { "If-None-Match": etag } : {};
    const answer = await fetch(url, { headers, redirect: "manual", signal: AbortSignal.timeout(20000) });
    if (answer.type === "opaqueredirect") window.location.reload(); // logged out meanwhile
    if (answer.status !== 304 && !answer.ok) throw new Error(`HTTP ${answer.status}`);
    if (answer.status === 304) show(boards.data); // nothing new, and the console is there
    else if (url === board.dataset.url) show(await answer.json()); // else other times were chosen meanwhile
    failures = 0;
    if (answer.status !== 304) [etag, asked] = [answer.headers.get("ETag") || "", url];
  };
  const poll = async () => {
    window.clearTimeout(timer);
    if (busy) again = true;
    if (busy || document.hidden) return; // a hidden tab asks nothing; it asks at once when shown
    busy = true;
    await ask().catch((error) => { failures += 1; say(`The console does not answer (${error.message}).`, true); });
    busy = false;
    if (again) { again = false; poll(); return; }
    const pause = Number(board.dataset.pollS) * 1000;
    const next = failures ? Math.min(60000, (pause || 10000) * 2 ** failures) : pause;
    if (next) timer = window.setTimeout(poll, next);
  };
  boards.poll = poll;
  document.addEventListener("visibilitychange", () => { if (Number(board.dataset.pollS) || !boards.data) poll(); });
  document.addEventListener("DOMContentLoaded", poll);
})();
