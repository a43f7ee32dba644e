// Input that met an ended session is filled in again after the same user has logged in. It waits in the storage of this
// browser tab, without passwords.
(function () {
  "use strict";
  var KEY = "emberline-input", MINUTES = 60;
  var edited = null; // the form last typed into

  function actionOf(form) { return new URL(form.getAttribute("action") || "", window.location.href).pathname; }

  function fieldsOf(form) {
    return Array.prototype.filter.call(form.elements, function (field) {
      if (!field.name || field.name === "csrfmiddlewaretoken") return false;
      // A stale generation is restored, too: a change by somebody else meanwhile stays a conflict.
      if (field.type === "hidden") return field.name === "generation";
      return ["password", "file", "submit", "button"].indexOf(field.type) < 0;
    });
  }

  function save(form) {
    var fields = fieldsOf(form).map(function (field) { return [field.name, field.type, field.value, field.checked === true]; });
    var input = { user: document.body.dataset.user, action: actionOf(form), fields: fields, at: Date.now(), ended: false };
    if (fields.length) sessionStorage.setItem(KEY, JSON.stringify(input));
  }

  function fill(form, records) {
    var waiting = fieldsOf(form), left = 0;
    records.forEach(function (record) {
      var index = waiting.findIndex(function (field) { return field.name === record[0] && field.type === record[1]; });
      if (index < 0) { left += 1; return; }
      var field = waiting.splice(index, 1)[0];
      if (/^(checkbox|radio)$/.test(field.type)) field.checked = record[3]; else field.value = record[2];
    });
    return left;
  }

  function restore(stored) {
    var form = Array.prototype.find.call(document.querySelectorAll('form[method="post"]'), function (form) {
      return actionOf(form) === stored.action && fieldsOf(form).length;
    });
    if (!form) return;
    sessionStorage.removeItem(KEY);
    var left = fill(form, stored.fields);
    var note = document.createElement("div");
    note.className = "alert alert-info w-100";
    note.setAttribute("role", "status");
    note.textContent = "Your session had ended before this form was saved. Your input is filled in again" +
      (left ? ", except " + left + " fields" : "") + ". Passwords are not. Check it and save.";
    form.prepend(note);
    for (var parent = form; parent; parent = parent.parentElement) if (parent.tagName === "DETAILS") parent.open = true;
    note.scrollIntoView({ block: "center" });
    fieldsOf(form).slice(0, 1).forEach(function (field) { field.dispatchEvent(new Event("change", { bubbles: true })); });
  }

  var stored = JSON.parse(sessionStorage.getItem(KEY) || "null");
  if (stored && document.body.hasAttribute("data-login")) {
    stored.ended = true;
    sessionStorage.setItem(KEY, JSON.stringify(stored));
  } else if (stored && stored.ended && stored.user === document.body.dataset.user && Date.now() - stored.at < MINUTES * 60000) {
    restore(stored);
  } else {
    sessionStorage.removeItem(KEY);
  }

  document.addEventListener("input", function (event) { edited = event.target.form || edited; });
  document.addEventListener("submit", function (event) {
    if (!event.defaultPrevented && event.target.getAttribute("method") === "post" && !document.body.hasAttribute("data-login")) save(event.target);
  });
  // A refresh of a part of the page leads to the login page.
  document.addEventListener("htmx:beforeOnLoad", function (event) {
    if (event.detail.xhr.status === 401 && edited && edited.isConnected && edited.getAttribute("method") === "post") save(edited);
  });
})();
