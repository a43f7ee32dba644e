"""Load test definition: workload, rate and limits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from console.core.errors import Problem, Refused

CHAT, DOCUMENTS, TRACE = "chat", "documents", "trace"
WORKLOADS = {CHAT: "Multi-turn chat", DOCUMENTS: "Questions about shared documents", TRACE: "Trace"}
RATE, CONCURRENCY = "rate", "concurrency"
MODES = {RATE: "Request rate", CONCURRENCY: "Concurrency"}
CHAT_API, COMPLETIONS_API = "chat", "completions"
APIS = {CHAT_API: "/v1/chat/completions", COMPLETIONS_API: "/v1/completions"}

MAX_REQUESTS = 50_000
WARM = "warm"
"""Nonce of jobs that may hit cache entries of earlier jobs."""


@dataclass(frozen=True, slots=True)
class Field:
    """A numeric parameter. `only` is its workload or mode, "" for all."""

    name: str
    label: str
    default: float
    low: float
    high: float
    unit: str = ""
    whole: bool = True
    only: str = ""
    help: str = ""


FIELDS = (
    Field("rate", "Request rate", 2.0, 0.01, 2000, "requests/s", False, RATE, "Poisson arrivals "
          "with this mean, independent of earlier responses."),
    Field("concurrency", "Concurrent users", 4, 1, 512, "", True, CONCURRENCY, "Each user sends "
          "the next request after the previous response, so a slow endpoint gets fewer requests."),
    Field("turns", "Turns per conversation", 4, 1, 50, "", True, CHAT),
    Field("system_tokens", "System prompt", 200, 0, 100_000, "tokens", True, CHAT,
          "Shared by all conversations."),
    Field("turn_tokens", "User turn length", 60, 1, 100_000, "tokens", True, CHAT),
    Field("think_s", "Pause between turns", 2.0, 0, 600, "s", False, CHAT),
    Field("documents", "Documents", 8, 1, 10_000, "", True, DOCUMENTS,
          "Zipf-distributed popularity (1 / rank)."),
    Field("document_tokens", "Document length", 1500, 1, 200_000, "tokens", True, DOCUMENTS),
    Field("question_tokens", "Question length", 30, 1, 100_000, "tokens", True, DOCUMENTS),
    Field("speed", "Speed", 1.0, 0.01, 1000, "x", False, TRACE,
          "2 replays the trace in half the time. For request rate only."),
    Field("prompt_limit", "Max prompt length", 4000, 1, 1_000_000, "tokens", True, TRACE,
          "Longer prompts are truncated."),
    Field("answer_tokens", "Max output tokens", 64, 1, 32_000, "", True, "",
          "Per request; for a trace, the upper limit."),
    Field("duration_s", "Duration", 60, 1, 3600, "s", False, "",
          "No new requests are sent after this time."),
    Field("max_requests", "Max requests", 1000, 1, MAX_REQUESTS, ""),
    Field("max_tokens", "Max tokens", 1_000_000, 1, 500_000_000, "", True, "",
          "Prompt and output tokens together."),
    Field("error_percent", "Error limit", 50, 1, 100, "%", True, "",
          "Stops the run; share of the last 20 requests."),
    Field("request_s", "Request timeout", 60, 1, 600, "s", False, ""),
    Field("warmup_s", "Warm-up", 0, 0, 600, "s", False, "",
          "Requests in this period are excluded from the results."),
    Field("seed", "Seed", 1, 0, 2**31 - 1, "", True, "",
          "The same seed gives the same requests and arrival times."),
)  # fmt: skip
_BY_NAME = {field.name: field for field in FIELDS}
_NONCE = re.compile(r"[A-Za-z0-9-]{1,40}")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace: time (s), lengths (tokens) and the prompt's block ids."""

    at: float
    prompt_tokens: int
    answer_tokens: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """Load to generate. `nonce` begins every prompt: only jobs with the same nonce share cached
    prompts. `rows` are the rows of a trace, else empty.
    """

    workload: str = CHAT
    mode: str = RATE
    api: str = CHAT_API
    nonce: str = WARM
    rate: float = 2.0
    concurrency: int = 4
    turns: int = 4
    system_tokens: int = 200
    turn_tokens: int = 60
    think_s: float = 2.0
    documents: int = 8
    document_tokens: int = 1500
    question_tokens: int = 30
    speed: float = 1.0
    prompt_limit: int = 4000
    answer_tokens: int = 64
    duration_s: float = 60.0
    max_requests: int = 1000
    max_tokens: int = 1_000_000
    error_percent: int = 50
    request_s: float = 60.0
    warmup_s: float = 0.0
    seed: int = 1
    rows: tuple[TraceRow, ...] = field(default=(), repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return the job without trace rows (up to thousands), which are stored separately."""
        document = asdict(self)
        del document["rows"]
        return document


def applies_to(one: Field, workload: str, mode: str) -> bool:
    if one.name == "rate" and workload == TRACE:
        return False  # a trace has its own times
    if one.name == "speed" and mode != RATE:
        return False
    return one.only in ("", workload, mode)


def parse_job(given: Mapping[str, Any], rows: tuple[TraceRow, ...] = ()) -> Job:
    """Validate input; missing fields get defaults. Raises `Refused`."""
    problems: list[Problem] = []
    fields: dict[str, Any] = {"rows": rows}
    choices = (("workload", WORKLOADS, CHAT), ("mode", MODES, RATE), ("api", APIS, CHAT_API))
    for name, allowed, default in choices:
        fields[name] = _choice(name, given.get(name, default), allowed, problems)
    for option in FIELDS:
        if option.name in given and given[option.name] not in (None, ""):
            fields[option.name] = _number(option, given[option.name], problems)
    nonce = given.get("nonce", WARM)
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        remedy = "Use 1 to 40 letters, digits or hyphens."
        problems.append(Problem("nonce", nonce, "Invalid nonce.", remedy, "invalid"))
    fields["nonce"] = nonce
    known_names = {"workload", "mode", "api", "nonce", *_BY_NAME}
    problems += [_unknown(name, value) for name, value in given.items() if name not in known_names]
    if not problems:
        problems = _validate_combinations(Job(**fields))
    if problems:
        raise Refused(*problems)
    return Job(**fields)


def from_json(facts: Mapping[str, Any], rows: tuple[TraceRow, ...] = ()) -> Job:
    """Read the result of `as_json`, ignoring fields of former versions."""
    field_names = set(Job.__dataclass_fields__) - {"rows"}
    return Job(**{name: value for name, value in facts.items() if name in field_names}, rows=rows)


def _choice(name: str, value: Any, known: Mapping[str, str], problems: list[Problem]) -> str:
    if isinstance(value, str) and value in known:
        return value
    remedy = f"Choose one of {', '.join(known)}."
    problems.append(Problem(name, value, "Unknown value.", remedy, "unknown_choice"))
    return next(iter(known))


def _number(one: Field, value: Any, problems: list[Problem]) -> float | int:
    remedy = f"Enter {'an integer' if one.whole else 'a number'} from {one.low:g} to {one.high:g}."
    try:
        if isinstance(value, bool):
            raise ValueError("a yes or no")
        number = float(value)
    except (TypeError, ValueError):
        problems.append(Problem(one.name, value, f"{one.label}: not a number.", remedy, "type"))
        return one.default
    if not math.isfinite(number) or (one.whole and not number.is_integer()):
        problems.append(Problem(one.name, value, f"{one.label}: invalid number.", remedy, "type"))
        return one.default
    if not one.low <= number <= one.high:
        word = "too small" if number < one.low else "too large"
        problems.append(Problem(one.name, value, f"{one.label} is {word}.", remedy, "out_of_range"))
        return one.default
    return int(number) if one.whole else number


def _validate_combinations(job: Job) -> list[Problem]:
    problems = []
    if job.workload == TRACE and not job.rows:
        remedy = "Upload a file with one JSON object per line, or use the built-in sample."
        problems.append(Problem("trace", "", "The trace has no requests.", remedy, "required"))
    if job.warmup_s >= job.duration_s:
        remedy = "Set a warm-up shorter than the duration."
        text = "The warm-up covers the whole run, so no request is counted."
        problems.append(Problem("warmup_s", job.warmup_s, text, remedy, "out_of_range"))
    return problems


def _unknown(name: str, value: Any) -> Problem:
    remedy = f"Omit it. Known: {', '.join(sorted(_BY_NAME))}, workload, mode, api, nonce."
    return Problem(name, value, "Unknown field.", remedy, "unknown_field")
