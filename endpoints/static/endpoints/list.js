// Keep the selection across polls of the endpoint list, with a select-all box; show the bulk bar
// only with a selection. Without JavaScript the bar is always visible.
(function () {
  "use strict";

  var form = document.getElementById("bulk-form");
  if (!form) return;
  var count = form.querySelector("[data-bulk-count]");
  var ticked = new Set();

  function boxes() {
    return Array.from(document.querySelectorAll('#endpoints input[name="name"][form="bulk-form"]'));
  }

  function show() {
    var all = boxes();
    var here = new Set(all.map(function (box) { return box.value; }));
    ticked.forEach(function (name) { if (!here.has(name)) ticked.delete(name); });
    all.forEach(function (box) { box.checked = ticked.has(box.value); });
    form.hidden = ticked.size === 0;
    count.textContent = ticked.size === 1 ? "1 endpoint" : ticked.size + " endpoints";
    var every = document.querySelector("[data-tick-all]");
    if (!every) return;
    every.hidden = false;
    every.checked = all.length > 0 && ticked.size === all.length;
    every.indeterminate = ticked.size > 0 && ticked.size < all.length;
  }

  document.addEventListener("change", function (event) {
    var box = event.target;
    if (box.matches("[data-tick-all]")) {
      boxes().forEach(function (one) {
        if (box.checked) ticked.add(one.value); else ticked.delete(one.value);
      });
    } else if (box.matches('input[name="name"][form="bulk-form"]')) {
      if (box.checked) ticked.add(box.value); else ticked.delete(box.value);
    } else {
      return;
    }
    show();
  });
  document.addEventListener("htmx:afterSettle", show);
  // A page restored by the browser keeps its ticked boxes.
  boxes().forEach(function (box) { if (box.checked) ticked.add(box.value); });
  show();
})();
