"""Each check on facts with one fault: it reports it, and no other check does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from routing.analysis.fallbacks import FORM_REASONS, MIN_REQUESTS
from routing.analysis.kv_index import Difference, PredictionAccuracy, Probe
from routing.analysis.label_names import NAMES
from routing.client.admin_client import RouterWorker
from routing.client.router_reports import ExchangeState
from routing.doctor.checks import CHECKS
from routing.doctor.examination import format_examination, run_checks
from routing.doctor.facts import CacheConfig, FleetFacts, Model, Publisher, Statement, WorkerFacts
from routing.doctor.findings import CheckState, Severity
from routing.doctor.inspection import CHAT, PLAIN
from routing.engine.kvaware.request_state import FALLBACKS
from tests.routing.doctor.facts import BY_CODE, fleet, index, made, placed, router, source, worker


def cache(number: int = 1, **changes: Any) -> WorkerFacts:
    reported = replace(CacheConfig(True, "32", "sha256", "True"), **changes)
    return worker(number, cache=Statement(reported, status=200))


def publishing(number: int = 1, **changes: Any) -> WorkerFacts:
    reported = replace(Publisher("0", True, "tcp://*:5557", "tcp://*:5558", 10_000), **changes)
    return worker(number, publishers=Statement((reported,), status=200))


def with_worker(odd: WorkerFacts) -> FleetFacts:
    return fleet(workers=(worker(0), odd))


def with_router(**changes: Any) -> FleetFacts:
    return fleet(router=router(**changes))


def with_index(**changes: Any) -> FleetFacts:
    return with_router(kv=index(**changes))


def unfollowed(odd: WorkerFacts, **changes: Any) -> FleetFacts:
    """Of the second worker the router has no events, for the given reason."""
    sources = (source(0), source(1, state="none", endpoint="", replay="", **changes))
    return fleet(workers=(worker(0), odd), router=router(kv=index(sources=sources)))


def requests(fallback: str, bad: int, good: int) -> FleetFacts:
    reported = [placed(fallback=fallback, reason="fallback_no_match")] * bad
    return with_router(decisions=(*reported, *[placed()] * good))


def routers(**second: Any) -> FleetFacts:
    """Two routers that exchange state; `second`: what the second reports otherwise."""
    one = router(name="a", exchange=ExchangeState("aa", "redis://s", True, peers=("bb",)))
    two = ExchangeState("bb", "redis://s", True, peers=("aa",))
    return fleet(routers=(one, router(**{"name": "b", "exchange": two} | second)))


MISMATCH = Difference("plain text", "from token 0 on", "Set --tokenizer to the folder")
TEMPLATE = Difference("system prompt", "from token 4 on", "Set the worker's chat template")

# Code, facts, what evidence or fix must say, and the workers named.
BROKEN: list[tuple[str, FleetFacts, str, set[str]]] = [
    ("RouterSilent", with_router(error="nothing listens"), "nothing listens", set()),
    ("RouterKeepsOldFile", with_router(refused="workers[0].url: no"), "workers[0].url", set()),
    ("RouterNeedsRestart", with_router(needs_restart=("listen",)), "listen", set()),
    (
        "RoutersDisagree",
        routers(kv=index(sources=(source(0, blocks=9000), source(1)))),
        "indexed blocks of w0: 100 at a, 9000 at b",
        set(),
    ),
    ("RoutersSeparate", routers(exchange=None), "b: no state store", set()),
    (
        "StateStoreAway",
        routers(exchange=ExchangeState("bb", "redis://s", False, "OSError: refused")),
        "b: redis://s: OSError: refused",
        set(),
    ),
    (
        "RoutersUnheard",
        routers(exchange=ExchangeState("bb", "redis://s", True, rejected={"not_authentic": 7})),
        "b rejected 7 messages: not_authentic",
        set(),
    ),
    ("NoWorkerRegistered", with_router(workers=()), "Scale the endpoint up", set()),
    (
        "WorkerNotRegistered",
        fleet(wanted=frozenset({"w0", "w1", "w2"})),
        "w2: not among the router's 2 workers",
        {"w2"},
    ),
    (
        "WorkerDown",
        with_router(
            workers=(RouterWorker("w0", "http://x", "up"), RouterWorker("w1", "http://y", "down"))
        ),
        "w1 at http://y: no response yet",
        {"w1"},
    ),
    ("WorkerNotReached", with_worker(WorkerFacts("w1", "http://y")), "w1 at http://y", {"w1"}),
    ("WorkerMetricsMissing", with_worker(cache(engine=False)), "vLLM", {"w1"}),
    (
        "RouterMetricsMissing",
        with_router(metrics=Statement(frozenset({"emberline_router_requests_total"}), status=200)),
        "emberline_router_kv_fallbacks_total is missing",
        set(),
    ),
    (
        "VersionDiffers",
        with_worker(worker(1, version=Statement("0.32.1", status=200))),
        "vLLM 0.32.1: w1",
        {"w1"},
    ),
    (
        "VersionUnproven",
        with_worker(worker(1, version=Statement("0.11.0", status=200))),
        "PYTHONHASHSEED=0",
        {"w1"},
    ),
    (
        "ModelDiffers",
        with_worker(worker(1, models=Statement((Model("demo", "other", "", 8192),), status=200))),
        "other (8192 tokens): w1",
        {"w1"},
    ),
    ("PrefixCachingOff", with_worker(cache(prefix_caching="False")), "w1", {"w1"}),
    ("BlockSizeDiffers", with_worker(cache(block_size="128")), "--block-size 128: w1", {"w1"}),
    (
        "HashAlgorithmDiffers",
        with_worker(cache(hash_algorithm="sha256_cbor")),
        "sha256_cbor: w1",
        {"w1"},
    ),
    ("HashSeedRandom", with_worker(cache(hash_algorithm="xxhash")), "PYTHONHASHSEED", {"w1"}),
    (
        "TokenizerDiffers",
        with_worker(worker(1, tokens=Statement({PLAIN: (7,), CHAT: (9, 7)}, status=200))),
        "1 tokens, starting with [7]: w1",
        {"w1"},
    ),
    (
        "TemplateDiffers",
        with_worker(worker(1, tokens=Statement({PLAIN: (1, 2), CHAT: None}, status=200))),
        "rejected: w1",
        {"w1"},
    ),
    (
        "KvEventsOff",
        unfollowed(worker(1, publishers=Statement((), status=200)), reason="events_off"),
        "--kv-events-config",
        {"w1"},
    ),
    (
        "KvDiscoveryMissing",
        unfollowed(
            worker(1, publishers=Statement(error="/kv_event_sources returned 404", status=404))
        ),
        "returned 404",
        {"w1"},
    ),
    (
        "KvReplayOff",
        with_index(sources=(source(0), source(1, replay=""))),
        "has no replay endpoint for it",
        {"w1"},
    ),
    (
        "KvEventsDialOut",
        unfollowed(publishing(endpoint="tcp://127.0.0.1:5557"), reason="endpoint_dials_out"),
        "bind:tcp://*:PORT",
        {"w1"},
    ),
    (
        "KvEventsNotFollowed",
        with_index(sources=(source(0), source(1, state="disconnected"))),
        "disconnected at tcp://127.0.0.1:5002",
        {"w1"},
    ),
    (
        "KvEventSourceShared",
        with_index(sources=(source(0), source(1, endpoint="tcp://127.0.0.1:5000"))),
        "tcp://127.0.0.1:5000: w0, w1",
        {"w0", "w1"},
    ),
    ("KvEventsLate", with_index(sources=(source(0), source(1, lag_s=6.0))), "w1: 6.0 s", {"w1"}),
    (
        "KvEventsLost",
        with_index(sources=(source(0), source(1, counts={"gap_lost": 3}))),
        "gap_lost 3",
        {"w1"},
    ),
    (
        "KvEventsNotUnderstood",
        with_index(sources=(source(0), source(1, errors={"malformed_batch": 2}))),
        "malformed_batch 2",
        {"w1"},
    ),
    (
        "TokenizerMismatch",
        with_index(compared="different", differences=(MISMATCH, TEMPLATE)),
        "Set --tokenizer to the folder",
        set(),
    ),
    (
        "TemplateMismatch",
        with_index(compared="different", differences=(TEMPLATE,)),
        "system prompt: from token 4 on",
        set(),
    ),
    ("TokenizerUnusable", with_index(problem="no tokenizer.json"), "no tokenizer.json", set()),
    (
        "TokenizerMissing",
        with_index(tokenizer="", problem="none", compared=""),
        "--tokenizer",
        set(),
    ),
    ("TokensNotCompared", with_index(compared="", trust="unverified"), "not yet", set()),
    (
        "TokenizeRefused",
        with_worker(worker(1, tokens=Statement(error="/tokenize answered 403: no", status=403))),
        "answered 403",
        {"w1"},
    ),
    ("RoutingFallback", requests("timeout", 30, 10), "timeout: 30 of 40", set()),
    ("RequestFormUnsupported", requests("unsupported_path", 1, 39), "/v1/chat/completions", set()),
    (
        "CachedTokensNotReported",
        with_router(decisions=(placed(cached_tokens=None),) * 40),
        "--enable-prompt-tokens-details",
        set(),
    ),
    (
        "IndexNotBelieved",
        with_index(honesty={"w1": PredictionAccuracy(9, 0.8, 0.0, believed=False, demotions=1)}),
        "w1: 80% of predicted tokens missing",
        {"w1"},
    ),
    (
        "ProbeFailing",
        with_index(
            probes={"w1": Probe("not_cached", predicted=64, reported=0, remedy="too small")}
        ),
        "w1: not_cached (64 tokens predicted, 0 reported)",
        {"w1"},
    ),
]


def test_healthy_fleet_passes_every_check() -> None:
    found = run_checks(fleet())
    assert found.findings == ()
    assert [one.code for one in found.skipped] == []
    assert len(found.passed) == len(CHECKS)
    assert found.exit_code == 0
    assert "no problems" in format_examination(found)


def test_codes_are_unique_and_every_check_has_a_failing_case() -> None:
    assert len(BY_CODE) == len(CHECKS)
    assert {code for code, *_ in BROKEN} == set(BY_CODE)


@pytest.mark.parametrize(("code", "facts", "message", "names"), BROKEN, ids=[b[0] for b in BROKEN])
def test_each_fault_is_named(code: str, facts: FleetFacts, message: str, names: set[str]) -> None:
    outcome = made(code, facts)
    assert outcome.state is CheckState.FOUND, outcome
    (finding,) = outcome.findings
    assert finding.code == code
    assert finding.fix
    assert message in " ".join((finding.what, *finding.evidence, finding.fix))
    assert set(finding.workers) == names
    others = {one.code for one in run_checks(facts).findings} - {code}
    assert others <= ALSO.get(code, set())


# What follows from it.
ALSO = {"VersionUnproven": {"VersionDiffers"}, "HashSeedRandom": {"HashAlgorithmDiffers"}}


def test_checks_that_cannot_run_do_not_pass() -> None:
    found = run_checks(with_router(error="nothing listens"))
    skipped = {one.code: one.why for one in found.skipped}
    assert skipped["KvEventsLate"] == "The router did not respond."
    assert skipped["ProbeFailing"] == "The router did not respond."
    assert "BlockSizeDiffers" not in skipped, "workers tell that themselves"
    assert found.exit_code == 2
    alone = run_checks(fleet(workers=(worker(0),)))
    assert {one.code for one in alone.skipped} >= {"BlockSizeDiffers", "TemplateDiffers"}


def test_kvaware_faults_are_notes_under_another_strategy() -> None:
    """A look ahead: what would be wrong if it were switched on."""
    off = worker(1, publishers=Statement((), status=200))
    facts = fleet(workers=(worker(0), off), router=router(strategy="prefixaware", kv=None))
    (finding,) = run_checks(facts).findings
    assert (finding.code, finding.severity) == ("KvEventsOff", Severity.INFO)
    assert run_checks(facts).exit_code == 0
    assert "uses no KV index" in made("KvEventsLate", facts).why
    down = replace(facts, router=replace(facts.router, workers=()))
    assert run_checks(down).exit_code == 2, "what matters to every strategy still does"


def test_followed_workers_need_no_discovery_of_their_own() -> None:
    """Its sockets were given to the router by name."""
    old = worker(1, publishers=Statement(error="/kv_event_sources returned 404", status=404))
    assert made("KvDiscoveryMissing", with_worker(old)).state is CheckState.PASSED
    dialling = publishing(endpoint="tcp://127.0.0.1:5557")
    assert made("KvEventsDialOut", with_worker(dialling)).state is CheckState.PASSED
    assert made("KvReplayOff", with_worker(publishing(replay=""))).state is CheckState.PASSED


def test_few_requests_give_no_verdict() -> None:
    assert (
        made("RoutingFallback", requests("timeout", MIN_REQUESTS - 1, 0)).state is CheckState.PASSED
    )
    assert made("RoutingFallback", requests("timeout", MIN_REQUESTS, 0)).state is CheckState.FOUND
    assert made("RoutingFallback", requests("timeout", 20, 20)).state is CheckState.PASSED, "half"
    old = tuple(placed(fallback="timeout", time=1.0) for _ in range(100))
    assert made("RoutingFallback", with_router(decisions=old)).state is CheckState.PASSED


def test_every_engine_reason_has_a_text() -> None:
    assert set(FALLBACKS) <= set(NAMES["reason"])
    assert set(FALLBACKS) >= FORM_REASONS


def test_findings_are_sorted_by_severity_and_the_worst_decides() -> None:
    facts = fleet(
        workers=(worker(0), cache(block_size="128")),
        router=router(refused="no", kv=index(tokenizer="", problem="none", compared="")),
    )
    found = run_checks(facts)
    assert [f.severity for f in found.findings] == list(Severity)
    assert found.exit_code == 2
    assert run_checks(replace(facts, router=router())).exit_code == 1
    shown = format_examination(found)
    assert shown.index("RouterKeepsOldFile") < shown.index("BlockSizeDiffers")
    assert "1 error, 1 warning, 1 info" in shown


SILENT = WorkerFacts("w1", "http://y")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("KvEventsOff", "events_off"),
        ("KvDiscoveryMissing", "discovery_missing"),
        ("KvEventsDialOut", "endpoint_dials_out"),
        ("KvEventsNotFollowed", "endpoint_unusable"),
    ],
)
def test_router_state_counts_where_a_worker_is_silent(code: str, reason: str) -> None:
    facts = unfollowed(SILENT, reason=reason, message="as the router found it")
    (finding,) = made(code, facts).findings
    assert finding.workers == ("w1",)
    assert "as the router found it" in finding.evidence[0]
    others = {one.code for one in run_checks(facts).findings} - {code}
    assert others == {"WorkerNotReached"}


def test_late_events_are_a_warning_and_stale_ones_an_error() -> None:
    for lag_s, severity in ((29.0, Severity.WARNING), (30.5, Severity.ERROR)):
        facts = with_index(sources=(source(0), source(1, lag_s=lag_s)))
        assert made("KvEventsLate", facts).findings[0].severity is severity
    assert (
        made("KvEventsLate", with_index(sources=(source(0, lag_s=4.9),))).state is CheckState.PASSED
    )


def test_fleet_without_any_events_is_one_finding() -> None:
    mute = tuple(worker(n, publishers=Statement((), status=200)) for n in (0, 1))
    sources = tuple(source(n, state="none", endpoint="", reason="events_off") for n in (0, 1))
    facts = fleet(workers=mute, router=router(kv=index(sources=sources, telling=False)))
    (finding,) = made("KvEventsOff", facts).findings
    assert "No worker publishes" in finding.what
    assert {one.code for one in run_checks(facts).findings} == {"KvEventsOff"}
    one = unfollowed(worker(1, publishers=Statement((), status=200)), reason="events_off")
    assert "No worker publishes" not in made("KvEventsOff", one).findings[0].what


def connecting(odd: WorkerFacts) -> FleetFacts:
    """The router tries to reach the second worker's endpoint, in vain."""
    sources = (source(0), source(1, state="connecting"))
    return fleet(workers=(worker(0), odd), router=router(kv=index(sources=sources)))


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        ("tcp://127.0.0.1:5557", "KvEventsDialOut"),
        ("tcp://*:5557", "KvEventsNotFollowed"),
        ("tcp://[::]:5557", "KvEventsNotFollowed"),
        ("ipc:///run/kv.sock", "KvEventsNotFollowed"),
    ],
)
def test_failed_connections_have_two_explanations(endpoint: str, code: str) -> None:
    facts = connecting(publishing(endpoint=endpoint))
    assert {finding.code for finding in run_checks(facts).findings} == {code}


