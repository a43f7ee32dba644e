// The search palette: "/" or Ctrl/Cmd+K opens it, arrows select, Enter opens, Escape closes. Without script its links
// lead to the search page.
(function () {
  "use strict";

  var palette = document.getElementById("palette");
  if (!palette || !palette.showModal) return;
  var field = document.getElementById("palette-text");
  var shelf = document.getElementById("palette-hits");
  var count = document.getElementById("palette-count");
  var selected = -1;

  function hits() { return Array.from(shelf.querySelectorAll("a")); }

  function select(at) {
    var all = hits();
    selected = all.length ? (at + all.length) % all.length : -1;
    all.forEach(function (hit, index) {
      hit.id = "hit-" + index;
      hit.setAttribute("aria-selected", String(index === selected));
    });
    field.setAttribute("aria-expanded", String(all.length > 0));
    if (selected < 0) return field.removeAttribute("aria-activedescendant");
    field.setAttribute("aria-activedescendant", "hit-" + selected);
    all[selected].scrollIntoView({ block: "nearest" });
  }

  function open() {
    if (document.querySelector("dialog[open]")) return;
    field.value = "";
    shelf.replaceChildren();
    count.textContent = "";
    select(-1);
    palette.showModal();
    field.focus();
  }

  function typing(target) {
    return target.closest("input, textarea, select, [contenteditable]") !== null;
  }

  document.addEventListener("keydown", function (event) {
    var command = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k";
    var slash = event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target);
    if (!command && !slash) return;
    event.preventDefault();
    open();
  });

  document.addEventListener("click", function (event) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest("[data-palette]")) {
      event.preventDefault();
      open();
    } else if (event.target.closest("#palette-hits a")) palette.close(); // it may lead to a place of this page
  });

  field.addEventListener("keydown", function (event) {
    var all = hits();
    var step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && all.length) {
      event.preventDefault();
      select(selected + step);
    } else if (event.key === "Enter" && all.length && shelf.firstElementChild.dataset.q === field.value.trim()) {
      event.preventDefault(); // else the form leads to the search page
      all[selected].click();
    }
  });

  // A late answer to an earlier text is not shown.
  shelf.addEventListener("htmx:beforeSwap", function (event) {
    var asked = new URL(event.detail.xhr.responseURL).searchParams.get("q") || "";
    if (asked.trim() !== field.value.trim()) event.detail.shouldSwap = false;
  });

  shelf.addEventListener("htmx:afterSwap", function () {
    if (!field.value.trim()) shelf.replaceChildren();
    select(0);
    count.textContent = field.value.trim() ? hits().length + " results" : "";
  });
})();
