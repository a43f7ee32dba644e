// Keyboard and pointer of an input with a list of options loaded by htmx (WAI-ARIA combobox). Any
// text is a valid value; without script the input is a plain text field.
(function () {
  "use strict";

  function input(target) { return target.closest ? target.closest("[data-combobox]") : null; }
  function list(field) { return document.getElementById(field.getAttribute("data-combobox")); }
  function options(field) { return Array.from(list(field).querySelectorAll("[role=option]:not([aria-disabled])")); }
  function active(field) { return list(field).querySelector(".is-active"); }

  function show(field, visible) {
    list(field).hidden = !visible;
    field.setAttribute("aria-expanded", String(visible));
    if (!visible) activate(field, null);
  }
  function activate(field, option) {
    var previous = active(field);
    if (previous) previous.classList.remove("is-active");
    field.removeAttribute("aria-activedescendant");
    delete field.dataset.activeValue;
    if (!option) return;
    field.dataset.activeValue = option.getAttribute("data-value");
    option.classList.add("is-active");
    option.scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", option.id);
  }
  function choose(field, value) {
    field.value = value;
    show(field, false);
    field.dispatchEvent(new Event("change", { bubbles: true }));
  }
  function move(field, step) {
    var all = options(field);
    if (!all.length) return;
    var at = all.indexOf(active(field));
    if (at < 0) at = step > 0 ? -1 : all.length;
    activate(field, all[(at + step + all.length) % all.length]);
  }

  document.addEventListener("keydown", function (event) {
    var field = input(event.target);
    if (!field || event.isComposing) return;
    var open = !list(field).hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) show(field, true);
      move(field, event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter" && open && field.dataset.activeValue !== undefined) {
      event.preventDefault();
      choose(field, field.dataset.activeValue);  // also while its option is being replaced
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      show(field, false);
    } else if (event.key === "Tab" && open) {
      show(field, false);
    }
  });
  document.addEventListener("input", function (event) {
    var field = input(event.target);
    if (field) show(field, true);
  });
  document.addEventListener("click", function (event) {
    var field = input(event.target);
    if (field) show(field, true);
    document.querySelectorAll("[data-combobox]").forEach(function (one) {
      if (one !== field && !list(one).contains(event.target)) show(one, false);
    });
  });
  // A late answer replaces the options: the same one stays active.
  document.addEventListener("htmx:afterSwap", function (event) {
    var field = document.querySelector("[data-combobox='" + event.target.id + "']");
    if (!field || field.dataset.activeValue === undefined) return;
    activate(field, options(field).find(function (option) {
      return option.getAttribute("data-value") === field.dataset.activeValue;
    }) || null);
  });
  // The data list is for browsers without script: beside ours its options would show twice.
  function adopt() {
    document.querySelectorAll("[data-combobox][list]").forEach(function (field) { field.removeAttribute("list"); });
  }
  adopt();
  document.addEventListener("htmx:load", adopt);
  // Before the input loses the focus.
  document.addEventListener("mousedown", function (event) {
    var option = event.target.closest(".combobox-options [role=option]:not([aria-disabled])");
    if (!option) return;
    event.preventDefault();
    var owner = document.querySelector("[data-combobox='" + option.parentElement.id + "']");
    choose(owner, option.getAttribute("data-value"));
  });
  document.addEventListener("focusout", function (event) {
    var field = input(event.target);
    if (field && document.hasFocus()) show(field, false);
  });
})();
