"""Several metrics sources in one result, and unreachable ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dashboards.alerts.evaluation.firing_alerts import query_firing
from dashboards.boards.panels import BOARDS, FIRST
from dashboards.boards.panels.declarations import RANGES
from dashboards.boards.queries import Scope
from dashboards.boards.results.board import collect
from dashboards.boards.results.fleet_summary import summarize_fleet
from dashboards.costs.formulas.counts import count_usage
from dashboards.overview.extensions import _column
from dashboards.prometheus.http.client import Fault, FaultKind, Join, QueryResult, Question, Series
from dashboards.prometheus.http.federation import Federated, FederatedSource, RefusingAsker
from endpoints.models import Endpoint

AWAY = Fault(FaultKind.UNREACHABLE, "Prometheus eu is unreachable.")


class StubPrometheus:
    def __init__(self, *series: tuple[dict[str, str], tuple[float | None, ...]]) -> None:
        made = [Series(tuple(sorted(labels.items())), values) for labels, values in series]
        self._answer = QueryResult(tuple(made))

    def begin(self, questions: Mapping[str, Question]) -> Callable[[], dict[str, QueryResult]]:
        return lambda: dict.fromkeys(questions, self._answer)


def query_federated(
    *parts: FederatedSource, owners: Mapping[str, str] | None = None, join: Join = "apart"
) -> QueryResult:
    federated = Federated(parts, owners or {})
    return federated.ask({"q": Question("q", 0, join=join)})["q"]


def shown(answer: QueryResult) -> dict[str, tuple[float | None, ...]]:
    return {"/".join(value for _, value in one.labels): one.values for one in answer.series}


def test_endpoints_of_both_sources_are_in_one_result() -> None:
    here = FederatedSource("here", StubPrometheus(({"endpoint_name": "a"}, (1.0,))))
    eu = FederatedSource("eu", StubPrometheus(({"endpoint_name": "b"}, (2.0,))))
    assert shown(query_federated(here, eu)) == {"a": (1.0,), "b": (2.0,)}


def test_series_of_an_endpoint_come_from_its_source() -> None:
    both = ({"endpoint_name": "a"}, (1.0,)), ({"endpoint": "b"}, (1.0,))
    kept = ({"endpoint_name": "a"}, (7.0,)), ({"endpoint": "b"}, (8.0,))
    found = query_federated(
        FederatedSource("all", StubPrometheus(*both)),
        FederatedSource("eu", StubPrometheus(*kept)),
        owners={"a": "eu", "b": "eu"},
    )
    assert shown(found) == {"a": (7.0,), "b": (8.0,)}


def test_series_without_an_endpoint_are_labelled_or_summed() -> None:
    here, eu = (
        FederatedSource("here", StubPrometheus(({}, (1.0, None)))),
        FederatedSource("eu", StubPrometheus(({}, (2.0, 5.0)))),
    )
    assert shown(query_federated(here, eu)) == {"eu": (2.0, 5.0), "here": (1.0, None)}
    assert shown(query_federated(here, eu, join="sum")) == {"": (3.0, 5.0)}
    assert shown(query_federated(here, eu, join="max")) == {"": (2.0, 5.0)}


def test_unreachable_source_affects_only_its_endpoints() -> None:
    here = FederatedSource("here", StubPrometheus(({"endpoint_name": "a"}, (1.0,))))
    found = query_federated(here, FederatedSource("eu", RefusingAsker(AWAY)))
    assert shown(found) == {"a": (1.0,)}
    assert found.fault is None
    assert found.missing == (AWAY,)


def test_all_unreachable_sources_are_an_error() -> None:
    found = query_federated(
        FederatedSource("us", RefusingAsker(AWAY)), FederatedSource("eu", RefusingAsker(AWAY))
    )
    assert found.fault == AWAY


class TestUnreachableSource:
    """No zero and no silence where a source did not answer."""

    @staticmethod
    def asker(*series: tuple[dict[str, str], tuple[float | None, ...]]) -> Federated:
        return Federated(
            [
                FederatedSource("here", StubPrometheus(*series)),
                FederatedSource("eu", RefusingAsker(AWAY)),
            ],
            {"b": "eu"},
        )

    def test_costs_omit_the_unreachable_source_with_a_notice(self) -> None:
        found = count_usage(self.asker(({"endpoint_name": "a"}, (60.0,))), 900, 0)
        assert (list(found.by_endpoint), found.fault, found.missing) == (["a"], None, AWAY)

    def test_summary_without_prompts_does_not_blame_clients(self) -> None:
        assert summarize_fleet(self.asker(), Scope()).why == AWAY.detail

    def test_empty_list_cells_state_the_reason(self) -> None:
        answer = self.asker(({"endpoint": "a"}, (0.5,))).ask({"q": Question("q", 0)})["q"]
        cells = _column("reuse", answer, [Endpoint(name="a"), Endpoint(name="b")])
        assert (cells["a"].text, cells["b"].why) == ("50 %", AWAY.detail)

    def test_firing_alerts_omit_the_unreachable_source_with_a_notice(self) -> None:
        found = query_firing(self.asker(), Scope())
        assert (found.why, found.missing) == ("", AWAY.detail)

    def test_board_shows_the_other_sources_and_names_the_unreachable_one(self) -> None:
        panels = BOARDS[FIRST].panels(one=False)[:2]
        found = collect(self.asker(), panels, Scope(), RANGES["15m"], 1_700_000_000)
        assert found["fault"]["text"] == AWAY.detail
        assert "prometheus" not in {panel["state"] for panel in found["panels"]}
