"""Colour (palette of Okabe and Ito), dash and hatch of each tier, reason and outcome."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.boards.panels.declarations import Style
from routing.analysis.label_names import get_name

SKY, PURPLE, BLUE = "#56B4E9", "#CC79A7", "#0072B2"
GREEN, ORANGE, RED, GREY = "#009E73", "#E69F00", "#D55E00", "#999999"
BROWN = "#8C6D31"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def _styles(label: str, styles: Mapping[str, tuple[str, ...]]) -> Mapping[str, Style]:
    """Return the styles of a label's values, with their display names."""
    return {value: Style(get_name(label, value), *style) for value, style in styles.items()}


TIERS = _styles(
    "tier",
    {
        "device": (BLUE, "solid", ""),
        "l1": (GREEN, "dash", "/"),
        "l2": (ORANGE, "dot", "x"),
        "beyond": (BROWN, "dashdot", "-"),
        "computed": (GREY, "longdash", "."),
    },
)
SOURCES = {
    "device": TIERS["device"],
    "host": TIERS["l1"],
    "disk": TIERS["l2"],
    "p2p": Style(get_name("source", "p2p"), PURPLE, "dashdot"),
    "external_unspecified": TIERS["beyond"],
}
HITS = {
    "overall": Style("All tiers", SKY, "solid"),
    "device": Style("Device", BLUE, "longdash"),
    "l1": Style("L1", GREEN, "dash"),
    "l2": Style("L2 (or unspecified)", ORANGE, "dot"),
    "beyond": Style("L1 and L2, of device misses", PURPLE, "dashdot"),
}
FAILURES = _styles(
    "kind",
    {
        "promotions": (RED, "solid", ""),
        "promotions_refused": (ORANGE, "dash", "/"),
        "cascades": (PURPLE, "dot", "x"),
        "stores_refused": (BROWN, "dashdot", "-"),
        "dropped": (GREY, "longdash", "."),
    },
)
REASONS = _styles(
    "reason",
    {
        "prefix_hit": (GREEN, "solid", ""),
        "kv_hit": (BLUE, "solid", "/"),
        "session_sticky": (SKY, "solid", "x"),
        "round_robin": (PURPLE, "solid", "-"),
        "pinned": (BROWN, "dot", "|"),
        "fallback_no_match": (GREY, "dash", "."),
        "fallback_least_loaded": (ORANGE, "dash", "\\"),
        "fallback_unhealthy": (RED, "dash", "+"),
        "retry": (RED, "dot", "/"),
    },
)
_BY_DIGIT = {
    "2": (SKY, "solid", ""),
    "3": (PURPLE, "dot", "-"),
    "4": (ORANGE, "dash", "/"),
    "5": (RED, "dot", "x"),
}
OUTCOMES = {**_styles("outcome", _BY_DIGIT), "console": Style("Console", GREY, "dashdot")}
STATUSES = _styles("status", {f"{digit}xx": style for digit, style in _BY_DIGIT.items()})
CACHE_STATES = _styles(
    "cache", {"none": (GREY, "longdash"), "partial": (SKY, "dash"), "full": (GREEN, "solid")}
)
QUANTILES = {
    "p50": Style("p50", SKY, "solid"),
    "p90": Style("p90", PURPLE, "dash"),
    "p95": Style("p95", GREEN, "longdash"),
    "p99": Style("p99", ORANGE, "dot"),
}
PHASES = {
    "queue": Style("Queue", ORANGE, "dash", "/"),
    "prefill": Style("Prefill", BLUE, "solid", ""),
    "decode": Style("Decode", GREEN, "dot", "x"),
}
FINISHES = _styles(
    "finished_reason",
    {
        "stop": (GREEN, "solid", ""),
        "length": (SKY, "dash", "/"),
        "abort": (ORANGE, "dot", "-"),
        "error": (RED, "dashdot", "x"),
        "repetition": (PURPLE, "longdash", "|"),
    },
)
PHASES_OF_PODS = {
    "Running": Style("Running", GREEN, "solid", ""),
    "Pending": Style("Pending", ORANGE, "dash", "/"),
    "Succeeded": Style("Succeeded", SKY, "dot", "-"),
    "Failed": Style("Failed", RED, "dashdot", "x"),
    "Unknown": Style("Unknown", GREY, "longdash", "."),
}
