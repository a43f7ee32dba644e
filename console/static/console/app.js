// Small conveniences of every page: copy buttons, forms that submit themselves, toasts, htmx errors.
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

  // <select data-submit-on-change> sends its form; the form keeps its button for who has no script.
  document.addEventListener("change", function (event) {
    var field = event.target.closest("[data-submit-on-change]");
    if (field && field.form) field.form.requestSubmit();
  });

  // <form data-confirm="Really?"> asks first.
  document.addEventListener("submit", function (event) {
    var question = event.target.getAttribute("data-confirm");
    if (question && !window.confirm(question)) event.preventDefault();
  });

  // On a phone tabs scroll sideways: the open one is brought into view.
  document.querySelectorAll(".nav-tabs .nav-link.active").forEach(function (tab) {
    tab.scrollIntoView({ block: "nearest", inline: "center" });
  });

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
  document.addEventListener("htmx:sendError", function () {
    failed("The console does not answer. What you see may be old.");
  });
  document.addEventListener("htmx:responseError", function (event) {
    var status = event.detail.xhr.status;
    if (status === 401) return; // htmx follows to the login page
    var id = event.detail.xhr.getResponseHeader("X-Request-ID") || "";
    failed("The console answered " + status + ". Request id " + id + ".");
  });
})();
