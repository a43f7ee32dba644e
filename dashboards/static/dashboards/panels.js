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
  // Commands and values in a message stand between backticks.
  const marked = (text) => (text || "").split("`").map((part, at) => (at % 2 ? make("code", part) : part));
  const tell = (place, message) => {
    const note = place.querySelector(".panel-message");
    note.hidden = !message;
    if (!message) return;
    note.className = `panel-message alert alert-${message.level} ${message.text || message.fix ? "panel-worded" : "panel-short"}`;
    for (const part of ["title", "text", "fix"]) note.querySelector(`[data-${part}]`).replaceChildren(...marked(message[part]));
  };
  // What three panels or more have to say in the same words is said once, above them; each keeps its title.
  const shared = (panels) => {
    const times = new Map();
    for (const { message } of panels) if (message) times.set(message.text, (times.get(message.text) || 0) + 1);
    const [text, count] = [...times].sort((one, other) => other[1] - one[1])[0] || ["", 0];
    return count >= 3 ? panels.find(({ message }) => message && message.text === text).message : null;
  };
  // Panels of a section that have nothing to draw share a line: all that lack the same, and two or more without data
  // for the same reason. Another one without data is a small card.
  const LACKING = ["not_scraped", "absent", "needs", "unpriced", "bad_query", "too_slow"], full = ["full", "custom"].some((name) => name in board.dataset); // their panels keep order and size
  const flat = ({ data }) => data.every((trace) => trace.y && trace.y.every((value) => !value));
  const bare = ({ state, figure, kind }) => !full && state !== "prometheus" && (!figure || (["zero", "quiet"].includes(state) && kind !== "numbers" && flat(figure)));
  boards.grouped = (section, panels) => {
    const groups = new Map();
    for (const panel of panels) {
      const { message, state } = panel;
      if (!message || !bare(panel) || !section.querySelector(`[data-panel="${panel.id}"]`)) continue;
      const lacking = LACKING.includes(state), name = lacking ? message.title : JSON.stringify([message.title, message.text, message.fix]);
      if (!groups.has(name)) groups.set(name, { ...message, lacking, panels: [] });
      const group = groups.get(name);
      if (group.text !== message.text) group.text = "";
      if (group.fix !== message.fix) group.fix = "";
      group.panels.push(panel);
    }
    return [...groups.values()].filter(({ lacking, panels: inside }) => lacking || inside.length > 1);
  };
  const title = ({ id }) => board.querySelector(`[data-panel="${id}"] .card-title`).textContent.trim();
  const link = (panel) => Object.assign(make("a", title(panel)), { href: boards.url({ panel: panel.id }).href, className: "text-reset" });
  const line = (group, above) => {
    const count = group.panels.length, what = group.lacking ? "unavailable" : "without data";
    const head = make("strong", `${count} panel${count === 1 ? "" : "s"} ${what}: ${group.title}. `);
    const said = above && group.text === above.text ? [] : marked([group.text, group.fix].filter(Boolean).join(" "));
    const names = Object.assign(make("div", ...group.panels.flatMap((panel, at) => [at ? ", " : "", link(panel)])), { className: "text-secondary small" });
    return make("li", head, ...said, names);
  };
  const gather = (section, panels, above) => {
    const groups = boards.grouped(section, panels), list = section.querySelector("[data-section-lines]");
    list.hidden = !groups.length;
    list.replaceChildren(...groups.map((group) => line(group, above)));
    return groups.flatMap((group) => group.panels.map(({ id }) => id));
  };
  const draw = (panel, above, gathered) => {
    const card = board.querySelector(`[data-panel="${panel.id}"]`);
    if (!card) return; // the page was opened before the board had it
    card.dataset.state = panel.state;
    const told = above && panel.message && panel.message.text === above.text;
    const short = told ? { ...panel.message, text: "", fix: "" } : panel.message;
    tell(card, panel.state === "prometheus" ? null : short); // what is true of the whole page is said once
    card.parentElement.hidden = gathered.has(panel.id);
    if (panel.state === "prometheus") return; // the last chart stays: old, not wrong
    if (panel.title) card.querySelector(`#panel-${panel.id}`).textContent = panel.title; // other without a price
    const about = card.querySelector(".panel-about");
    if (panel.about) [about.textContent, about.title] = [panel.about, panel.about];
    card.parentElement.classList.toggle("board-small", bare(panel));
    const chart = card.querySelector(".panel-chart");
    chart.setAttribute("aria-label", panel.spoken);
    boards.put(chart, panel.figure);
    boards.legend(card, panel);
    card.querySelector("thead").replaceChildren(row(card, "th", panel.table.head));
    card.querySelector("tbody").replaceChildren(...panel.table.rows.map((cells) => row(card, "td", cells)));
  };
  const say = (text, stale) => {
    const status = board.querySelector("[data-board-status]");
    status.textContent = stale && good ? `Stale since ${good}. ${text}` : text;
    status.className = stale ? "board-stale" : "text-secondary";
  };
  // No chart was drawn yet, and no source can be queried: the message alone, with the panels collapsed.
  boards.isEmpty = (data) => Boolean(data.fault) && !good && data.panels.every(({ state }) => state === "prometheus");
  const show = (data) => {
    boards.data = data;
    board.toggleAttribute("data-empty", boards.isEmpty(data));
    if (data.zone) boards.zone = data.zone;
    const above = data.fault ? null : shared(data.panels.filter((panel) => ["stale", "not_scraped"].includes(panel.state)));
    tell(board, data.fault || above);
    (boards.arrived || []).forEach((told) => told(data));
    const gathered = new Set([...board.querySelectorAll("[data-panels]")].flatMap((section) => gather(section, data.panels, above)));
    data.panels.forEach((panel) => draw(panel, above, gathered));
    const old = data.fault && data.panels.every((panel) => panel.state === "prometheus"); // of several sources one may be away
    if (!old) good = data.at;
    const targets = data.scraped && !old ? `Targets up: ${data.scraped} · ` : "";
    const first = data.first_data && !old ? `First data ${data.first_data} · ` : "";
    say(old && good ? `${data.fault.title}.` : `${targets}${first}${old ? "Checked" : "Updated"} ${data.at}`, Boolean(old && good));
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
    await ask().catch((error) => { failures += 1; say(`The console is unreachable (${error.message}).`, true); });
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
