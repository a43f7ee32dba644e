"""Checks of recent requests: placement by cache contents, and accuracy of predictions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from routing.analysis.fallbacks import FORM_REASONS, MIN_REQUESTS, find_remedy, judge_fallbacks
from routing.analysis.label_names import get_name
from routing.doctor.facts import FleetFacts, PlacementFacts
from routing.doctor.findings import (
    DoctorFinding,
    Severity,
    doctor_check,
    require_kvaware,
    require_router,
    worker_finding,
)

WINDOW_S = 600.0
# Share of requests of unsupported forms that causes a warning.
_FORM_SHARE = 0.1
# Share of responses without cached-token usage from which it counts as not reported.
_UNREPORTED_SHARE = 0.9


def _recent_decisions(facts: FleetFacts) -> list[PlacementFacts]:
    """Return the newest decisions within the age limit."""
    return [decision for decision in facts.router.decisions if decision.time > facts.now - WINDOW_S]


def _shares(counted: Counter[str], total: int) -> tuple[str, ...]:
    return tuple(
        f"{reason}: {count} of {total} ({get_name('reason', reason)})"
        for reason, count in counted.most_common()
    )


def _require_probe(facts: FleetFacts) -> str:
    if why := require_kvaware(facts):
        return why
    kv = facts.router.kv
    if kv is not None and kv.probes:
        return ""
    return "No worker probed yet, or probing is disabled (--kv-probe)."


@doctor_check("RoutingFallback", "Requests are routed by cache contents")
def silent_fallback(facts: FleetFacts) -> Iterator[DoctorFinding]:
    lately = _recent_decisions(facts)
    counted = Counter(decision.fallback for decision in lately if decision.fallback)
    verdict = judge_fallbacks(len(lately), counted)
    if verdict.too_often:
        yield DoctorFinding(
            Severity.ERROR,
            f"{verdict.share:.0%} of the newest {verdict.requests} requests were routed without "
            "KV cache contents: kvaware is enabled but not effective.",
            find_remedy(verdict.main),
            _shares(counted, len(lately)),
        )


@doctor_check("RequestFormUnsupported", "Request forms support cache-aware routing")
def check_unsupported_forms(facts: FleetFacts) -> Iterator[DoctorFinding]:
    lately = _recent_decisions(facts)
    counted = Counter(decision.fallback for decision in lately if decision.fallback in FORM_REASONS)
    if counted:
        top = counted.most_common(1)[0][0]
        many = sum(counted.values()) > _FORM_SHARE * len(lately)
        yield DoctorFinding(
            Severity.WARNING if many else Severity.INFO,
            "Clients send request forms that cannot be routed by cache contents; these requests "
            "are routed by prefix.",
            find_remedy(top),
            _shares(counted, len(lately)),
        )


@doctor_check("CachedTokensNotReported", "Engines report cached tokens", require_router)
def cached_not_reported(facts: FleetFacts) -> Iterator[DoctorFinding]:
    good = [
        recent_decision
        for recent_decision in _recent_decisions(facts)
        if recent_decision.status == 200 and recent_decision.prompt_tokens
    ]
    silent = [answer for answer in good if answer.cached_tokens is None]
    if len(good) >= MIN_REQUESTS and len(silent) > _UNREPORTED_SHARE * len(good):
        yield DoctorFinding(
            Severity.WARNING,
            "Engines do not report cached tokens, so the accuracy of the router's predictions is "
            "unknown and a wrong index is not detected.",
            "Start the workers with --enable-prompt-tokens-details. Streams report it only at "
            "their end, embeddings never.",
            (f"{len(silent)} of {len(good)} responses have no cached_tokens",),
        )


@doctor_check("IndexNotBelieved", "Index predictions are accurate")
def check_prediction_accuracy(facts: FleetFacts) -> Iterator[DoctorFinding]:
    kv = facts.router.kv
    bad = {n: h for n, h in (kv.honesty if kv else {}).items() if not h.believed or h.demotions}
    now = any(not honesty.believed for honesty in bad.values())
    return worker_finding(
        Severity.ERROR if now else Severity.INFO,
        "The index predicted blocks that workers did not have"
        + (
            ": these workers are routed by load until it is rebuilt."
            if now
            else " at some time since the router started; it was rebuilt and is trusted again."
        ),
        "No immediate action: the index is rebuilt automatically. If it recurs, check for cache "
        "resets (POST /reset_prefix_cache), two workers behind one address, or differing tokens.",
        {
            name: f"{h.missing:.0%} of predicted tokens missing, {h.unforeseen:.0%} of "
            f"reported ones unforeseen, {h.demotions} times rebuilt"
            for name, h in bad.items()
        },
    )


@doctor_check("ProbeFailing", "A repeated prompt hits the cache", _require_probe)
def probe_failing(facts: FleetFacts) -> Iterator[DoctorFinding]:
    kv = facts.router.kv
    bad = {name: probe for name, probe in (kv.probes if kv else {}).items() if not probe.hit}
    remedies = dict.fromkeys(probe.remedy for probe in bad.values() if probe.remedy)
    return worker_finding(
        Severity.ERROR,
        "A test prompt sent twice to a worker was not predicted, or missed the cache the second "
        "time; client prompts are affected in the same way.",
        " ".join(_sentence(text) for text in remedies) or "Check the router's log for kv_probe.",
        {
            name: f"{probe.result} ({probe.predicted} tokens predicted, "
            f"{'nothing' if probe.reported is None else probe.reported} reported)"
            + (f", {probe.error}" if probe.error else "")
            for name, probe in bad.items()
        },
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
