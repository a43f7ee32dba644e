"""`endpoint canary ...`: route a share of the sessions by another strategy and compare."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from console.commandline import output
from console.commandline.verbs import ArgumentText, Verbs, endpoint_verb

_NAMES = {"ttft": "TTFT", "hit_rate": "hit rate", "error_rate": "error rate"}
_HEAD = ("ARM", "STRATEGY", "REQUESTS", "SESSIONS", "TTFT P50", "TTFT P90", "HIT RATE", "ERRORS")


def _format_state(found: dict[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    canary, name = found.get("canary", found), options["name"]
    if canary is None:
        start = f"emberline endpoint canary start {name} --strategy STRATEGY"
        yield f"No canary yet. Start one: {start}"
        return
    yield (
        f"Canary {canary['state']}: {canary['strategy']} for {canary['share']:.0%} of the sessions "
        f"instead of {canary['control']}, since {output.format_time(canary['started_at'])}."
    )
    for text in (canary["ended_reason"], canary["message"], canary["error"]):
        if text:
            yield f"  {text}"
    yield output.table(_HEAD, [_arm(title, arm) for title, arm in canary["arms"].items()])
    for measure, interval in canary["intervals"].items():
        if interval is not None:
            title = _NAMES.get(measure, measure)
            yield f"  {title}, candidate against control: {_interval(measure, interval)}"
    if canary["state"] == "running" and canary["verdict"] == "better":
        yield f"The candidate is better. Promote it: emberline endpoint canary promote {name}"


_STATE = ArgumentText(_format_state)


def _arm(name: str, arm: dict[str, Any]) -> tuple[str, ...]:
    return (
        name,
        arm["strategy"],
        str(arm["requests"]),
        str(arm["sessions"]),
        _ms(arm["ttft_p50_s"]),
        _ms(arm["ttft_p90_s"]),
        _percent(arm["hit_rate"]),
        str(arm["failed_requests"]),
    )


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f} ms"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _interval(name: str, one: dict[str, float]) -> str:
    values = [one["difference"], one["low"], one["high"]]
    if name == "ttft":
        middle, low, high = (f"{math.expm1(min(value, 5.0)):+.0%}" for value in values)
        return f"{middle} ({low} to {high})"
    middle, low, high = (f"{value * 100:+.1f}" for value in values)
    return f"{middle} points ({low} to {high})"


def add_to(verbs: Verbs) -> None:
    text = "route a share of the sessions by another strategy and compare"
    group, path = verbs.group("canary", text, dest="what"), "endpoints/{name}/canary/"
    text = "start a canary; it stops by itself when it is worse"
    verb = endpoint_verb(group, "start", text, call=f"POST {path}", show=_STATE)
    verb.add("--strategy", required=True, help="candidate strategy")
    verb.add("--share", type=float, default=None, help="share of the sessions, 0.01 to 0.99 (0.1)")
    text = "where session IDs are: header:NAME, cookie:NAME or body:FIELD (the endpoint's)"
    verb.add("--session-key", default="", help=text)
    text = "time without a request after which a session has ended, in seconds (60)"
    verb.add("--settle-s", type=float, default=None, help=text)
    verb.add("--note", default="", help="comment for the audit log")
    text = "show the running canary, or the last one"
    endpoint_verb(group, "get", text, call=f"GET {path}", show=_STATE)
    endpoint_verb(group, "stop", "stop the canary", call=f"DELETE {path}", show=_STATE)
    text = "make the candidate the endpoint's strategy, by a revision"
    verb = endpoint_verb(group, "promote", text, call=f"POST {path}promote/", show=_STATE)
    verb.add("--note", default="", help="comment for the revision")
    verb.ask_first("The candidate becomes the strategy of {name} for all sessions.")
