"""Benchmark jobs: bounds, errors by field, and reproducible sessions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from console.core.errors import Refused
from dashboards.benchmarks.generator import traces
from dashboards.benchmarks.generator.job import FIELDS, Job, from_json, parse_job
from dashboards.benchmarks.generator.workloads import make_sessions, plan_load


def test_missing_fields_have_defaults_and_the_table_matches_the_class() -> None:
    assert parse_job({}) == Job()
    for one in FIELDS:
        assert getattr(Job(), one.name) == one.default, one.name
        assert one.low <= one.default <= one.high


@pytest.mark.parametrize("one", FIELDS, ids=lambda one: one.name)
def test_every_number_is_checked_against_its_bounds(one: Any) -> None:
    for bad in (one.low - 1, one.high + 1, "many", float("nan"), True, [1]):
        with pytest.raises(Refused) as refused:
            parse_job({one.name: bad})
        problem = refused.value.errors[0]
        assert problem.field == one.name
        assert f"{one.low:g} to {one.high:g}" in problem.remedy
    if one.whole:
        with pytest.raises(Refused):
            parse_job({one.name: one.low + 0.5})


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(Refused) as refused:
        parse_job({"rate": 0, "workload": "poems", "nonsense": 1, "nonce": "a b"})
    assert {p.field for p in refused.value.errors} == {"rate", "workload", "nonsense", "nonce"}


@pytest.mark.parametrize(
    ("given", "field"),
    [({"workload": "trace"}, "trace"), ({"warmup_s": 60, "duration_s": 60}, "warmup_s")],
)
def test_contradicting_fields_are_rejected(given: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_job(given)
    assert [p.field for p in refused.value.errors] == [field]


def test_job_round_trips_through_json() -> None:
    job = parse_job({"workload": "documents", "rate": 0.5, "nonce": "x-1"})
    assert from_json({**job.as_json(), "of_an_older_version": 1}) == job


@pytest.mark.parametrize("workload", ["chat", "documents", "trace"])
def test_equal_jobs_send_equal_requests_at_equal_times(workload: str) -> None:
    rows = traces.sample() if workload == "trace" else ()

    def seen(seed: int) -> list[Any]:
        job = parse_job({"workload": workload, "seed": seed}, rows)
        return [
            (s.at, s.opening and s.opening(), [turn.text() for turn in s.turns])
            for s in itertools.islice(make_sessions(job), 5)
        ]

    assert seen(1) == seen(1)
    assert seen(1) != seen(2)


def test_prompts_begin_with_a_nonce_so_that_runs_share_no_cache() -> None:
    rows = traces.sample()
    for workload in ("chat", "documents", "trace"):
        job = parse_job({"workload": workload, "nonce": "abc"}, rows)
        session = next(make_sessions(job))
        text = session.opening() if session.opening else session.turns[0].text()
        assert text.startswith("Run abc. ")


def test_arrivals_have_the_configured_rate() -> None:
    for given in ({"workload": "documents"}, {"workload": "chat", "turns": 4}):
        job = parse_job({**given, "rate": 10})
        last = next(itertools.islice(make_sessions(job), 2000, None))
        per_session = job.turns if job.workload == "chat" else 1
        assert 2000 * per_session / last.at == pytest.approx(10, rel=0.1)


def test_trace_rows_that_share_blocks_share_text() -> None:
    lines = '{"timestamp": 5000, "input_length": 1100, "output_length": 9, "hash_ids": [1, 2, 3]}\n'
    lines += '{"timestamp": 2000, "input_length": 600, "output_length": 9, "hash_ids": [1, 9]}\n'
    rows = traces.parse(lines)
    assert [row.at for row in rows] == [0, 3]
    assert traces.parse(traces.as_lines(rows)) == rows
    short, long = (s.turns[0] for s in make_sessions(parse_job({"workload": "trace"}, rows)))
    assert (short.tokens, long.tokens) == (600, 1100)
    shared = len("Run warm. ") + 512 * 4 - 1
    assert short.text()[:shared] == long.text()[:shared]
    assert short.text()[shared : shared + 80] != long.text()[shared : shared + 80]
    assert len(long.text().split()) == 1100 + 2


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        '{"timestamp": 1, "output_length": 1}',
        '{"timestamp": "1", "input_length": 1, "output_length": 1}',
        '{"timestamp": -1, "input_length": 1, "output_length": 1}',
        '{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}',
        '{"timestamp": 1, "input_length": 1e99, "output_length": 1}',
    ],
)
def test_unreadable_trace_is_rejected_with_its_line(line: str) -> None:
    good = '{"timestamp": 1, "input_length": 5, "output_length": 1}'
    with pytest.raises(Refused, match="Line 2"):
        traces.parse(f"{good}\n{line}\n")


def test_empty_trace_is_rejected() -> None:
    with pytest.raises(Refused, match="no request"):
        traces.parse("\n\n")


@pytest.mark.parametrize(
    ("given", "ends_by"),
    [
        ({"rate": 10, "duration_s": 5}, "duration_s"),
        ({"rate": 10, "max_requests": 7}, "max_requests"),
        ({"rate": 10, "max_tokens": 2000}, "max_tokens"),
        ({"workload": "trace", "speed": 1000}, "trace"),
    ],
)
def test_plan_states_its_end_condition(given: dict[str, Any], ends_by: str) -> None:
    rows = traces.sample() if "workload" in given else ()
    found = plan_load(parse_job(given, rows))
    assert found.ends_by == ends_by
    assert found.requests > 0
    assert found.seconds <= parse_job(given, rows).duration_s


def test_plan_counts_a_growing_conversation() -> None:
    found = plan_load(
        parse_job(
            {
                "mode": "concurrency",
                "turns": 2,
                "system_tokens": 100,
                "turn_tokens": 10,
                "answer_tokens": 5,
                "max_requests": 2,
            }
        )
    )
    assert (found.requests, found.prompt_tokens, found.answer_tokens) == (2, 110 + 125, 10)
