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