def test_worker_that_the_router_does_not_subscribe_to() -> None:
    facts = with_index(sources=(source(0),))
    (finding,) = made("KvEventsNotFollowed", facts).findings
    assert finding.evidence == ("w1: publishes events, but the router is not connected",)
    unknown = with_router(kv=index(sources=(source(0),)), workers=router().workers[:1])
    assert made("KvEventsNotFollowed", unknown).state is CheckState.PASSED, "not registered at all"


def test_router_subscription_overrides_the_worker_settings() -> None:
    """Its sockets were named to the router; its HTTP port does not report them."""
    assert made(
        "KvEventsOff", with_worker(worker(1, publishers=Statement((), status=200)))
    ).state is (CheckState.PASSED)


def test_empty_replay_is_no_replay() -> None:
    facts = with_worker(publishing(buffer_steps=0))
    (finding,) = made("KvReplayOff", facts).findings
    assert finding.evidence == ("w1: buffer_steps is 0: no events are buffered for a replay",)
    off = with_worker(publishing(enabled=False, buffer_steps=0))
    assert made("KvReplayOff", off).state is CheckState.PASSED, "events off is another finding"


def test_index_that_is_catching_up_counts_as_followed() -> None:
    facts = with_index(sources=(source(0), source(1, state="catching_up")))
    assert made("KvEventsNotFollowed", facts).state is CheckState.PASSED


