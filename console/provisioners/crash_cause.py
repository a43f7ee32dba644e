"""Find the log line that explains why a process ended.

A log may be cut at its beginning (a termination message has the last 2048 bytes), may interleave
several processes, and often ends with an exception that only refers to an earlier one. The cause
is the last exception with an explanation, followed through `raise ... from ...` to the first of
its chain.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

MAX_CHARS = 500
_MAX_CONTINUATION = 3

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# "(EngineCore pid=7) ERROR 11-22 17:04:44 [core.py:1510] text", each part optional.
_PROCESS = re.compile(r"^\(([A-Za-z]\w*)(?:[ _][^)]*)?pid=\d+\) ?|^\[rank\d+\]: ?")
_RECORD = re.compile(
    r"^(?:\d{4}-\d\d-\d\d[T ][\d:.,Z+-]+ )?(DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\b:?\s*"
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d ?)?(?:\[[^\]]*:\d+\] ?)?"
)
_EXCEPTION = re.compile(
    r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Failure|Timeout|Interrupt))(?::\s*(.*))?$"
)
_DIRECT_CAUSE = "The above exception was the direct cause"
_FRAME = re.compile(r'^\s+File "(?:[^"]*/)?([^"/]+)", line (\d+), in (\S+)')
_ENDS_MESSAGE = re.compile(
    r"^\s*$|^Traceback |^During handling |^The above exception |^Process |^launch: |^sys:\d"
    r"|^/\S+:\d+:|^\s+For further information|^\s+warnings\.warn|^\s+File \""
)
# Exceptions that only report the failure of another part of the server.
_REFERS_ELSEWHERE = re.compile(
    r"root cause above|EngineDeadError|Engine core initialization failed|EngineCore encountered"
    r"|WorkerProc initialization failed|^(?:SystemExit|KeyboardInterrupt|asyncio\..*CancelledError)"
)
_ONE_LINERS = (
    re.compile(r"^\S+(?: -m \S+)?: error: (.+)$"),  # argparse
    re.compile(r"^(Fatal Python error: .+)$"),
    re.compile(r"^\S*python\S*: (No module named .+|can't open file .+)$"),
    re.compile(r"^\S+: (?:line )?\d+: (?:exec: )?(.+: (?:not found|Permission denied))$"),
    re.compile(r"^(.*error while loading shared libraries: .+)$"),
    re.compile(r"^(terminate called after throwing an instance of .+)$"),
    re.compile(r"^(emberline: .+)$"),
    re.compile(r"^launch: (cannot start .+)$"),
)
_PYDANTIC = re.compile(r"^\d+ validation errors? for \S+\s+(?:Value error, )?(.+?)(?: \[type=|$)")
_SECRET = re.compile(
    r"(?i)\b(hf_)\w{16,}"
    r"|((?:key|token|password|secret)['\"]?\s*[=:]\s*['\"]?|--[\w-]*(?:key|token|secret)\s+)[^\s,;'\"]+"
    r"|(://[^/\s:@]*:)[^/\s@]+(?=@)"
)


@dataclass(frozen=True, slots=True)
class _Line:
    process: str
    level: str
    text: str


@dataclass(slots=True)
class _Found:
    """An exception in the log. `caused`: the preceding exception in the log is its cause."""

    name: str
    message: str
    frame: str
    caused: bool

    @property
    def text(self) -> str:
        short = self.name.rpartition(".")[2]
        if self.message:
            return f"{short}: {self.message}"
        return f"{short} ({self.frame})" if self.frame else short


def crash_cause(log: str) -> str:
    """Return the decisive line of `log` with secrets masked, "" if none."""
    return _trim(_find_explanation(log)[0])


def last_message(log: str) -> str:
    """Return the cause, else the exception that refers to it, else the last line with a text."""
    cause, reference = _find_explanation(log)
    rest = [line.strip() for line in log.splitlines() if not _ENDS_MESSAGE.match(line)]
    return _trim(cause or reference or (rest[-1] if rest else ""))


def _find_explanation(log: str) -> tuple[str, str]:
    """Return the decisive line and the last exception that only refers to another one."""
    lines = [_parsed(line) for line in log.splitlines()]
    decisive = reference = ""
    exceptions: dict[str, list[_Found]] = {}
    frames: dict[str, str] = {}
    caused: set[str] = set()
    for index, line in enumerate(lines):
        if line.text.startswith(_DIRECT_CAUSE):
            caused.add(line.process)
        frame = _FRAME.match(line.text)
        if frame:
            frames[line.process] = f"{frame[1]}:{frame[2]} in {frame[3]}"
        raised = _EXCEPTION.match(line.text)
        if raised:
            chain = exceptions.setdefault(line.process, [])
            message = _message(raised[2] or "", lines, index)
            chained = line.process in caused and bool(chain)
            cause = _Found(raised[1], message, frames.pop(line.process, ""), chained)
            caused.discard(line.process)
            chain.append(cause)
            root = _root_cause(chain)
            if _REFERS_ELSEWHERE.search(root):
                reference = root
            else:
                decisive = root
            continue
        decisive = (_one_liner(line.text) if not line.level else "") or decisive
    return decisive or _last_error(lines), reference


def death_text(how: str, log: str, *, by_signal: bool) -> str:
    """Describe how a process ended and why. After a signal, the last log line is used only if it
    names a cause.
    """
    why = crash_cause(log) if by_signal else last_message(log)
    return f"{how}: {why}" if why else how


def ending_text(died: str) -> str:
    """Describe an end that nobody asked for; `died`: how and why, as from `death_text`."""
    return f"Ended by itself ({died})" if died.startswith("exit status 0") else f"Crashed ({died})"


def exit_text(code: int, number: int = 0) -> str:
    """Return text like "exit code 137 (SIGKILL)"; `number` is the signal if known."""
    try:
        name = f" ({signal.Signals(number or code - 128).name})"
    except ValueError:
        name = ""
    return f"signal {number}{name}" if number else f"exit code {code}{name}"


def _parsed(line: str) -> _Line:
    text = _ANSI.sub("", line).rpartition("\r")[2]  # a progress bar rewrites its line
    process = _PROCESS.match(text)
    text = text[process.end() :] if process else text
    record = _RECORD.match(text)
    level = record[1] if record else ""
    text = text[record.end() :] if record else text
    return _Line((process[1] or "") if process else "", level, text.rstrip())


def _message(first: str, lines: list[_Line], at: int) -> str:
    """Return the exception message, which may span several lines."""
    words = [first]
    for line in lines[at + 1 : at + 1 + _MAX_CONTINUATION]:
        other = line.process != lines[at].process or line.level != lines[at].level
        if other or _ENDS_MESSAGE.match(line.text) or _EXCEPTION.match(line.text):
            break
        words.append(line.text.strip())
    message = " ".join(filter(None, words))
    match = _PYDANTIC.match(message)
    return match[1] if match else message


def _root_cause(chain: list[_Found]) -> str:
    index = len(chain) - 1
    while index > 0 and chain[index].caused:
        index -= 1
    return chain[index].text


def _one_liner(text: str) -> str:
    return next((match[1] for pattern in _ONE_LINERS if (match := pattern.match(text))), "")


def _last_error(lines: list[_Line]) -> str:
    """Return the last logged error that is not a mere reference to another failure."""
    bad = [
        line.text.strip()
        for line in lines
        if line.level in ("ERROR", "CRITICAL", "FATAL") and line.text[:1].strip()
    ]
    return next((text for text in reversed(bad) if not _REFERS_ELSEWHERE.search(text)), "")


def _trim(text: str) -> str:
    redacted = _SECRET.sub(lambda found: f"{found[1] or found[2] or found[3]}***", text.strip())
    return redacted if len(redacted) <= MAX_CHARS else f"{redacted[: MAX_CHARS - 1]}…"
