"""The chart's dashboards and recording rules are those of the console, as ConfigMaps Grafana finds.

`make chart` writes them into the chart.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from dashboards.grafana.export import dashboard as export
from deploy.helm import chart_files
from tests.packaging import chart
from tests.packaging.chart import CASES, Object

SECRET_LIMIT = 1 << 20  # Helm keeps files and objects, packed, in one Secret


def boards() -> dict[str, str]:
    return {
        Path(name).name: text
        for name, text in chart_files.render().items()
        if name.startswith("files/grafana/")
    }


def test_chart_gets_every_board_of_the_console() -> None:
    made = boards()
    assert set(made) == {f"{board.uid}.json" for board in export.list_exports()}
    for text in made.values():
        assert json.loads(text)["links"][1]["url"].startswith(f"{chart_files.CONSOLE}/dashboards/")


def test_complete_release_fits_the_helm_limit() -> None:
    """Twice: as files of the chart and as the objects made of them."""
    packed = gzip.compress("".join(boards().values()).encode())
    assert 2 * len(packed) * 4 / 3 < SECRET_LIMIT / 2
    assert max(len(text) for text in boards().values()) < SECRET_LIMIT


def stand_ins() -> dict[str, str]:
    """The boards of the chart that the tests render."""
    return {Path(name).name: text for name, text in chart.STAND_INS.items() if "grafana" in name}


def rendered(*words: str) -> dict[str, Object]:
    found = chart.objects(chart.template(*words, "--set", "monitoring.dashboards=true"))
    marked = [one for one in found if "grafana_dashboard" in one["metadata"].get("labels", {})]
    return {name: one for one in marked for name in one["data"]}


def links(one: Object, name: str) -> list[str]:
    return [link.get("url", link["type"]) for link in json.loads(one["data"][name])["links"]]


@chart.needs_helm
def test_each_board_is_a_config_map_linking_to_the_console() -> None:
    made = rendered(*CASES["everything"])
    assert set(made) == set(stand_ins())
    assert len({one["metadata"]["name"] for one in made.values()}) == len(made)
    for name, one in made.items():
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "Emberline"}
        assert len(one["metadata"]["name"]) <= 63
        back = stand_ins()[name].replace(chart_files.CONSOLE, "https://emberline.example.com")
        assert json.loads(one["data"][name]) == json.loads(back)
        assert links(one, name)[1].startswith("https://emberline.example.com/dashboards/")


@chart.needs_helm
def test_boards_have_no_link_without_a_console_url() -> None:
    made = rendered(*CASES["bundled"], "--set", "web.host=")
    assert made
    for name, one in made.items():
        assert links(one, name) == ["dashboards"]
        other = json.loads(stand_ins()[name]) | {"links": []}
        assert json.loads(one["data"][name]) | {"links": []} == other


@chart.needs_helm
def test_boards_are_optional() -> None:
    found = chart.objects(chart.template(*CASES["everything"]))
    assert not [one for one in found if "grafana_dashboard" in one["metadata"].get("labels", {})]
