// Rows of decisions as the router makes them, by server-sent events; without them the page stands still.
(function () {
  "use strict";
  var table = document.getElementById("decisions");
  if (!table || !window.EventSource) return;
  var body = table.tBodies[0];
  var state = document.getElementById("live-state");
  var pause = document.getElementById("live-pause");
  var most = 100;
  var held = null; // while it is paused: what came meanwhile
  pause.hidden = false;

  function put(row) {
    var holder = document.createElement("tbody");
    holder.innerHTML = row.html; // by the console's own template
    var fresh = holder.querySelector("tr");
    var old = Array.prototype.find.call(body.rows, function (one) { return one.dataset.decision === row.id; });
    if (old && old.contains(document.activeElement)) return; // whoever reads it keeps it
    if (old) { old.replaceWith(fresh); return; }
    var empty = body.querySelector("[data-empty]");
    if (empty) empty.remove();
    body.prepend(fresh);
    while (body.rows.length > most) body.lastElementChild.remove();
  }

  function took(data) {
    if (data.error) { state.textContent = data.error; return; }
    state.textContent = held ? "Held, " + held.length + " waiting" : "Live";
    if (held) { held = data.rows.concat(held).slice(0, most); state.textContent = "Held, " + held.length + " waiting"; return; }
    data.rows.slice().reverse().forEach(put);
  }

  var source = new EventSource(table.dataset.stream + window.location.search);
  source.addEventListener("open", function () { state.textContent = held ? "Held" : "Live"; });
  source.addEventListener("status", function (event) { took(JSON.parse(event.data)); });
  source.addEventListener("gone", function () { state.textContent = "The endpoint is gone."; source.close(); });
  source.addEventListener("error", function () {
    state.textContent = source.readyState === EventSource.CLOSED ? "Not live: reload the page to see more." : "Connecting again…";
  });
  pause.addEventListener("click", function () {
    var waiting = held;
    held = held ? null : [];
    pause.setAttribute("aria-pressed", held ? "true" : "false");
    state.textContent = held ? "Held" : "Live";
    if (waiting) waiting.slice().reverse().forEach(put);
  });
  window.addEventListener("pagehide", function () { source.close(); });
})();
