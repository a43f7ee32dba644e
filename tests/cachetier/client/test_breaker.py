from __future__ import annotations

from cachetier.client.breaker import CircuitBreaker


def test_breaker_opens_only_after_consecutive_failures() -> None:
    breaker = CircuitBreaker(threshold=3)
    assert not breaker.failed(0)
    assert not breaker.failed(0)
    breaker.succeeded()
    assert not breaker.failed(0)
    assert not breaker.failed(0)
    assert not breaker.is_open
    assert breaker.failed(0)
    assert breaker.is_open


def test_open_breaker_blocks_until_the_pause_ends_and_one_probe_passes() -> None:
    breaker = CircuitBreaker(threshold=1, first_rest_s=10)
    breaker.failed(100)
    assert not breaker.allows(109.9)
    assert breaker.allows(110)
    assert not breaker.allows(110), "one probe at a time"
    assert breaker.succeeded()
    assert breaker.allows(110)
    assert not breaker.is_open


def test_failed_probe_doubles_the_pause_up_to_the_maximum() -> None:
    breaker = CircuitBreaker(threshold=1, first_rest_s=10, longest_rest_s=25)
    breaker.failed(0)
    for now, rest in ((10, 20), (30, 25), (55, 25)):
        assert breaker.allows(now)
        breaker.failed(now)
        assert not breaker.allows(now + rest - 0.1)
    assert breaker.allows(80)
    breaker.succeeded()
    breaker.failed(100)
    assert breaker.allows(110), "a success starts over with the first rest"


def test_late_failures_do_not_extend_the_pause() -> None:
    """Threads which were under way when it opened end one after another."""
    breaker = CircuitBreaker(threshold=1, first_rest_s=10)
    assert breaker.failed(0)
    assert not breaker.failed(9)
    assert breaker.allows(10)


def test_node_that_answers_only_probes_rests_longer_each_time() -> None:
    breaker = CircuitBreaker(threshold=1, first_rest_s=10)
    breaker.failed(0)
    assert breaker.allows(10)
    assert breaker.succeeded(is_probe=True)
    breaker.failed(11)
    assert breaker.rest_s(11) == 20
    assert breaker.allows(31)
    breaker.succeeded(is_probe=True)
    breaker.succeeded()
    breaker.failed(40)
    assert breaker.rest_s(40) == 10, "an operation succeeded"


def test_probe_of_a_closed_breaker_opens_it_or_changes_nothing() -> None:
    breaker = CircuitBreaker(threshold=2, first_rest_s=10)
    breaker.failed(0)
    assert not breaker.succeeded(is_probe=True)
    assert breaker.failed(0), "the probe has not reset the failures"
    other = CircuitBreaker(threshold=5, first_rest_s=10)
    assert other.trip(0)
    assert not other.trip(0)
    assert other.is_open
