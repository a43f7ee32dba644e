// The playground: several turns, to one endpoint or to two, answered as they are computed.
// The page's form answers one message without this file. Nothing said is kept anywhere.
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

  // -- what is shown

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

  // From the turn at `index` on, forgotten; in every pane, for they hold the same conversation.
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
    field.setAttribute("aria-label", "Your message, changed");
    editor.querySelector(".turn-keep").addEventListener("click", function () {
      editor.remove();
      turn.node.querySelector(".turn-edit").focus();
    });
    editor.querySelector(".turn-resend").addEventListener("click", function () {
      if (!field.value.trim()) return;
      cut(pane.turns.indexOf(turn));
      say(field.value, false);
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

  function say(text, cold) {
    panes.forEach(function (pane) { add(pane, "user", text); });
    panes.forEach(function (pane) { answer(pane, cold); });
    refresh();
  }

  function again(cold) {
    var turns = panes[0].turns;
    var last = turns.length - 1;
    while (last >= 0 && turns[last].role !== "user") last -= 1;
    if (last < 0 || busy()) return;
    var text = turns[last].text;
    cut(last);
    say(text, cold);
  }

  function answer(pane, cold) {
    var body = request(pane, cold);
    var turn = add(pane, "assistant", "");
    var state = turn.node.querySelector(".turn-state");
    pane.abort = new AbortController();
    state.textContent = "Sent…";
    post(pane.box.dataset.chat, body, pane.abort.signal).then(function (response) {
      if (response.ok && response.body) return read(pane, turn, response.body.getReader());
      return response.json().catch(function () {
        return { detail: "The console answered " + response.status + "." };
      }).then(function (told) {
        failed(turn, [told.field, told.detail, told.remedy].filter(Boolean).join(": "));
      });
    }).catch(function (error) {
      var stopped = error.name === "AbortError";
      failed(turn, stopped ? "Stopped by you. The worker was told to stop, too." : "The console does not answer, or broke off.", stopped);
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
        if (!done) failed(turn, "The answer broke off: the console went away.");
      });
    }
    return step();
  }

  function took(pane, turn, kind, data) {
    var state = turn.node.querySelector(".turn-state");
    var follow = pane.log.scrollHeight - pane.log.scrollTop - pane.log.clientHeight < 40;
    if (kind === "head") state.textContent = data.worker ? "At " + data.worker + "…" : "Sent…";
    if (kind === "piece") {
      turn.text += data.text;
      turn.node.querySelector(".turn-text").append(data.text);
    }
    if (kind === "done") {
      state.textContent = "";
      turn.node.querySelector(".turn-facts").innerHTML = data.html; // by the console's own template
    }
    if (follow) pane.log.scrollTop = pane.log.scrollHeight;
  }

  form.addEventListener("submit", function (event) {
    event.preventDefault();
    var text = byId("message").value;
    if (!text.trim() || busy() || mayNotSend) return;
    byId("message").value = "";
    say(text, false);
    byId("message").focus();
  });
  byId("message").addEventListener("keydown", function (event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  byId("stop").addEventListener("click", function () {
    panes.forEach(function (pane) { if (pane.abort) pane.abort.abort(); });
    byId("message").focus();
  });
  byId("warm").addEventListener("click", function () { again(false); });
  byId("cold").addEventListener("click", function () { again(true); });
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
      if (!response.ok) return response.json().then(function (told) { return Promise.reject(told); });
      return response.text();
    }).then(function (html) { byId("code-body").innerHTML = html; }, function (told) {
      byId("code-body").textContent = told.detail ? told.detail + " " + (told.remedy || "") : "The console does not answer.";
    });
  });
  window.addEventListener("beforeunload", function (event) {
    if (panes[0].turns.length > 2) event.preventDefault();
  });
  refresh();
})();
