"""Prometheus client against available, unreachable, hanging, rejecting and foreign servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from dashboards.prometheus.http.client import (
    MAX_POINTS,
    Deadlines,
    FaultKind,
    Prometheus,
    QueryResult,
    Question,
    Window,
    connect,
)
from tests.support.dashboards.fixtures import Scraping
from tests.support.http_stub import HANG, http_stub
from tests.support.http_stub import Answer as StubAnswer
from tests.support.ports import free_ports

AT = 1_700_000_000
QUICK = Deadlines(connect_s=0.5, read_s=0.5, page_s=2.0, cache_s=60.0)
PATIENT = Deadlines(connect_s=60, read_s=60, page_s=90, cache_s=60)
SERIES = {"metric": {"a": "b"}, "values": []}


@contextmanager
def answering(
    reply: StubAnswer, deadlines: Deadlines = PATIENT
) -> Iterator[tuple[Prometheus, list[str]]]:
    """Client of a server that answers every request alike, and the requested paths."""
    paths = ("/api/v1/query", "/api/v1/query_range")
    with http_stub(dict.fromkeys(paths, reply)) as stub:
        client = Prometheus(stub.url, deadlines)
        seen: list[str] = []
        yield client, seen
        seen.extend(path for _, path, _ in stub.seen)
        client.close()


@contextmanager
def _one_bad_query(reply: StubAnswer, read_s: float = 60) -> Iterator[Prometheus]:
    """A server which answers everything but queries with `bad` in them. The client's `bad` are
    those which were sent."""

    def answer(path: str, _body: bytes) -> StubAnswer:
        if "query=bad" not in path:
            return result(kind="vector")
        client.bad.append(path)  # type: ignore[attr-defined]
        return reply

    with http_stub({"/api/v1/query": answer}) as stub:
        client = Prometheus(stub.url, Deadlines(30, read_s, page_s=60, cache_s=60))
        client.bad = []  # type: ignore[attr-defined]
        yield client
        client.close()


def one(client: Prometheus, query: str = "up", window: Window | None = None) -> QueryResult:
    return client.ask({"q": Question(query, AT, window)})["q"]


def result(*series: dict[str, object], kind: str = "matrix") -> StubAnswer:
    return 200, {"status": "success", "data": {"resultType": kind, "result": list(series)}}


class TestWindow:
    def test_ends_are_aligned_to_the_step_for_caching(self) -> None:
        first = Window.ending(AT + 1.2, 900, 15)
        assert first == Window.ending(AT + 9.9, 900, 15)
        assert first.end % 15 == first.start % 15 == 0
        assert first.end <= AT + 1
        assert first.points == 61

    def test_series_have_a_bounded_number_of_points(self) -> None:
        assert Window.ending(AT, (MAX_POINTS - 1) * 5, 5).points == MAX_POINTS
        with pytest.raises(ValueError, match="600 points"):
            Window.ending(AT, MAX_POINTS * 5, 5)


class TestRealPrometheus:
    def test_series_are_aligned_to_the_grid(self, scraping: Scraping) -> None:
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

    def test_instant_query(self, scraping: Scraping) -> None:
        client = Prometheus(scraping.url)
        requested = {"q": Question("vector(7)", int(time.time()))}
        (series,) = client.ask(requested)["q"].series
        assert series.values == (7.0,)

    @pytest.mark.parametrize("query", ["vector(0)/0", "vector(1)/0", "-vector(1)/0"])
    def test_nan_and_infinity_are_none(self, scraping: Scraping, query: str) -> None:
        (series,) = one(Prometheus(scraping.url), query, Window(AT, AT + 10, 5)).series
        assert series.values == (None, None, None)

    def test_invalid_query_is_reported_with_the_prometheus_message(
        self, scraping: Scraping
    ) -> None:
        fault = one(Prometheus(scraping.url), 'sum(rate(x{a="b"}[5s])').fault
        assert fault is not None
        assert fault.kind is FaultKind.BAD_QUERY
        assert "unclosed left parenthesis" in fault.detail
        assert "\\" not in fault.detail

    def test_invalid_query_affects_no_other(self, scraping: Scraping) -> None:
        now = int(time.time())
        requested = {"bad": Question("sum(", now), "good": Question("vector(1)", now)}
        answers = Prometheus(scraping.url).ask(requested)
        assert answers["bad"].fault is not None
        assert answers["good"].series[0].values == (1.0,)


class TestUnreachable:
    def test_no_server_configured(self) -> None:
        fault = one(connect("")).fault
        assert fault is not None
        assert fault.kind is FaultKind.NOT_CONFIGURED

    def test_connection_refused(self) -> None:
        (port,) = free_ports(1)
        fault = one(Prometheus(f"http://127.0.0.1:{port}", PATIENT)).fault
        assert fault is not None
        assert fault.kind is FaultKind.UNREACHABLE
        assert fault.detail == f"Prometheus at http://127.0.0.1:{port} is unreachable."

    def test_hanging_server_costs_one_timeout_per_page(self) -> None:
        with answering((HANG, ""), QUICK) as (client, seen):
            requested = {str(n): Question(f"vector({n})", AT) for n in range(30)}
            answers = client.ask(requested)
            kinds = {answer.fault.kind for answer in answers.values() if answer.fault}
            assert kinds == {FaultKind.UNREACHABLE}
            assert len(answers) == 30
        probes = [path for path in seen if path.endswith("vector(1)")]
        assert len(seen) - len(probes) <= 6, "only the threads that were already waiting"
        assert len(probes) <= 1, "asked once for all whether it is alive"

    def test_page_has_a_deadline_for_slow_responses(self) -> None:
        """The read deadline starts anew with every byte; the page's does not."""
        stop = threading.Event()

        def drip(_path: str, _body: bytes) -> StubAnswer:
            stop.wait(20)
            return 200, ""

        patient = Deadlines(connect_s=0.5, read_s=30, page_s=1.0, cache_s=60)
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

    def test_frozen_server_is_found_before_the_deadlines(self) -> None:
        stop = threading.Event()

        def hang(_path: str, _body: bytes) -> StubAnswer:
            stop.wait(30)  # then it would be no Prometheus
            return 200, ""

        patient = Deadlines(connect_s=0.5, read_s=600, page_s=600, cache_s=60, frozen_s=0.1)
        with http_stub({"/api/v1/query": hang}) as stub:
            client = Prometheus(stub.url, patient)
            fault = one(client).fault
            stop.set()
            client.close()
        assert fault is not None
        assert fault.kind is FaultKind.UNREACHABLE

    def test_slow_query_of_a_server_that_answers_is_awaited(self) -> None:
        def slow(path: str, _body: bytes) -> StubAnswer:
            if "vector%281%29" not in path and "vector(1)" not in path:
                time.sleep(0.5)
            return result(kind="vector")

        patient = Deadlines(connect_s=60, read_s=60, page_s=90, cache_s=60, frozen_s=0.05)
        with http_stub({"/api/v1/query": slow}) as stub:
            client = Prometheus(stub.url, patient)
            answer = one(client, "vector(7)")
            client.close()
        assert answer.fault is None

    @pytest.mark.parametrize(
        "reply",
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
    def test_other_server_is_not_prometheus(self, reply: StubAnswer) -> None:
        with answering(reply) as (client, _):
            fault = one(client).fault
        assert fault is not None
        assert fault.kind is FaultKind.NOT_PROMETHEUS

    def test_server_error(self) -> None:
        with answering((503, "starting up")) as (client, _):
            fault = one(client).fault
        assert fault is not None
        assert fault.kind is FaultKind.UNREACHABLE
        assert fault.detail.endswith("answers HTTP 503.")

    def test_too_expensive_query_is_no_outage(self) -> None:
        text = "query timed out in expression evaluation"
        body = {"status": "error", "errorType": "timeout", "error": text}
        with answering((503, body)) as (client, _):
            fault = one(client).fault
        assert fault is not None
        assert fault.kind is FaultKind.TOO_SLOW
        assert fault.detail == text

    @pytest.mark.parametrize(
        ("status", "kind", "text", "expected"),
        [
            (422, "execution", "query processing would load too many samples into memory in "
             "query execution", FaultKind.TOO_EXPENSIVE),
            (422, "execution", "the query exceeded the maximum number of chunks (limit: 2000000)",
             FaultKind.TOO_EXPENSIVE),
            (422, "execution", "exceeded series limit", FaultKind.TOO_EXPENSIVE),
            (400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries",
             FaultKind.BAD_QUERY),
            (503, "timeout", "query timed out in query queue", FaultKind.TOO_SLOW),
            (429, "", "", FaultKind.TOO_SLOW),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("heavy", [True, False])
    def test_rejected_query_is_no_outage(
        self, status: int, kind: str, text: str, expected: FaultKind, heavy: bool
    ) -> None:
        """All other queries are still sent and answered."""
        body = {"status": "error", "errorType": kind, "error": text} if kind else "busy"
        with _one_bad_query((status, body)) as client:
            bad = client.ask({"q": Question("bad", AT, heavy=heavy)})["q"].fault
            assert bad is not None
            assert bad.kind is expected
            assert one(client).fault is None

    @pytest.mark.parametrize("heavy", [True, False])
    @pytest.mark.parametrize("reply", [(HANG, ""), (502, "bad gateway"), (504, "<html>")])
    def test_query_timeout_is_no_outage(self, reply: StubAnswer, heavy: bool) -> None:
        hangs = reply[0] is HANG
        with _one_bad_query(reply, read_s=0.5 if hangs else 60) as client:
            bad = client.ask({"q": Question("bad", AT, heavy=heavy)})["q"].fault
            assert bad is not None
            assert bad.kind is (FaultKind.TOO_SLOW if hangs else FaultKind.UNREACHABLE)
            client.deadlines = PATIENT
            client._mine = threading.local()  # the short deadline is kept by each connection
            assert one(client).fault is None

    def test_custom_queries_never_delay_a_board(self) -> None:
        """Twenty of them are on their way while the board's are answered; those left are not sent
        once their page has given up."""
        with _one_bad_query((HANG, "")) as client:
            written = {str(n): Question(f"bad {n}", AT, heavy=True) for n in range(20)}
            patient, client.deadlines = client.deadlines, replace(client.deadlines, page_s=0.1)
            answers = client.begin(written)
            client.deadlines = patient
            board = client.ask({str(n): Question(f"up{n}", AT) for n in range(20)})
            assert [one.fault for one in board.values()] == [None] * 20
            kinds = {one.fault.kind for one in answers().values() if one.fault}
            assert kinds == {FaultKind.TOO_SLOW}
            assert len(client.bad) <= 2  # type: ignore[attr-defined]
            assert one(client, "up").fault is None

    @pytest.mark.parametrize("url", ["nonsense", "http://", "http://[::1", "ftp://x/"])
    def test_invalid_address(self, url: str) -> None:
        fault = one(Prometheus(url, PATIENT)).fault
        assert fault is not None
        assert fault.kind is FaultKind.UNREACHABLE

    def test_passwords_are_never_reported(self, caplog: pytest.LogCaptureFixture) -> None:
        (port,) = free_ports(1)
        fault = one(Prometheus(f"http://me:s3cret@127.0.0.1:{port}/prom", PATIENT)).fault
        assert fault is not None
        assert f"http://127.0.0.1:{port}/prom" in fault.detail
        assert "s3cret" not in fault.detail + caplog.text


class TestCache:
    def test_equal_queries_are_sent_once(self) -> None:
        window = Window(AT, AT + 10, 5)
        with answering(result(SERIES)) as (client, seen):
            answers = [one(client, window=window) for _ in range(5)]
            assert one(client, "other", window) == answers[0]
        assert len({id(answer) for answer in answers}) == 1
        assert len(seen) == 2

    def test_oldest_results_are_dropped_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dashboards.prometheus.http.client._CACHED", 2)
        with answering(result(SERIES)) as (client, seen):
            for query in ("a", "b", "c", "b", "c", "a"):
                one(client, query)
        assert len(seen) == 4

    def test_other_window_is_another_query(self) -> None:
        with answering(result(SERIES)) as (client, seen):
            one(client, window=Window(AT, AT + 10, 5))
            one(client, window=Window(AT + 5, AT + 15, 5))
        assert len(seen) == 2

    def test_expired_result_is_queried_again(self) -> None:
        with http_stub({"/api/v1/query": result(kind="vector")}) as stub:
            client = Prometheus(stub.url, Deadlines(cache_s=0.0))
            one(client)
            one(client)
            client.close()
            assert len(stub.seen) == 2

    def test_server_timeout_is_shorter_than_that_of_the_client(self) -> None:
        with answering(result(SERIES), replace(PATIENT, read_s=30)) as (client, seen):
            one(client)
        assert "timeout=24s" in seen[0]
