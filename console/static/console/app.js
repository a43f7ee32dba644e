// Small conveniences of every page: copy buttons, forms that submit themselves, confirmations, toasts, htmx errors.
(function () {
  "use strict";

  // <button data-copy="#id-of-an-element"> copies its text.
  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-copy]");
    if (!button) return;
    var source = document.querySelector(button.getAttribute("data-copy"));
    if (!source) return;
    navigator.clipboard.writeText((source.value || source.textContent).trim()).then(function () {
      var label = button.querySelector("[data-copy-label]") || button;
      var before = label.textContent;
      label.textContent = "Copied";
      window.setTimeout(function () { label.textContent = before; }, 1500);
    });
  });

  // <button data-fill="#field" data-text="..."> fills the field and submits its form.
  document.querySelectorAll("[data-fill]").forEach(function (button) { button.hidden = false; });
  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-fill]");
    if (!button) return;
    var field = document.querySelector(button.getAttribute("data-fill"));
    field.value = button.getAttribute("data-text");
    field.form.requestSubmit();
  });

  // <select data-submit-on-change> sends its form; the form keeps its button for who has no script.
  document.addEventListener("change", function (event) {
    var field = event.target.closest("[data-submit-on-change]");
    if (field && field.form) field.form.requestSubmit();
  });

  // <form data-confirm="Delete demo? Its workers stop."> asks in the dialog #confirm: the question is its title, the
  // rest its text, and the button is named like the one that was pressed (or data-confirm-action). Listens before htmx.
  var dialog = document.getElementById("confirm");
  var pending = null, confirmed = null;
  var DESTRUCTIVE = /^(delete|remove|revoke|end|reset|turn off|deactivate|unlink|leave|pause|drain|stop|roll back)\b/i;

  function ask(text, label, danger, go) {
    var cut = text.indexOf("?") + 1 || text.length;
    var button = dialog.querySelector("[data-confirm-go]");
    dialog.querySelector("#confirm-title").textContent = text.slice(0, cut);
    dialog.querySelector("#confirm-text").textContent = text.slice(cut).trim();
    dialog.querySelector(".modal-status").classList.toggle("bg-danger", danger);
    button.textContent = label;
    button.classList.toggle("btn-danger", danger);
    button.classList.toggle("btn-primary", !danger);
    pending = go;
    dialog.showModal();
    (danger ? dialog.querySelector("[data-dialog-close]") : button).focus();
  }

  function labelOf(button) {
    var copy = button.cloneNode(true);
    copy.querySelectorAll(".visually-hidden, svg").forEach(function (part) { part.remove(); });
    return copy.textContent.trim();
  }

  document.addEventListener("submit", function (event) {
    var form = event.target, button = event.submitter;
    var asks = button && button.hasAttribute("data-confirm") ? button : form;
    var text = asks.getAttribute("data-confirm");
    if (!text || !dialog || !dialog.showModal || confirmed === form) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    var label = asks.getAttribute("data-confirm-action") || (button && labelOf(button)) || "Continue";
    var danger = DESTRUCTIVE.test(label) || asks.hasAttribute("data-confirm-danger") || (button !== null && /-danger\b/.test(button.className));
    ask(text, label, danger, function () {
      if (!form.isConnected) { // its part of the page was refreshed meanwhile
        form.hidden = true;
        document.body.append(form);
      }
      confirmed = form;
      form.requestSubmit(button);
      confirmed = null;
    });
  }, true);

  // A form is sent once: the page after a second click would replace the first one, with a key that is shown once.
  var sent = null;
  document.addEventListener("submit", function (event) {
    var form = event.target, button = event.submitter;
    if (event.defaultPrevented || form.getAttribute("method") !== "post") return;
    if (form === sent) {
      event.preventDefault();
      return;
    }
    sent = form;
    setTimeout(function () { if (button && sent === form) button.classList.add("btn-loading"); }, 500);
    setTimeout(function () { resetSent(form); }, 15000); // no page came
  });
  function resetSent(form) {
    if (sent !== form) return;
    form.querySelectorAll(".btn-loading").forEach(function (button) { button.classList.remove("btn-loading"); });
    sent = null;
  }
  window.addEventListener("pageshow", function () { if (sent) resetSent(sent); });
  document.addEventListener("input", function (event) { if (sent && event.target.form === sent) resetSent(sent); }); // stopped, and corrected

  // hx-confirm on any element asks in the same dialog.
  document.addEventListener("htmx:confirm", function (event) {
    if (!event.detail.question || !dialog || !dialog.showModal) return;
    event.preventDefault();
    var label = event.target.getAttribute("data-confirm-action") || labelOf(event.target) || "Continue";
    ask(event.detail.question, label, DESTRUCTIVE.test(label) || /-danger\b/.test(event.target.className), function () {
      event.detail.issueRequest(true);
    });
  });

  // A dialog closes by its own buttons, by Escape and by a click beside it.
  document.addEventListener("click", function (event) {
    var open = event.target.closest("dialog[open]");
    if (!open) return;
    var go = event.target.closest("[data-confirm-go]");
    if (!go && !event.target.closest("[data-dialog-close]") && event.target.closest(".modal-content")) return;
    var act = go ? pending : null;
    pending = null;
    open.close();
    if (act) act();
  });

  // On a phone tabs scroll sideways: the open one is brought into view.
  function showTabs() {
    document.querySelectorAll(".nav-tabs .nav-link.active, .tabs-second .nav-link.active").forEach(function (tab) {
      var row = tab.closest(".nav");
      row.scrollLeft += tab.getBoundingClientRect().left - row.getBoundingClientRect().left - (row.clientWidth - tab.offsetWidth) / 2;
    });
  }
  showTabs();
  window.addEventListener("resize", showTabs);

  function toast(text, level) {
    var shelf = document.getElementById("toasts");
    if (!shelf) return;
    var box = document.createElement("div");
    box.className = "toast show align-items-center border-0 text-bg-" + level;
    box.setAttribute("role", level === "danger" ? "alert" : "status");
    var row = document.createElement("div");
    row.className = "d-flex";
    var body = document.createElement("div");
    body.className = "toast-body";
    body.textContent = text;
    var close = document.createElement("button");
    close.type = "button";
    close.className = "btn-close btn-close-white me-2 m-auto";
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", function () { box.remove(); });
    row.append(body, close);
    box.append(row);
    shelf.append(box);
    window.setTimeout(function () { box.remove(); }, 8000);
  }
  window.emberline = { toast: toast };

  // A part that could not be refreshed keeps what it shows; say so once, not with every poll.
  var lastFailure = 0;
  function failed(text) {
    if (Date.now() - lastFailure < 30000) return;
    lastFailure = Date.now();
    toast(text, "danger");
  }
  // Tabs take time range and worker along, as the server renders them; a filter by htmx changes only the address.
  document.addEventListener("htmx:pushedIntoHistory", function () {
    var here = new URLSearchParams(window.location.search);
    document.querySelectorAll("[data-tabs] a").forEach(function (link) {
      var url = new URL(link.href);
      ["range", "from", "to", "worker"].forEach(function (name) {
        if (here.get(name)) url.searchParams.set(name, here.get(name)); else url.searchParams.delete(name);
      });
      link.href = url.pathname + url.search;
    });
  });

  document.addEventListener("htmx:sendError", function () {
    failed("The console is not reachable. Displayed values may be stale; the page retries automatically.");
  });
  document.addEventListener("htmx:responseError", function (event) {
    var status = event.detail.xhr.status;
    if (status === 401) return; // htmx follows to the login page
    var id = event.detail.xhr.getResponseHeader("X-Request-ID") || "";
    failed("Update failed: the console returned HTTP " + status + ". Request ID " + id + ".");
  });
})();
