"""Prometheus as it is, and as it fails: away, hanging, refusing, something else altogether."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dashboards.prom import (
    MAX_POINTS,
    Answer,
    Deadlines,
    FaultKind,
    Prometheus,
    Question,
    Window,
    connect,
)
from tests.dashboards.conftest import Scraping
from tests.support.http_stub import HANG, http_stub
from tests.support.http_stub import Answer as Told
from tests.support.ports import free_ports

AT = 1_700_000_000
QUICK = Deadlines(connect_s=0.5, read_s=0.5, page_s=2.0, cache_s=60.0)
SERIES = {"metric": {"a": "b"}, "values": []}


@contextmanager
def answering(told: Told) -> Iterator[tuple[Prometheus, list[str]]]:
    """A client of a server which answers every question alike, and the paths that were asked."""
    paths = ("/api/v1/query", "/api/v1/query_range")
    with http_stub(dict.fromkeys(paths, told)) as stub:
        client = Prometheus(stub.url, QUICK)
        seen: list[str] = []
        yield client, seen
        seen.extend(path for _, path, _ in stub.seen)
        client.close()


def one(client: Prometheus, query: str = "up", window: Window | None = None) -> Answer:
    return client.ask({"q": Question(query, AT, window)})["q"]


def result(*series: dict[str, object], kind: str = "matrix") -> Told:
    return 200, {"status": "success", "data": {"resultType": kind, "result": list(series)}}


class TestWindow:
    def test_ends_lie_on_the_step_so_that_answers_can_be_shared(self) -> None:
        first = Window.ending(AT + 1.2, 900, 15)
        assert first == Window.ending(AT + 9.9, 900, 15)
        assert first.end % 15 == first.start % 15 == 0
        assert first.end <= AT + 1
        assert first.points == 61

    def test_a_line_never_has_more_points_than_it_may(self) -> None:
        assert Window.ending(AT, (MAX_POINTS - 1) * 5, 5).points == MAX_POINTS
        with pytest.raises(ValueError, match="600 points"):
            Window.ending(AT, MAX_POINTS * 5, 5)


class TestRealOne:
    def test_series_lie_on_the_grid_of_the_window(self, scraping: Scraping) -> None:
        client = Prometheus(scraping.url)
        window = Window.ending(time.time() + 60, 18_000, 60)
        answer = one(client, "sum by (source) (vllm:prompt_tokens_cached_by_source_total)", window)
        assert answer.fault is None
        sources = [series.label("source") for series in answer.series]
        assert sources == sorted(sources)
        assert set(sources) == {"device", "host", "disk", "p2p", "external_unspecified"}
        for series in answer.series:
            assert len(series.values) == window.points
            assert series.values[0] is None, "nobody scraped five hours ago"
            assert series.latest is not None

    def test_one_moment(self, scraping: Scraping) -> None:
        client = Prometheus(scraping.url)
        asked = {"q": Question("vector(7)", int(time.time()))}
        (series,) = client.ask(asked)["q"].series
        assert series.values == (7.0,)

    @pytest.mark.parametrize("query", ["vector(0)/0", "vector(1)/0", "-vector(1)/0"])
    def test_what_json_cannot_say_is_none(self, scraping: Scraping, query: str) -> None:
        (series,) = one(Prometheus(scraping.url), query, Window(AT, AT + 10, 5)).series
        assert series.values == (None, None, None)

    def test_a_bad_query_is_told_in_its_own_words(self, scraping: Scraping) -> None:
        fault = one(Prometheus(scraping.url), 'sum(rate(x{a="b"}[5s])').fault
        assert fault is not None
        assert fault.kind is FaultKind.BAD_QUERY
        assert "unclosed left parenthesis" in fault.detail
        assert "\\" not in fault.detail

    def test_one_bad_query_spoils_no_other(self, scraping: Scraping) -> None:
        now = int(time.time())
        asked = {"bad": Question("sum(", now), "good": Question("vector(1)", now)}
        answers = Prometheus(scraping.url).ask(asked)
        assert answers["bad"].fault is not None
        assert answers["good"].series[0].values == (1.0,)


class TestAway:
    def test_none_configured(self) -> None:
        fault = one(connect("")).fault
        assert fault is not None
        assert fault.kind is FaultKind.NOT_CONFIGURED

    def test_refused_port(self) -> None:
        (port,) = free_ports(1)
        fault = one(Prometheus(f"http://127.0.0.1:{port}", QUICK)).fault
        assert fault is not None
        assert fault.kind is FaultKind.UNREACHABLE
        assert fault.detail == f"Prometheus at http://127.0.0.1:{port} cannot be reached."

    def test_a_server_that_never_answers_costs_one_wait_for_a_whole_page(self) -> None:
        with answering((HANG, "")) as (client, seen):
            asked = {str(n): Question(f"vector({n})", AT) for n in range(30)}
            answers = client.ask(asked)
            kinds = {answer.fault.kind for answer in answers.values() if answer.fault}
            assert kinds == {FaultKind.UNREACHABLE}
            assert len(answers) == 30
        assert len(seen) <= 6, "only the threads that were already waiting may have asked"

    def test_a_page_has_a_deadline_even_if_bytes_keep_dripping(self) -> None:
        """The read deadline starts anew with every byte; the page's does not."""
        stop = threading.Event()

        def drip(path: str, _body: bytes) -> Told:
            if "vector" in path:
                return result(kind="vector")
            stop.wait(20)
            return 200, ""

        patient = Deadlines(connect_s=5, read_s=30, page_s=1.0, cache_s=60)
        with http_stub({"/api/v1/query": drip}) as stub:
            client = Prometheus(stub.url, patient)
            fault = one(client).fault
            again = one(client, "vector(2)").fault
            stop.set()
            client.close()
        assert fault is not None
        assert fault.kind is FaultKind.UNREACHABLE
        assert "in time" in fault.detail
        assert again == fault, "a page asks several times, and waits once"

    @pytest.mark.parametrize(
        "told",
        [
            (200, "<html>Hello</html>"),
            (200, ""),
            (200, "[1, 2"),
            (200, {"status": "success"}),
            (200, {"data": {"result": "many"}}),
            (200, {"data": {"result": [{"metric": {}}]}}),
            (200, {"data": {"result": [{"metric": [], "value": [1, "2"]}]}}),
            (200, {"data": {"result": [{"metric": {}, "value": [1, "two"]}]}}),
            (200, [1]),
            (404, "not found"),
            (302, "elsewhere"),
        ],
    )
    def test_what_answers_is_something_else(self, told: Told) -> None:
        with answering(told) as (client, _):
            fault = one(client).fault
        assert fault is not None
        assert fault.kind is FaultKind.NOT_PROMETHEUS

    def test_a_server_error(self) -> None:
        with answering((503, "starting up")) as (client, _):
            fault = one(client).fault
        assert fault is not None
        assert fault.kind is FaultKind.UNREACHABLE
        assert fault.detail.endswith("answers HTTP 503.")

    def test_a_question_too_heavy_is_not_a_dead_server(self) -> None:
        text = "query timed out in expression evaluation"
        body = {"status": "error", "errorType": "timeout", "error": text}
        with answering((503, body)) as (client, _):
            fault = one(client).fault
        assert fault is not None
        assert fault.kind is FaultKind.TOO_SLOW
        assert fault.detail == text

    @pytest.mark.parametrize("url", ["nonsense", "http://", "http://[::1", "ftp://x/"])
    def test_an_address_that_is_none(self, url: str) -> None:
        fault = one(Prometheus(url, QUICK)).fault
        assert fault is not None
        assert fault.kind is FaultKind.UNREACHABLE

    def test_no_password_is_ever_told(self, caplog: pytest.LogCaptureFixture) -> None:
        (port,) = free_ports(1)
        fault = one(Prometheus(f"http://me:s3cret@127.0.0.1:{port}/prom", QUICK)).fault
        assert fault is not None
        assert f"http://127.0.0.1:{port}/prom" in fault.detail
        assert "s3cret" not in fault.detail + caplog.text


class TestCache:
    def test_the_same_question_is_asked_once(self) -> None:
        window = Window(AT, AT + 10, 5)
        with answering(result(SERIES)) as (client, seen):
            answers = [one(client, window=window) for _ in range(5)]
            assert one(client, "other", window) == answers[0]
        assert len({id(answer) for answer in answers}) == 1
        assert len(seen) == 2

    def test_another_window_is_another_question(self) -> None:
        with answering(result(SERIES)) as (client, seen):
            one(client, window=Window(AT, AT + 10, 5))
            one(client, window=Window(AT + 5, AT + 15, 5))
        assert len(seen) == 2

    def test_an_old_answer_is_asked_for_again(self) -> None:
        with http_stub({"/api/v1/query": result(kind="vector")}) as stub:
            client = Prometheus(stub.url, Deadlines(cache_s=0.0))
            one(client)
            one(client)
            client.close()
            assert len(stub.seen) == 2

    def test_the_server_is_told_to_give_up_before_we_do(self) -> None:
        with answering(result(SERIES)) as (client, seen):
            one(client)
        assert "timeout=0.4s" in seen[0]