def test_without_kvaware_and_worker_state_no_check_passes() -> None:
    mute = tuple(worker(n, publishers=Statement(error="no answer")) for n in (0, 1))
    facts = fleet(workers=mute, router=router(strategy="prefixaware", kv=None))
    for code in ("KvEventsOff", "KvDiscoveryMissing", "KvReplayOff", "KvEventsDialOut"):
        assert made(code, facts).why == "No worker reported its event configuration.", code
    old = tuple(worker(n, publishers=Statement(error="gone", status=404)) for n in (0, 1))
    facts = fleet(workers=old, router=router(strategy="prefixaware", kv=None))
    assert made("KvDiscoveryMissing", facts).state is CheckState.FOUND


def test_single_old_failure_is_a_note() -> None:
    for batches, severity in ((999, Severity.WARNING), (1000, Severity.INFO)):
        one = source(1, counts={"gap_lost": 1}, batches=batches)
        assert made("KvEventsLost", with_index(sources=(one,))).findings[0].severity is severity
    mended = with_index(honesty={"w1": PredictionAccuracy(9, 0.0, 0.0, believed=True, demotions=3)})
    (finding,) = made("IndexNotBelieved", mended).findings
    assert (finding.severity, finding.workers) == (Severity.INFO, ("w1",))
    for bad, severity in ((4, Severity.INFO), (5, Severity.WARNING)):
        facts = requests("multimodal", bad, 40)
        assert made("RequestFormUnsupported", facts).findings[0].severity is severity
    assert made("RequestFormUnsupported", requests("timeout", 5, 5)).state is CheckState.PASSED


