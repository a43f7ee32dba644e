// The quick search of the sidebar: "/" goes to it, arrows walk its hits, Escape leaves it. Without
// script its form leads to a page of hits.
(function () {
  "use strict";

  var field = document.getElementById("quick-search");
  var shelf = document.getElementById("quick-hits");
  if (!field || !shelf) return;

  function hits() { return Array.from(shelf.querySelectorAll("a")); }
  function show() { shelf.hidden = !field.value.trim() || !shelf.textContent.trim(); }
  function leave() { shelf.hidden = true; }

  function typing(target) {
    return target.closest("input, textarea, select, [contenteditable]") !== null;
  }

  document.addEventListener("keydown", function (event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target) || field.offsetParent === null) return;
    event.preventDefault();
    field.focus();
    field.select();
  });

  field.form.addEventListener("keydown", function (event) {
    var all = hits();
    var at = all.indexOf(document.activeElement);
    if (event.key === "Escape") {
      leave();
      field.blur();
    } else if (event.key === "ArrowDown" && all.length) {
      event.preventDefault();
      all[Math.min(at + 1, all.length - 1)].focus();
    } else if (event.key === "ArrowUp" && at >= 0) {
      event.preventDefault();
      if (at === 0) field.focus(); else all[at - 1].focus();
    } else if (event.key === "Enter" && document.activeElement === field && !shelf.hidden && all.length) {
      event.preventDefault();
      all[0].click();
    }
  });

  shelf.addEventListener("htmx:afterSwap", show);
  field.addEventListener("input", function () { if (!field.value.trim()) leave(); });
  field.addEventListener("focus", show);
  document.addEventListener("click", function (event) {
    if (!field.form.contains(event.target)) leave();
  });
})();
