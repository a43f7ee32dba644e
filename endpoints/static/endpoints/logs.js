// Follow one container's log. The server ends each response after a few seconds and the browser
// resumes after the last event id, so that a restart of the console is only a pause.
(function () {
  "use strict";

  var box = document.getElementById("log");
  if (!box) return;
  var state = document.getElementById("log-state");
  var MOST = 5000;
  var last = "";
  var source = null;
  var gone = 0;

  function say(text) { if (state.textContent !== text) state.textContent = text; }

  function add(event) {
    gone = 0;
    last = event.lastEventId || last;
    if (event.type === "anew") box.textContent = "";
    var atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    box.append(JSON.parse(event.data) + "\n");
    while (box.childNodes.length > MOST) box.firstChild.remove();
    if (atEnd) box.scrollTop = box.scrollHeight;
    say("Following");
  }

  function follow() {
    var url = new URL(box.dataset.lines, window.location.href);
    if (last) url.searchParams.set("after", last);
    source = new EventSource(url);
    source.addEventListener("open", function () { gone = 0; say("Following"); });
    source.addEventListener("message", add);
    source.addEventListener("anew", add);
    source.addEventListener("problem", function (event) { say(JSON.parse(event.data)); });
    source.addEventListener("error", function () {
      // The end of a response is an error event, too: report only repeated ones.
      gone += 1;
      if (gone > 2) say("Console unreachable; reconnecting.");
      if (source.readyState === EventSource.CLOSED) window.setTimeout(follow, 3000);
    });
  }

  window.addEventListener("pagehide", function () { if (source) source.close(); });
  follow();
})();
