// Display preferences of this browser: theme and time zone. Runs before the first paint.
(function () {
  "use strict";
  var dark = window.matchMedia("(prefers-color-scheme: dark)");

  function read(key) {
    try {
      return window.localStorage.getItem("emberline-" + key) || "auto";
    } catch (error) {
      return "auto"; // storage disabled: the choice holds for this page
    }
  }

  function write(key, value) {
    try {
      window.localStorage.setItem("emberline-" + key, value);
    } catch (error) { /* as above */ }
  }

  function browserZone() {
    try {
      return window.Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
    } catch (error) {
      return "UTC";
    }
  }

  function mark(attribute, choice) {
    document.querySelectorAll("[" + attribute + "]").forEach(function (button) {
      var active = button.getAttribute(attribute) === choice;
      button.setAttribute("aria-pressed", String(active));
      button.classList.toggle("active", active);
    });
  }

  // The server renders times in the zone of this cookie.
  function sendZone() {
    var zone = read("time") === "utc" ? "UTC" : browserZone();
    document.cookie = "emberline-zone=" + zone + "; path=/; max-age=31536000; samesite=lax";
  }

  function apply() {
    var choice = read("theme");
    var theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
    document.documentElement.setAttribute("data-bs-theme", theme);
    mark("data-theme-choice", choice);
    mark("data-time-choice", read("time"));
    document.querySelectorAll("[data-browser-zone]").forEach(function (place) { place.textContent = browserZone(); });
    document.dispatchEvent(new CustomEvent("emberline:theme", { detail: { theme: theme } }));
  }

  document.addEventListener("click", function (event) {
    var theme = event.target.closest("[data-theme-choice]"), time = event.target.closest("[data-time-choice]");
    if (theme) write("theme", theme.getAttribute("data-theme-choice"));
    if (theme) apply();
    if (!time) return;
    write("time", time.getAttribute("data-time-choice"));
    sendZone();
    window.location.reload();
  });
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", apply);
  sendZone();
  apply();
})();
