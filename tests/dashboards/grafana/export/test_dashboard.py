"""Every board as a valid Grafana dashboard with the console's content."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from django.core.management import CommandError, call_command

from console.client import Client
from console.commandline.context import CommandContext
from console.commandline.context import CommandError as Wrong
from console.commandline.platform import dashboards
from dashboards.boards.panels import BOARDS, overview
from dashboards.boards.panels.declarations import (
    Board,
    Kind,
    Panel,
    PanelLine,
    PanelSection,
    Style,
    Unit,
)
from dashboards.boards.panels.routing import STRATEGIES
from dashboards.grafana.export import panel as export_panel
from dashboards.grafana.export.dashboard import DashboardExport, list_exports, make_dashboard
from routing.analysis import label_names
from tests.dashboards.grafana.export import checker
from tests.dashboards.grafana.export.checker import Object, wrong_with
from tests.dashboards.grafana.export.variables import ALWAYS, names

URL = "https://console.example.com/"
# Those Grafana itself gives, beside the ones which stand for times.
_GIVEN = {"__all", "__from", "__to", "__url_time_range", "__field"}


@pytest.fixture(params=list_exports(), ids=lambda wanted: wanted.uid)
def wanted(request: pytest.FixtureRequest) -> DashboardExport:
    return request.param


@pytest.fixture
def made(wanted: DashboardExport) -> Object:
    return make_dashboard(wanted, URL)


def drawn(made: Object) -> list[Object]:
    return [panel for panel in made["panels"] if panel["type"] != "row"]


def sample(**facts: object) -> Panel:
    return dataclasses.replace(overview.TTFT, **facts)


def test_every_board_is_exported_for_one_and_for_many_endpoints() -> None:
    found = {(wanted.board.key, wanted.one) for wanted in list_exports()}
    assert found == {
        (board.key, one)
        for board in BOARDS.values()
        for one in (False, True)
        if board.panels(one=one)
    }
    assert len({wanted.uid for wanted in list_exports()}) == len(found)


def test_every_field_is_in_the_grafana_schema(made: Object) -> None:
    assert checker.wrong_with(made) == []


def test_arbitrary_boards_match_the_grafana_schema() -> None:
    place = {"id": 1, "gridPos": {"x": 0, "y": 0, "w": 12, "h": 9}}
    for kind, unit in product(get_args(Kind), get_args(Unit)):
        made = export_panel.make_panel(sample(kind=kind, unit=unit), one=True)
        assert checker.wrong_with_panel(place | made) == [], (kind, unit)


def test_checker_detects_fields_ignored_by_grafana() -> None:
    made = make_dashboard(list_exports()[0], URL)
    next(p for p in made["panels"] if p["type"] == "timeseries")["options"]["legend"]["shown"] = (
        True
    )
    made["refresh"] = 30
    assert len(checker.wrong_with(made)) == 2


def test_panels_have_the_order_of_the_board(wanted: DashboardExport, made: Object) -> None:
    assert [panel["title"] for panel in drawn(made)] == [panel.title for panel in wanted.panels]
    rows = [panel["title"] for panel in made["panels"] if panel["type"] == "row"]
    sections = wanted.board.sections(one=wanted.one)
    assert rows == [section.title for section in sections if section.title]
    for shown, declared in zip(drawn(made), wanted.panels, strict=True):
        assert len(shown["targets"]) == len(declared.lines)
        assert declared.about in shown["description"]
        assert (declared.needs or declared.metric) in shown["description"]


def test_panels_are_laid_out_in_rows(made: Object) -> None:
    assert checker.overlapping(made["panels"]) == []
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_used_variable_is_declared(made: Object) -> None:
    declared = {one["name"] for one in made["templating"]["list"]}
    used = {name for text in checker.texts(made) for name in names(text)}
    assert used - declared - set(ALWAYS) <= _GIVEN
    assert {"datasource", "endpoint", "namespace"} <= used


def test_variable_is_queried_after_its_dependencies(made: Object) -> None:
    before: set[str] = set()
    for one in made["templating"]["list"]:
        assert {name for text in checker.texts(one) for name in names(text)} <= before | _GIVEN
        before.add(one["name"])


def test_series_have_the_colour_and_dash_of_the_console(
    wanted: DashboardExport, made: Object
) -> None:
    for shown, declared in zip(drawn(made), wanted.panels, strict=True):
        dressed = {
            one["matcher"]["options"]: {part["id"]: part["value"] for part in one["properties"]}
            for one in shown["fieldConfig"]["overrides"]
        }
        assert set(dressed) >= set(declared.legend)
        for key, style in declared.legend.items():
            assert dressed[key]["displayName"] == style.label
            assert dressed[key]["color"]["fixedColor"] == style.colour
            assert ("custom.lineStyle" in dressed[key]) is (style.dash != "solid")


def test_codes_without_a_style_have_the_console_label(
    wanted: DashboardExport, made: Object
) -> None:
    for shown, declared in zip(drawn(made), wanted.panels, strict=True):
        given = {
            one["matcher"]["options"]: {part["id"]: part["value"] for part in one["properties"]}
            for one in shown["fieldConfig"]["overrides"]
        }
        for line in declared.lines:
            names = {} if line.name else label_names.list_names(line.by, declared.metric)
            for code, name in names.items():
                if code not in declared.legend:
                    assert given.get(code, {}).get("displayName", code) == name
        if declared.id == "kv-fallbacks":
            assert given["no_events"] == {"displayName": "No KV events received"}


def test_no_endpoint_is_hard_coded(made: Object) -> None:
    """An export has no fixed names; its reader chooses among those Grafana shows."""
    for panel in drawn(made):
        for target in panel["targets"]:
            for part in ("endpoint=", "endpoint_name=", "namespace="):
                for rest in target["expr"].split(part)[1:]:
                    assert rest.lstrip('~"').startswith("$"), target["expr"]


def test_dashboard_links_to_the_board_with_its_time_range(
    wanted: DashboardExport, made: Object
) -> None:
    (link,) = (one for one in made["links"] if one["type"] == "link")
    place = "endpoints/${endpoint}/" if wanted.one else ""
    assert link["url"] == (
        f"https://console.example.com/dashboards/{place}{wanted.board.key}/"
        "?from=${__from:date:seconds}&to=${__to:date:seconds}"
    )
    assert not [one for one in make_dashboard(wanted)["links"] if one["type"] == "link"]


def test_worker_and_endpoint_series_link_to_their_board() -> None:
    by_endpoint = sample(lines=(PanelLine("reuse_each", by="endpoint_name"),))
    fleet, one = (PanelSection("", (by_endpoint,)),), (PanelSection("One", (overview.TTFT,)),)
    board = Board("x", "X", "About.", "chart-line", fleet, one)
    shown = make_dashboard(DashboardExport(board, one=False))["panels"][0]
    (link,) = shown["fieldConfig"]["defaults"]["links"]
    assert link["url"] == (
        "/d/emberline-endpoint-x?var-endpoint=${__field.labels.endpoint_name}"
        "&${datasource:queryparam}&${namespace:queryparam}&${__url_time_range}"
    )


def test_combined_reasons_have_labels_in_grafana() -> None:
    made = export_panel.make_panel(STRATEGIES, one=True)
    shown = "prefixaware fallback_least_loaded"
    for one in made["transformations"]:
        pattern = one["options"]["renamePattern"].replace("$1", r"\1")
        shown = re.sub(one["options"]["regex"], pattern, shown)
    assert shown == "prefixaware: Diverted by load"


def test_panel_types_match_the_chart_kinds() -> None:
    def of(kind: Kind) -> Object:
        return export_panel.make_panel(
            sample(kind=kind, styles={"p50": Style("p50", "#56B4E9")}), one=True
        )

    assert of("lines")["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "none"
    assert of("stacked")["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    assert of("bars")["fieldConfig"]["defaults"]["custom"]["drawStyle"] == "bars"
    assert of("numbers")["type"] == "stat"
    heat = of("heatmap")
    assert heat["type"] == "heatmap"
    assert {target["format"] for target in heat["targets"]} == {"heatmap"}


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("emberline", "dashboards", *words, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_folder_gets_every_file_and_keeps_foreign_ones(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "grafana"
    text = run("export", "--to", str(folder)).split()
    assert set(text) == {str(path) for path in folder.rglob("*") if path.is_file()}
    boards = sorted((folder / "dashboards").glob("*.json"))
    assert {path.stem for path in boards} == {one.uid for one in list_exports()}
    for path in boards:
        assert wrong_with(json.loads(path.read_text())) == []
    (folder / "mine.json").write_text("{}")
    boards[0].write_text("old")
    run("export", "--to", str(folder))
    assert (folder / "mine.json").read_text() == "{}"
    assert boards[0].read_text() != "old"


@pytest.mark.django_db
def test_command_lists_and_prints_dashboards() -> None:
    first = list_exports()[0]
    assert f"{first.uid}  " in run("list")
    assert json.loads(run("get", first.uid))["uid"] == first.uid
    assert run("list", "-o", "name").split() == [one.uid for one in list_exports()]


@pytest.mark.django_db
def test_unwritable_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="file"):
        run("export", "--to", str(tmp_path / "file"))


@pytest.mark.parametrize("path", ["../stolen", "/tmp/stolen", "a/../../stolen"])
def test_export_writes_only_to_the_given_folder(path: str, tmp_path: Path) -> None:
    files = [{"path": path, "text": "x", "media_type": "text/plain"}]
    client = SimpleNamespace(get=lambda *_path: {"files": files})
    out: Any = io.StringIO()
    text = CommandContext({"to": str(tmp_path / "in")}, out, out, lambda: cast(Client, client))
    with pytest.raises(Wrong, match="outside"):
        dashboards.export(text)
    assert not list(tmp_path.rglob("stolen"))
