"""Colour (palette of Okabe and Ito), dash and hatch of each tier, reason and outcome."""

from __future__ import annotations

from dashboards.boards.panels.declarations import Style
from routing.analysis import choices

SKY, PURPLE, BLUE = "#56B4E9", "#CC79A7", "#0072B2"
GREEN, ORANGE, RED, GREY = "#009E73", "#E69F00", "#D55E00", "#999999"
BROWN = "#8C6D31"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

TIERS = {
    "device": Style("Device", BLUE, "solid", ""),
    "l1": Style("L1 host memory", GREEN, "dash", "/"),
    "l2": Style("L2 shared", ORANGE, "dot", "x"),
    "beyond": Style("Beyond the device, not told apart", BROWN, "dashdot", "-"),
    "computed": Style("Computed", GREY, "longdash", "."),
}
HITS = {
    "overall": Style("All tiers", SKY, "solid"),
    "device": Style("Device", BLUE, "longdash"),
    "l1": Style("L1 host memory", GREEN, "dash"),
    "l2": Style("L2 and not told apart", ORANGE, "dot"),
    "beyond": Style("L1 and L2 of the rest", PURPLE, "dashdot"),
}
FAILURES = {
    "promotions": Style("Loads from L2 failed", RED, "solid", ""),
    "promotions_refused": Style("No room in L1 for a load", ORANGE, "dash", "/"),
    "cascades": Style("Stores to L2 failed", PURPLE, "dot", "x"),
    "stores_refused": Style("No room in L1 for a store", BROWN, "dashdot", "-"),
    "dropped": Style("Stores dropped: L2 too slow", GREY, "longdash", "."),
}
_REASON_STYLES = {
    "prefix_hit": (GREEN, "solid", ""),
    "kv_hit": (BLUE, "solid", "/"),
    "session_sticky": (SKY, "solid", "x"),
    "round_robin": (PURPLE, "solid", "-"),
    "pinned": (BROWN, "dot", "|"),
    "fallback_no_match": (GREY, "dash", "."),
    "fallback_least_loaded": (ORANGE, "dash", "\\"),
    "fallback_unhealthy": (RED, "dash", "+"),
    "retry": (RED, "dot", "/"),
}
REASONS = {
    reason: Style(choices.reason_label(reason), *clothes)
    for reason, clothes in _REASON_STYLES.items()
}
OUTCOMES = {
    "2": Style("Answered (2xx)", SKY, "solid", ""),
    "3": Style("Redirected (3xx)", PURPLE, "dot", "-"),
    "4": Style("Refused (4xx)", ORANGE, "dash", "/"),
    "5": Style("Failed (5xx)", RED, "dot", "x"),
}
CACHE_STATES = {
    "none": Style("Nothing cached", GREY, "longdash"),
    "partial": Style("Partly cached", SKY, "dash"),
    "full": Style("Wholly cached", GREEN, "solid"),
}
QUANTILES = {
    "p50": Style("p50", SKY, "solid"),
    "p90": Style("p90", PURPLE, "dash"),
    "p95": Style("p95", ORANGE, "dashdot"),
    "p99": Style("p99", BLUE, "dot"),
}
PHASES = {
    "queue": Style("Waiting", ORANGE, "dash", "/"),
    "prefill": Style("Reading the prompt", BLUE, "solid", ""),
    "decode": Style("Writing the answer", GREEN, "dot", "x"),
}
FINISHES = {
    "stop": Style("Finished", GREEN, "solid", ""),
    "length": Style("Cut at its limit", SKY, "dash", "/"),
    "abort": Style("Caller went away", ORANGE, "dot", "-"),
    "error": Style("Error", RED, "dashdot", "x"),
    "repetition": Style("Stopped repeating itself", PURPLE, "longdash", "|"),
}
STATUSES = {
    f"{digit}xx": Style(f"{style.label[:-5]}({digit}xx)", style.colour, style.dash, style.hatch)
    for digit, style in OUTCOMES.items()
}
PHASES_OF_PODS = {
    "Running": Style("Running", GREEN, "solid", ""),
    "Pending": Style("Pending", ORANGE, "dash", "/"),
    "Succeeded": Style("Succeeded", SKY, "dot", "-"),
    "Failed": Style("Failed", RED, "dashdot", "x"),
    "Unknown": Style("Unknown", GREY, "longdash", "."),
}
