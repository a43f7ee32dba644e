// Playground: streamed conversations with one or two endpoints, and a table of measured runs.
// Without this file the page's form sends one message. Turns and runs are kept in the browser tab.
(function () {
  "use strict";
  var form = document.getElementById("playground");
  if (!form) return;
  var byId = function (id) { return document.getElementById(id); };
  var token = form.querySelector("[name=csrfmiddlewaretoken]").value;
  var panes = Array.prototype.map.call(form.querySelectorAll("[data-pane]"), function (box) {
    return { box: box, log: box.querySelector(".turns"), turns: [], abort: null };
  });
  var mayNotSend = byId("send").disabled;
  var name = function (pane) { return pane.log.getAttribute("aria-label").replace("Conversation with ", ""); };
  var runs = []; // the newest first
  byId("warm").hidden = byId("cold").hidden = false;

  function parameters() {
    var found = {};
    form.querySelectorAll("[data-parameter]").forEach(function (field) {
      if (field.value !== "") found[field.name] = Number(field.value);
    });
    return found;
  }

  function request(pane, cold, draft) {
    var route = pane.box.querySelector(".pane-route").value;
    var said = pane.turns.filter(function (turn) { return turn.text || turn.role === "user"; })
      .map(function (turn) { return { role: turn.role, content: turn.text }; });
    if (draft) said.push({ role: "user", content: draft });
    while (said.length && said[said.length - 1].role === "assistant") said.pop();
    if (byId("system").value.trim()) said.unshift({ role: "system", content: byId("system").value });
    var body = {
      messages: said, api: byId("api").value, parameters: parameters(),
      stop: byId("stop-texts").value.split("\n").filter(Boolean), session: byId("session").value, cold: !!cold
    };
    if (route.indexOf("as:") === 0) body.route = route.slice(3);
    if (route.indexOf("worker:") === 0) body.worker = route.slice(7);
    return body;
  }

  function post(url, body, signal) {
    return fetch(url, {
      method: "POST", body: JSON.stringify(body), signal: signal,
      headers: { "Content-Type": "application/json", "X-CSRFToken": token }
    });
  }

  // -- conversation

  function shown(pane, turn) {
    var empty = pane.log.querySelector(".turns-empty");
    if (empty) empty.remove();
    var node = byId("turn-template").content.firstElementChild.cloneNode(true);
    node.classList.add("turn-" + turn.role);
    node.querySelector(".turn-who").textContent = turn.role === "user" ? "You" : name(pane);
    node.querySelector(".turn-text").textContent = turn.text;
    if (turn.role === "user") {
      var edit = node.querySelector(".turn-edit");
      edit.hidden = mayNotSend;
      edit.addEventListener("click", function () { change(pane, turn); });
    }
    turn.node = node;
    pane.log.append(node);
    pane.log.scrollTop = pane.log.scrollHeight;
  }

  function add(pane, role, text) {
    var turn = { role: role, text: text, node: null };
    pane.turns.push(turn);
    shown(pane, turn);
    return turn;
  }

  // Remove the turns from `index` on; in every pane, because all have the same conversation.
  function cut(index) {
    panes.forEach(function (pane) {
      pane.turns.splice(index).forEach(function (turn) { turn.node.remove(); });
    });
  }

  function change(pane, turn) {
    if (busy() || turn.node.querySelector(".turn-editor")) return;
    var editor = byId("edit-template").content.firstElementChild.cloneNode(true);
    var field = editor.querySelector("textarea");
    field.value = turn.text;
    field.setAttribute("aria-label", "Edited message");
    editor.querySelector(".turn-keep").addEventListener("click", function () {
      editor.remove();
      turn.node.querySelector(".turn-edit").focus();
    });
    editor.querySelector(".turn-resend").addEventListener("click", function () {
      if (!field.value.trim()) return;
      cut(pane.turns.indexOf(turn));
      say(field.value, "first");
    });
    turn.node.append(editor);
    field.focus();
  }

  // -- sending

  function busy() { return panes.some(function (pane) { return pane.abort; }); }

  function refresh() {
    var running = busy();
    var said = panes[0].turns.length > 0;
    byId("send").disabled = mayNotSend || running;
    byId("stop").hidden = !running;
    byId("anew").hidden = !said;
    byId("warm").disabled = byId("cold").disabled = mayNotSend || running || !said;
  }

  function say(text, mode) {
    panes.forEach(function (pane) { add(pane, "user", text); });
    panes.forEach(function (pane) { answer(pane, mode, text); });
    refresh();
  }

  function again(mode) {
    var turns = panes[0].turns;
    var last = turns.length - 1;
    while (last >= 0 && turns[last].role !== "user") last -= 1;
    if (last < 0 || busy()) return;
    var text = turns[last].text;
    cut(last);
    say(text, mode);
  }

  function answer(pane, mode, message) {
    var body = request(pane, mode === "cold");
    var turn = add(pane, "assistant", "");
    turn.mode = mode;
    turn.message = message;
    var state = turn.node.querySelector(".turn-state");
    pane.abort = new AbortController();
    state.textContent = "Sent…";
    post(pane.box.dataset.chat, body, pane.abort.signal).then(function (response) {
      if (response.ok && response.body) return read(pane, turn, response.body.getReader());
      return response.json().catch(function () {
        return { detail: "The console returned HTTP " + response.status + "." };
      }).then(function (reply) {
        failed(turn, (reply.field ? reply.field + ": " : "") + [reply.detail, reply.remedy].filter(Boolean).join(" "));
      });
    }).catch(function (error) {
      var stopped = error.name === "AbortError";
      failed(turn, stopped ? "Stopped. The worker stopped generating." : "The connection to the console was lost. Send the message again.", stopped);
    }).finally(function () {
      pane.abort = null;
      refresh();
    });
  }

  function failed(turn, text, calm) {
    var state = turn.node.querySelector(".turn-state");
    state.textContent = text;
    state.classList.toggle("text-danger", !calm);
    if (!calm) state.setAttribute("role", "alert");
  }

  // Server-sent events over a POST: EventSource cannot send one.
  function read(pane, turn, reader) {
    var decoder = new TextDecoder();
    var rest = "";
    var done = false;
    function step() {
      return reader.read().then(function (part) {
        rest += decoder.decode(part.value || new Uint8Array(), { stream: !part.done });
        var events = rest.split("\n\n");
        rest = events.pop();
        events.forEach(function (text) {
          var lines = text.split("\n");
          if (lines.length < 2 || lines[0].indexOf("event: ") !== 0) return;
          var kind = lines[0].slice(7);
          done = done || kind === "done";
          took(pane, turn, kind, JSON.parse(lines[1].slice(6)));
        });
        if (!part.done) return step();
        if (!done) failed(turn, "Incomplete response: the connection to the console was lost.");
      });
    }
    return step();
  }

  function took(pane, turn, kind, data) {
    var state = turn.node.querySelector(".turn-state");
    var follow = pane.log.scrollHeight - pane.log.scrollTop - pane.log.clientHeight < 40;
    if (kind === "head") state.textContent = data.worker ? "Generating on " + data.worker + "…" : "Sent…";
    if (kind === "piece") {
      turn.text += data.text;
      turn.node.querySelector(".turn-text").append(data.text);
    }
    if (kind === "done") {
      state.textContent = "";
      showFacts(turn, data.html);
      var number = runs.length ? runs[0].number + 1 : 1;
      addRun({ number: number, mode: turn.mode, message: turn.message, endpoint: pane.box.dataset.endpoint, data: data });
      summarize();
    }
    if (follow) pane.log.scrollTop = pane.log.scrollHeight;
  }

  function showFacts(turn, html) {
    turn.html = html;
    var node = turn.node.querySelector(".turn-facts");
    node.innerHTML = html; // from the console's own template
    window.htmx.process(node);
  }

  // -- runs: one row for each response, kept until the tab is closed

  var MAX_RUNS = 200;
  var COLUMNS = ["run", "mode", "endpoint", "worker", "reason", "route", "ttft_s", "itl_s", "duration_s", "prompt_tokens",
    "device", "l1", "l2", "cached_unknown_tier", "computed", "completion_tokens", "decision", "error", "message"];

  function addRun(run) {
    var holder = document.createElement("tbody");
    holder.innerHTML = run.data.row; // from the console's own template
    var row = holder.firstElementChild;
    row.querySelector("[data-run=number]").textContent = run.number;
    var mode = row.querySelector("[data-run=mode]");
    mode.textContent = run.mode;
    if (run.mode !== "first") mode.classList.replace("bg-secondary-lt", run.mode === "cold" ? "bg-blue-lt" : "bg-orange-lt");
    var message = row.querySelector("[data-run=message]");
    message.textContent = message.title = run.message.slice(0, 200);
    byId("runs-rows").prepend(row);
    window.htmx.process(row);
    runs.unshift(run);
    if (runs.length > MAX_RUNS) { runs.pop(); byId("runs-rows").lastElementChild.remove(); }
  }

  function middle(values) {
    var sorted = values.slice().sort(function (a, b) { return a - b; });
    var half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }

  function seconds(value) { return value < 0.9995 ? (1000 * value).toPrecision(3).replace(/\.0+$/, "") + " ms" : value.toFixed(2) + " s"; }

  // TTFT p50 of the latest message's cold and warm runs: other messages have other prompt lengths.
  function summarize() {
    byId("runs").hidden = !runs.length;
    var of = function (mode) {
      return runs.filter(function (run) { return run.mode === mode && run.message === runs[0].message && run.data.ttft_s && !run.data.error; })
        .map(function (run) { return run.data.ttft_s; });
    };
    var text = "Every response adds a row. Send the message again warm and cold to compare TTFT.";
    if (runs.length) {
      var cold = of("cold"), warm = of("warm"), parts = [];
      var count = function (values) { return " (" + values.length + (values.length === 1 ? " run)" : " runs)"); };
      if (cold.length) parts.push("cold " + seconds(middle(cold)) + count(cold));
      if (warm.length) parts.push("warm " + seconds(middle(warm)) + count(warm));
      if (parts.length) text = "TTFT p50 of the latest message: " + parts.join(", ");
      if (parts.length === 2) text += ". Cold / warm: " + (middle(cold) / middle(warm)).toFixed(1) + "×";
    }
    byId("runs-summary").textContent = text;
    byId("runs-csv").textContent = [COLUMNS].concat(runs.slice().reverse().map(cells)).map(function (row) { return row.map(quoted).join(","); }).join("\n");
  }

  function cells(run) {
    var data = run.data, tokens = data.tokens;
    return [run.number, run.mode, run.endpoint, data.worker, data.reason, data.route, data.ttft_s, data.itl_s, data.duration_s, tokens.prompt,
      tokens.device, tokens.l1, tokens.l2, tokens.cache, tokens.computed, data.completion_tokens, data.decision, data.error, run.message];
  }

  function quoted(value) {
    if (value === null || value === undefined) return "";
    var text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text; // no formula in a spreadsheet
    return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  }

  form.addEventListener("submit", function (event) {
    event.preventDefault();
    var text = byId("message").value;
    if (!text.trim() || busy() || mayNotSend) return;
    byId("message").value = "";
    say(text, "first");
    byId("message").focus();
  });
  byId("message").addEventListener("keydown", function (event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  byId("stop").addEventListener("click", function () {
    panes.forEach(function (pane) { if (pane.abort) pane.abort.abort(); });
    byId("message").focus();
  });
  byId("warm").addEventListener("click", function () { again("warm"); });
  byId("cold").addEventListener("click", function () { again("cold"); });
  byId("runs-clear").addEventListener("click", function () {
    runs = [];
    byId("runs-rows").replaceChildren();
    summarize();
    byId("message").focus();
  });
  byId("anew").addEventListener("click", function () {
    panes.forEach(function (pane) { if (pane.abort) pane.abort.abort(); });
    cut(0);
    refresh();
    byId("message").focus();
  });

  byId("code").addEventListener("toggle", function () {
    if (!byId("code").open) return;
    var pane = panes[0];
    var draft = byId("message").value.trim() ? byId("message").value : "";
    var body = request(pane, false, draft);
    delete body.route;
    if (!body.messages.length) body.messages = [{ role: "user", content: "Hello" }];
    post(pane.box.dataset.code, body).then(function (response) {
      if (!response.ok) return response.json().then(function (reply) { return Promise.reject(reply); });
      return response.text();
    }).then(function (html) { byId("code-body").innerHTML = html; }, function (reply) {
      byId("code-body").textContent = reply.detail ? reply.detail + " " + (reply.remedy || "") : "The console did not respond. Close and reopen this section.";
    });
  });

  // -- leaving the page and coming back, in this browser tab

  var STORED = "playground " + form.dataset.user + " " + panes.map(function (pane) { return pane.box.dataset.endpoint; }).join(" ");

  window.addEventListener("pagehide", function () {
    var turns = panes.map(function (pane) {
      return pane.turns.map(function (turn) {
        var answering = pane.abort && turn.role === "assistant" && !turn.html;
        var state = answering ? "Stopped when the page was left." : turn.node.querySelector(".turn-state").textContent;
        return { role: turn.role, text: turn.text, mode: turn.mode, message: turn.message, html: turn.html, state: state };
      });
    });
    try { sessionStorage.setItem(STORED, JSON.stringify({ turns: turns, runs: runs })); } catch { sessionStorage.removeItem(STORED); } // larger than the browser's limit
  });

  function restore() {
    var stored = JSON.parse(sessionStorage.getItem(STORED) || "null");
    if (!stored) return;
    panes.forEach(function (pane, index) {
      stored.turns[index].forEach(function (turn) {
        var added = Object.assign(add(pane, turn.role, turn.text), { mode: turn.mode, message: turn.message });
        added.node.querySelector(".turn-state").textContent = turn.state;
        if (turn.html) showFacts(added, turn.html);
      });
    });
    stored.runs.reverse().forEach(addRun);
    summarize();
  }

  restore();
  refresh();
})();
