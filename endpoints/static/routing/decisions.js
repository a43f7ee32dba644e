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
      showCosts(fresh);
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

  // -- cost of a request, at the endpoint's prices of the last 24 hours

  var prices = null; // USD of a computed prompt token and of an output token; null: unknown

  function showCosts(root) {
    if (!prices) return;
    root.querySelectorAll("[data-computed]").forEach(function (cell) {
      var usd = cell.dataset.computed * prices.computed + cell.dataset.output * prices.output;
      cell.textContent = "$" + (usd >= 0.0995 ? usd.toFixed(2) : Number(usd.toPrecision(2)).toFixed(Math.max(2, 1 - Math.floor(Math.log10(usd || 1)))));
    });
  }

  function readPrices(name) {
    fetch("/api/v1/costs/?range=24h&endpoint=" + encodeURIComponent(name)).then(function (response) {
      return response.ok ? response.json() : { endpoints: [] };
    }).then(function (costs) {
      var row = costs.endpoints[0];
      if (!row || row.usd_per_million_input === null || row.usd_per_million_output === null) return;
      var computed = row.prompt_tokens - row.cached_tokens_device - row.cached_tokens_l1 - row.cached_tokens_l2;
      if (!(computed > 0)) return;
      prices = { computed: row.usd_per_million_input / 1e6 * row.prompt_tokens / computed, output: row.usd_per_million_output / 1e6 };
      showCosts(document);
    });
  }

  document.body.addEventListener("htmx:afterSettle", function (event) { follow(); showCosts(event.target); });
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", follow);
  follow();
  readPrices(document.querySelector("[data-endpoint]").dataset.endpoint);
})();
