// A form somebody works on for a while: marks what was touched, shows fields where they belong, keeps
// line numbers beside a text, and asks before what is typed would be left. The page works without.
(function () {
  "use strict";

  function form() { return document.querySelector("form[data-guard]"); }
  function named(name) { return form().elements.namedItem(name); }

  // A field is blamed only once somebody was in it.
  var dirty = form().hasAttribute("data-dirty");
  function touched(event) {
    if (!form().contains(event.target) || !event.target.name) return;
    dirty = true;
    // Text typed into a search is no value until the field is left.
    if (event.type === "input" && event.target.hasAttribute("data-combobox")) return;
    var list = named("touched");
    var names = list.value.split(" ").filter(Boolean);
    if (names.indexOf(event.target.name) < 0) names.push(event.target.name);
    list.value = names.join(" ");
  }
  // A button that writes a value into a field.
  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-fill]");
    if (!button) return;
    var field = document.getElementById(button.getAttribute("data-fill"));
    field.value = button.getAttribute("data-fill-with");
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.dispatchEvent(new Event("change", { bubbles: true }));
    field.focus();
  });
  document.addEventListener("input", touched, true);
  document.addEventListener("change", touched, true);

  // What was typed before this script ran.
  function edited(field) {
    if (!field.name || field.type === "hidden") return false;
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (!field.options) return field.defaultValue !== undefined && field.value !== field.defaultValue;
    var options = Array.prototype.slice.call(field.options);
    var initial = options.filter(function (one) { return one.defaultSelected; });
    if (!initial.length && !field.multiple) initial = options.slice(0, 1);
    return options.some(function (one) { return one.selected !== (initial.indexOf(one) >= 0); });
  }
  Array.prototype.forEach.call(form().elements, function (field) {
    if (edited(field)) touched({ type: "change", target: field });
  });

  // Fields of one choice stand beside it only; what says something unusual stays in sight.
  function sort() {
    form().querySelectorAll("[data-only-on]").forEach(function (box) {
      var on = named(box.getAttribute("data-only-on"));
      if (!on) return;
      var wanted = box.getAttribute("data-only").split(" ").indexOf(on.value || "-") >= 0;
      var said = box.hasAttribute("data-said") || box.querySelector(".invalid-feedback");
      box.hidden = !wanted && !said;
    });
  }
  document.addEventListener("change", sort);

  // The mark of a refused field follows what is told below it.
  function mark() {
    form().querySelectorAll("[data-live]").forEach(function (slot) {
      var field = named(slot.getAttribute("data-live"));
      if (!field || !field.classList) return;
      var told = slot.querySelector(".invalid-feedback");
      field.classList.toggle("is-invalid", Boolean(told));
      if (told) {
        field.setAttribute("aria-invalid", "true");
        field.setAttribute("aria-errormessage", told.id);
      } else {
        field.removeAttribute("aria-invalid");
        field.removeAttribute("aria-errormessage");
      }
    });
  }

  function numbers() {
    var text = document.getElementById("id_yaml");
    var list = document.querySelector(".yaml-lines > div");
    if (!text || !list) return;
    var count = text.value.split("\n").length;
    var shown = "";
    for (var line = 1; line <= count; line += 1) shown += line + "\n";
    if (list.textContent !== shown) list.textContent = shown;
    list.style.transform = "translateY(" + -text.scrollTop + "px)";
  }
  document.addEventListener("input", function (event) { if (event.target.id === "id_yaml") numbers(); });
  document.addEventListener("scroll", function (event) { if (event.target.id === "id_yaml") numbers(); }, true);

  // "Line 12" goes there.
  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-line]");
    var text = document.getElementById("id_yaml");
    if (!button || !text) return;
    var line = Number(button.getAttribute("data-line"));
    var lines = text.value.split("\n");
    var start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    text.focus();
    text.setSelectionRange(start, start + (lines[line - 1] || "").length);
    text.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(text).lineHeight));
  });

  // What has not changed is not announced again, and nobody's hands are taken off what they type.
  var opened = {};
  document.addEventListener("htmx:oobBeforeSwap", function (event) {
    var target = event.detail.target;
    var fresh = event.detail.fragment;
    if (target.hasAttribute("data-live") && target.textContent.trim() === fresh.textContent.trim()) {
      event.detail.shouldSwap = false;
    }
  });
  document.addEventListener("htmx:beforeSwap", function (event) {
    if (event.detail.target.id !== "look") return;
    document.querySelectorAll("[data-keep-open][open]").forEach(function (one) { opened[one.id] = true; });
  });
  function tidy() {
    Object.keys(opened).forEach(function (id) {
      var one = document.getElementById(id);
      if (one) one.open = true;
    });
    opened = {};
    mark();
    sort();
    numbers();
  }
  document.addEventListener("htmx:afterSettle", tidy);

  window.addEventListener("beforeunload", function (event) { if (dirty) event.preventDefault(); });
  document.addEventListener("submit", function (event) {
    var by = event.submitter;
    if (event.target === form() && !(by && by.hasAttribute("data-unguarded"))) dirty = false;
  });
  document.addEventListener("click", function (event) {
    if (event.target.closest("a[data-unguarded]")) dirty = false;
  });

  tidy();
})();
