// Live rows of the first page of decisions, by server-sent events; without them the page is static.
(function () {
  "use strict";
  var current = null; // the table that is followed, and its event source

  function follow() {
    var table = document.getElementById("decisions");
    if (current && current.table === table) return;
    stop();
    if (table && table.dataset.stream && window.EventSource) current = start(table);
  }

  function stop() {
    if (current) current.source.close();
    current = null;
  }

  function start(table) {
    var body = table.tBodies[0];
    var state = document.getElementById("live-state");
    var pause = document.getElementById("live-pause");
    var most = Number(table.dataset.rows);
    var held = null; // rows received while updates are paused
    pause.hidden = false;

    function put(row) {
      var holder = document.createElement("tbody");
      holder.innerHTML = row.html; // from the console's own template
      var fresh = holder.querySelector("tr");
      var old = Array.prototype.find.call(body.rows, function (one) { return one.dataset.decision === row.id; });
      if (old && old.contains(document.activeElement)) return; // keep the focused row
      if (old) { old.replaceWith(fresh); return; }
      var empty = body.querySelector("[data-empty]");
      if (empty) empty.remove();
      body.prepend(fresh);
      while (body.rows.length > most) body.lastElementChild.remove();
    }

    function shown() { state.textContent = held ? "Paused, " + held.length + " new" : "Live"; }

    function took(data) {
      if (data.error) { state.textContent = data.error; return; }
      if (held) {
        var known = data.rows.map(function (row) { return row.id; });
        held = data.rows.concat(held.filter(function (row) { return known.indexOf(row.id) < 0; })).slice(0, most);
      } else {
        data.rows.slice().reverse().forEach(put);
      }
      shown();
    }

    var query = new URLSearchParams(window.location.search);
    query.delete("page");
    var source = new EventSource(table.dataset.stream + "?" + query);
    source.addEventListener("open", shown);
    source.addEventListener("status", function (event) { took(JSON.parse(event.data)); });
    source.addEventListener("gone", function () { state.textContent = "The endpoint was deleted."; source.close(); });
    source.addEventListener("error", function () {
      state.textContent = source.readyState === EventSource.CLOSED ? "Live updates ended. Reload the page." : "Reconnecting…";
    });
    pause.addEventListener("click", function () {
      var waiting = held;
      held = held ? null : [];
      pause.setAttribute("aria-pressed", held ? "true" : "false");
      if (waiting) waiting.slice().reverse().forEach(put);
      shown();
    });
    return { table: table, source: source };
  }

  document.body.addEventListener("htmx:afterSettle", follow);
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", follow);
  follow();
})();