def test_decisions_without_cache_data_do_not_count() -> None:
    failed = (placed(status=500, cached_tokens=None),) * 60
    assert made("CachedTokensNotReported", with_router(decisions=failed)).state is CheckState.PASSED
    empty = (placed(prompt_tokens=0, cached_tokens=None),) * 60
    assert made("CachedTokensNotReported", with_router(decisions=empty)).state is CheckState.PASSED
    for reason in ("bad_request", "starting"):
        assert made("RoutingFallback", requests(reason, 60, 10)).state is CheckState.PASSED
    assert "No worker probed" in made("ProbeFailing", with_index(probes={})).why


def test_one_cause_gives_one_token_finding() -> None:
    unusable = with_index(problem="no tokenizer.json", compared="", trust="")
    assert {one.code for one in run_checks(unusable).findings} == {"TokenizerUnusable"}
    unreached = with_index(compared="unreachable", differences=(MISMATCH,))
    assert {one.code for one in run_checks(unreached).findings} == {"TokensNotCompared"}
    silent = with_index(probes={"w1": Probe("unreachable", error="refused")})
    (finding,) = made("ProbeFailing", silent).findings
    assert finding.fix == "Check the router's log for kv_probe."
    assert finding.evidence == ("w1: unreachable (0 tokens predicted, nothing reported), refused",)


def test_workers_without_events_or_with_adapters_do_not_differ() -> None:
    base = worker(1).models.found
    assert base is not None
    adapter = Model("sql", "/adapters/sql", "demo", 8192)
    adapted = worker(1, models=Statement((*base, adapter), status=200))
    facts = fleet(workers=(worker(0), adapted, WorkerFacts("w2", "http://z")))
    assert run_checks(facts).findings == (), "the router does not know it either"
    for code in ("ModelDiffers", "TokenizerDiffers", "TemplateDiffers", "VersionDiffers"):
        assert made(code, facts).state is CheckState.PASSED, code
