"""What a thing looks like wherever it is drawn: one colour and one dash for each tier, reason,
outcome. Pure.

The colours are Okabe and Ito's, told apart by nearly everybody; the dash and the hatching say it
again.
"""

from __future__ import annotations

from dashboards.panels.shape import Style
from routing import choices

SKY, PURPLE, BLUE = "#56B4E9", "#CC79A7", "#0072B2"
GREEN, ORANGE, RED, GREY = "#009E73", "#E69F00", "#D55E00", "#999999"
BROWN = "#8C6D31"  # one more, for a ninth reason
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

TIERS = {
    "device": Style("Device", BLUE, "solid", ""),
    "l1": Style("L1 host memory", GREEN, "dash", "/"),
    "l2": Style("L2 shared", ORANGE, "dot", "x"),
    "computed": Style("Computed", GREY, "longdash", "."),
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
    reason: Style(choices.label(reason), *clothes) for reason, clothes in _REASON_STYLES.items()
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
    "p99": Style("p99", BLUE, "dot"),
}
