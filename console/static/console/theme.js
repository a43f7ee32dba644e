// Light, dark or as the system says; runs before the first paint, so it stays tiny.
(function () {
  "use strict";
  var KEY = "emberline-theme";
  var dark = window.matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      return window.localStorage.getItem(KEY) || "auto";
    } catch (error) {
      return "auto"; // storage refused by the browser: follow the system
    }
  }

  function apply() {
    var choice = chosen();
    var theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
    document.documentElement.setAttribute("data-bs-theme", theme);
    document.querySelectorAll("[data-theme-choice]").forEach(function (button) {
      var active = button.getAttribute("data-theme-choice") === choice;
      button.setAttribute("aria-pressed", String(active));
      button.classList.toggle("active", active);
    });
    document.dispatchEvent(new CustomEvent("emberline:theme", { detail: { theme: theme } }));
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-theme-choice]");
    if (!button) return;
    try {
      window.localStorage.setItem(KEY, button.getAttribute("data-theme-choice"));
    } catch (error) {
      // nothing to keep it in; it holds for this page
    }
    apply();
  });
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", apply);
  apply();
})();
