// Custom boards: the dialog that pins or edits a panel, and arranging panels without a new page.
(() => {
  "use strict";
  const PARTIAL = { "HX-Request": "true" };
  const toast = (text, level) => window.emberline.toast(text, level);
  const make = (tag, facts, ...inside) => {
    const node = Object.assign(document.createElement(tag), facts);
    node.append(...inside);
    return node;
  };

  // ---- a form in a dialog; its page is what works without a script
  const content = make("div", { className: "modal-content" });
  const dialog = make("dialog", { className: "modal" }, make("div", { className: "modal-dialog modal-dialog-centered" }, content));
  dialog.setAttribute("aria-labelledby", "board-dialog-title");
  document.body.append(dialog);
  const offerTitle = () => { // only a new board takes one
    const to = content.querySelector("#id_to"), title = to && content.querySelector("#id_title");
    if (title) title.closest(".mb-3").hidden = to.value !== "";
  };
  dialog.addEventListener("change", offerTitle);
  const show = (html) => {
    content.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    offerTitle();
    (content.querySelector(".is-invalid") || content.querySelector("select, input:not([type=hidden]), textarea"))?.focus();
  };
  const open = async (link) => {
    const answer = await fetch(link.href, { headers: PARTIAL, redirect: "error" }).catch(() => null);
    if (!answer || !answer.ok) { window.location.assign(link.href); return; }
    dialog.showModal();
    show(await answer.text());
  };
  const told = ({ message, link }) => {
    toast(message, "success");
    const body = link && document.querySelector("#toasts .toast:last-child .toast-body");
    if (body) body.append(" ", make("a", { href: link, className: "text-reset", textContent: "Open board" }));
  };
  const send = async (form, button) => {
    button.disabled = true;
    const answer = await fetch(form.getAttribute("action"), { method: "POST", headers: PARTIAL, body: new FormData(form) }).catch(() => null);
    button.disabled = false;
    const kind = answer ? answer.headers.get("Content-Type") || "" : "";
    if (answer && answer.ok && kind.startsWith("application/json")) {
      const done = await answer.json();
      if (done.url) { window.location.assign(done.url); return; }
      dialog.close();
      told(done);
    } else if (answer && answer.status === 400 && kind.startsWith("text/html")) show(await answer.text());
    else toast(answer ? `Not saved: the console returned HTTP ${answer.status}.` : "Not saved: the console is unreachable.", "danger");
  };
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-dialog-cancel]") && dialog.open) { event.preventDefault(); dialog.close(); return; }
    const link = event.target.closest("[data-board-dialog]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(link);
  });
  dialog.addEventListener("submit", (event) => {
    event.preventDefault();
    send(event.target, event.submitter || event.target.querySelector("[type=submit]"));
  });

  // ---- order and size
  const status = document.querySelector("[data-board-moves]"), row = document.querySelector("[data-custom] .board-panels");
  if (!row || !row.querySelector("[data-arrange]")) return;
  const WIDTHS = { third: "col-12 col-md-6 col-xl-4", half: "col-12 col-lg-6", full: "col-12" };
  const cells = () => [...row.children].filter((cell) => cell.querySelector("[data-panel]"));
  const arrange = async (form, facts, apply) => {
    const body = new FormData(form);
    for (const name of ["move", "remove", "width"]) body.delete(name);
    for (const [name, value] of Object.entries(facts)) body.set(name, value);
    const answer = await fetch(form.action, { method: "POST", headers: PARTIAL, body }).catch(() => null);
    if (answer && answer.ok) { apply(); return; }
    const said = answer && (answer.headers.get("Content-Type") || "").startsWith("application/json") ? (await answer.json()).message : "";
    toast(`Not changed. ${said || "Reload the board and repeat the change."}`, "danger");
  };
  const title = (cell) => cell.querySelector(".card-title").textContent.trim();
  const place = (cell, to) => {
    const others = cells().filter((one) => one !== cell), at = Math.max(0, Math.min(others.length, to));
    if (others[at]) others[at].before(cell);
    else others[at - 1]?.after(cell);
    status.textContent = `${title(cell)}: position ${at + 1} of ${others.length + 1}.`;
  };
  row.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-arrange]"), button = event.submitter;
    if (!form) return;
    event.preventDefault();
    const cell = form.closest("[data-panel]").parentElement, at = cells().indexOf(cell);
    if (!button || button.name === "remove") {
      arrange(form, { remove: "1" }, () => {
        const next = cells()[at + 1] || cells()[at - 1];
        status.textContent = `${title(cell)} removed.`;
        cell.remove();
        if (next) next.querySelector("[data-arrange] [name=remove]").focus();
        else window.location.reload();
      });
      return;
    }
    arrange(form, { move: button.value }, () => { place(cell, button.value === "earlier" ? at - 1 : at + 1); button.focus(); });
  });
  row.addEventListener("change", (event) => {
    if (!event.target.matches("[data-arrange-width]")) return;
    const form = event.target.form, cell = form.closest("[data-panel]").parentElement, width = event.target.value;
    arrange(form, { width }, () => {
      cell.className = WIDTHS[width];
      const chart = cell.querySelector(".panel-chart");
      if (chart.data) window.Plotly.Plots.resize(chart);
    });
  });

  // ---- the same by mouse: a card is dragged by its title
  let dragged = null;
  cells().forEach((cell) => { cell.querySelector(".card-title").draggable = true; });
  row.addEventListener("dragstart", (event) => {
    dragged = event.target.closest && event.target.closest(".card-title") ? event.target.closest("[data-panel]").parentElement : null;
    if (dragged) event.dataTransfer.effectAllowed = "move";
  });
  row.addEventListener("dragover", (event) => { if (dragged) event.preventDefault(); });
  row.addEventListener("drop", (event) => {
    const target = event.target.closest("[data-panel]")?.parentElement, cell = dragged;
    dragged = null;
    if (!cell || !target || target === cell) return;
    event.preventDefault();
    const to = cells().indexOf(target); // where the target is now
    arrange(cell.querySelector("[data-arrange]"), { move: String(to) }, () => place(cell, to));
  });
})();
