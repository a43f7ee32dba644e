"""Prompts typed in the console: playground conversations and dry runs, validated.

Turns, text and tokens are bounded.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from console.core.errors import Problem, Refused
from routing.engine.strategies import STRATEGIES

MAX_TURNS = 200
MAX_CHARACTERS = 400_000
MAX_TOKENS = 32_768
ROLES = ("system", "user", "assistant")
APIS = ("chat", "text")
ROUTES = ("", *STRATEGIES)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Numeric sampling parameter; the server's default applies if omitted."""

    name: str
    label: str
    kind: Callable[[Any], Any]
    low: float
    high: float
    initial: Any
    help: str
    step: str = "1"


PARAMETERS = (
    Parameter("max_tokens", "Max output tokens", int, 1, MAX_TOKENS, 128, "1 to 32,768."),
    Parameter("temperature", "Temperature", float, 0, 2, 0, "0: greedy decoding.", "0.1"),
    Parameter("min_tokens", "Min output tokens", int, 0, MAX_TOKENS, "", "No stop token earlier."),
    Parameter("top_p", "Top p", float, 0.001, 1, "", "Nucleus sampling.", "any"),
    Parameter("top_k", "Top k", int, 0, 1_000_000, "", "0: all tokens."),
    Parameter("min_p", "Min p", float, 0, 1, "", "Relative to the top token.", "any"),
    Parameter("seed", "Seed", int, 0, 2**31 - 1, "", "For repeatable sampling."),
    Parameter(
        "presence_penalty", "Presence penalty", float, -2, 2, "", "Above 0: more new tokens.", "0.1"
    ),
    Parameter(
        "frequency_penalty",
        "Frequency penalty",
        float,
        -2,
        2,
        "",
        "Above 0: fewer repetitions.",
        "0.1",
    ),
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Conversation of the playground. `route`: "" uses the endpoint's strategy, else the named one;
    `worker` pins a worker. `salt` prevents prefix cache hits ("" for none).
    """

    messages: tuple[dict[str, str], ...] = field(repr=False)
    api: str = "chat"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    route: str = ""
    worker: str = ""
    session: str = ""
    salt: str = field(default="", repr=False)

    @property
    def prompt(self) -> str:
        """Return all turns as text, for models without a chat template."""
        return "\n".join(message["content"] for message in self.messages)

    @property
    def fields(self) -> dict[str, Any]:
        """Return the request body without model, prompt and streaming."""
        fields_read = dict(self.parameters)
        if self.stop:
            fields_read["stop"] = list(self.stop)
        if self.salt:
            fields_read["cache_salt"] = self.salt
        return fields_read


def from_json(data: Any) -> Conversation:
    """Parse JSON from the page's script or a program; raise `Refused`."""
    if not isinstance(data, Mapping):
        raise Refused(_problem("", data, "The body is not a JSON object.", "Send an object."))
    field_names = {"messages", "api", "parameters", "stop", "route", "worker", "session", "cold"}
    for name in data:
        if name not in field_names:
            allowed = ", ".join(sorted(field_names))
            raise Refused(_problem(str(name), data[name], "Unknown field.", f"Known: {allowed}."))
    problems: list[Problem] = []
    api = _parse_choice("api", data.get("api", "chat"), APIS, problems)
    route = _parse_choice("route", data.get("route", ""), ROUTES, problems)
    messages = _messages(data.get("messages"), problems)
    parameters = _parameters(data.get("parameters") or {}, problems)
    stop = _stop(data.get("stop") or [], problems)
    worker, session = (
        _parse_short_text(name, data.get(name, ""), problems) for name in ("worker", "session")
    )
    if problems:
        raise Refused(*problems)
    salt = secrets.token_urlsafe(12) if data.get("cold") is True else ""
    return Conversation(messages, api, parameters, stop, route, worker, session, salt)


def from_form(data: Mapping[str, str]) -> Conversation:
    """Parse the form of a page without script: one message and a system prompt."""
    messages = [{"role": "user", "content": data.get("message", "")}]
    if data.get("system", "").strip():
        messages.insert(0, {"role": "system", "content": data["system"]})
    numbers = {p.name: data[p.name] for p in PARAMETERS if data.get(p.name, "").strip()}
    return from_json(
        {
            "messages": messages,
            "api": data.get("api") or "chat",
            "parameters": numbers,
            "stop": [line for line in data.get("stop", "").splitlines() if line],
            **parse_route(data.get("route", "")),
            "session": data.get("session", ""),
            "cold": bool(data.get("cold")),
        }
    )


def parse_route(choice: str) -> dict[str, str]:
    """Parse the routing choice: "" the router, "as:STRATEGY", "worker:NAME"."""
    kind, _, name = choice.partition(":")
    return {"as": {"route": name}, "worker": {"worker": name}}.get(kind, {"route": choice})


def _messages(given: Any, problems: list[Problem]) -> tuple[dict[str, str], ...]:
    remedy = 'Give a list such as [{"role": "user", "content": "Hello"}].'
    if not isinstance(given, list) or not given:
        problems.append(_problem("messages", given, "The conversation has no message.", remedy))
        return ()
    if len(given) > MAX_TURNS:
        text = f"{len(given)} messages exceed the limit."
        problems.append(_problem("messages", len(given), text, f"Send up to {MAX_TURNS}."))
        return ()
    messages = []
    for number, item in enumerate(given):
        good = isinstance(item, Mapping) and item.get("role") in ROLES
        if not good or not isinstance(item.get("content"), str):
            text = f"Message {number + 1} has no text, or a role other than {', '.join(ROLES)}."
            problems.append(_problem(f"messages.{number}", "", text, remedy))
            return ()
        messages.append({"role": str(item["role"]), "content": str(item["content"])})
    return _check_messages(messages, problems)


def _check_messages(
    found: list[dict[str, str]], problems: list[Problem]
) -> tuple[dict[str, str], ...]:
    size = sum(len(message["content"]) for message in found)
    if size > MAX_CHARACTERS:
        text = f"{size} characters exceed the limit."
        problems.append(_problem("messages", size, text, f"Send up to {MAX_CHARACTERS}."))
    if not found[-1]["content"].strip():
        problems.append(_problem("message", "", "The message is empty.", "Enter a message."))
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        text = "A message contains an unpaired surrogate."
        problems.append(_problem("messages", "", text, "Send valid Unicode."))
    return tuple(found)


def _parameters(given: Any, problems: list[Problem]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        problems.append(
            _problem("parameters", given, "Parameters are not an object.", "Send an object.")
        )
        return {}
    by_name = {parameter.name: parameter for parameter in PARAMETERS}
    parameters = {}
    for name, value in given.items():
        parameter = by_name.get(str(name))
        if parameter is None:
            remedy = f"Known: {', '.join(by_name)}."
            problems.append(_problem(str(name), value, "Unknown parameter.", remedy))
            continue
        number = _number(parameter, value)
        if number is None:
            whole = "an integer" if parameter.kind is int else "a number"
            remedy = f"Enter {whole} from {parameter.low:.10g} to {parameter.high:.10g}."
            problems.append(_problem(parameter.name, value, "Invalid or out of range.", remedy))
            continue
        parameters[parameter.name] = number
    return parameters


def _number(parameter: Parameter, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = parameter.kind(value)
    except (ValueError, OverflowError):
        return None
    if isinstance(value, float) and number != value:
        return None  # a fraction for an integer parameter
    return number if parameter.low <= number <= parameter.high else None


def _stop(given: Any, problems: list[Problem]) -> tuple[str, ...]:
    texts = [given] if isinstance(given, str) else given
    good = isinstance(texts, list) and len(texts) <= 4
    if not good or not all(isinstance(text, str) and 0 < len(text) <= 200 for text in texts):
        text = "Invalid stop sequences."
        problems.append(_problem("stop", "", text, "Enter up to 4, each of up to 200 characters."))
        return ()
    return tuple(texts)


def _parse_choice(name: str, value: Any, choices: tuple[str, ...], problems: list[Problem]) -> str:
    if value in choices and isinstance(value, str):
        return value
    remedy = f"Choose one of: {', '.join(choice or '(empty)' for choice in choices)}."
    problems.append(_problem(name, value, "Unknown value.", remedy))
    return choices[0]


def _parse_short_text(name: str, value: Any, problems: list[Problem]) -> str:
    if isinstance(value, str) and len(value) <= 200 and value.isprintable() and value.isascii():
        return value
    remedy = "Enter up to 200 printable ASCII characters."
    problems.append(_problem(name, value, "Not valid in a header.", remedy))
    return ""


def _problem(name: str, value: Any, message: str, remedy: str) -> Problem:
    return Problem(name, value, message, remedy, "invalid")


# ---- dry runs: a pasted prompt, chat messages or whole request, as a request body

_DRY_RUN_REMEDY = (
    'Enter a prompt, chat messages such as [{"role": "user", "content": "Hello"}], or the JSON of '
    "a whole request."
)


def read_dry_run(text: str) -> dict[str, Any]:
    """Parse the text, as JSON if it starts like JSON."""
    if not text.strip():
        raise _rejection("The prompt is empty.")
    if len(text) > MAX_CHARACTERS:
        raise _rejection(f"{len(text)} characters exceed the limit of {MAX_CHARACTERS}.")
    if text.lstrip()[0] not in "[{":
        return check_body({"prompt": text})
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _rejection(f"Invalid JSON: {str(error)[:200]}.") from None
    return check_body({"messages": data} if isinstance(data, list) else data)


def check_body(data: Any) -> dict[str, Any]:
    """Validate a request body as far as the router needs it."""
    if not isinstance(data, dict) or not ({"prompt", "messages", "input"} & set(data)):
        raise _rejection("The request has neither a prompt nor messages.")
    if "messages" in data and not isinstance(data["messages"], list):
        raise _rejection("`messages` is not a list.")
    try:
        size = len(json.dumps(data, ensure_ascii=False).encode())
    except (ValueError, TypeError, RecursionError):
        raise _rejection("The request contains an unpaired surrogate.") from None
    if size > 4 * MAX_CHARACTERS:
        raise _rejection(f"{size} bytes exceed the limit of {4 * MAX_CHARACTERS}.")
    return data


def _rejection(message: str) -> Refused:
    return Refused(Problem("prompt", None, message, _DRY_RUN_REMEDY, "invalid"))
