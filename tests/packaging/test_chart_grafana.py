"""The chart's dashboards and recording rules are those of the console, as ConfigMaps Grafana finds.

`UPDATE_GOLDEN=1` writes the files anew, after any change of a panel or a query; no Helm is needed.
"""

from __future__ import annotations

import gzip
import json

import yaml

from dashboards.grafana.export import dashboard as export
from dashboards.prometheus.config import recording_rules
from tests.packaging import chart
from tests.packaging.chart import CASES, Object

FILES = chart.CHART / "files"
# Stands in the files for the console's address, which only an installation has.
CONSOLE = "https://console.invalid"
SECRET_LIMIT = 1 << 20  # Helm keeps files and objects, packed, in one Secret


def boards() -> dict[str, str]:
    return {f"{one.uid}.json": export.board(one, CONSOLE).text for one in export.list_exports()}


def kept() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((FILES / "grafana").iterdir())}


def test_boards_equal_those_of_the_console() -> None:
    if chart.UPDATE:
        for path in (FILES / "grafana").glob("*.json"):
            path.unlink()
        for name, text in boards().items():
            (FILES / "grafana" / name).write_text(text)
    found, wanted = kept(), boards()
    assert set(found) == set(wanted), "UPDATE_GOLDEN=1 writes them anew"
    differing = [name for name in wanted if found[name] != wanted[name]]
    assert not differing, "UPDATE_GOLDEN=1 writes them anew"


def test_recording_rules_equal_those_of_the_console() -> None:
    path = FILES / "recording.yaml"
    text = yaml.safe_dump(recording_rules.all_groups(), sort_keys=False, width=1000)
    if chart.UPDATE:
        path.write_text(text)
    assert path.read_text() == text, "UPDATE_GOLDEN=1 writes it anew"


def test_complete_release_fits_the_helm_limit() -> None:
    """Twice: as files of the chart and as the objects made of them."""
    packed = gzip.compress("".join(boards().values()).encode())
    assert 2 * len(packed) * 4 / 3 < SECRET_LIMIT / 2
    assert max(len(text) for text in boards().values()) < SECRET_LIMIT


def rendered(*words: str) -> dict[str, Object]:
    found = chart.objects(chart.template(*words, "--set", "monitoring.dashboards=true"))
    marked = [one for one in found if "grafana_dashboard" in one["metadata"].get("labels", {})]
    return {name: one for one in marked for name in one["data"]}


def links(one: Object, name: str) -> list[str]:
    return [link.get("url", link["type"]) for link in json.loads(one["data"][name])["links"]]


@chart.needs_helm
def test_each_board_is_a_config_map_linking_to_the_console() -> None:
    made = rendered(*CASES["everything"])
    assert set(made) == set(kept())
    assert len({one["metadata"]["name"] for one in made.values()}) == len(made)
    for name, one in made.items():
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "Emberline"}
        assert len(one["metadata"]["name"]) <= 63
        back = kept()[name].replace(CONSOLE, "https://emberline.example.com")
        assert json.loads(one["data"][name]) == json.loads(back)
        assert links(one, name)[1].startswith("https://emberline.example.com/dashboards/")


@chart.needs_helm
def test_boards_have_no_link_without_a_console_url() -> None:
    made = rendered(*CASES["bundled"], "--set", "web.host=")
    assert made
    for name, one in made.items():
        assert links(one, name) == ["dashboards"]
        other = json.loads(kept()[name]) | {"links": []}
        assert json.loads(one["data"][name]) | {"links": []} == other


@chart.needs_helm
def test_boards_are_optional() -> None:
    found = chart.objects(chart.template(*CASES["everything"]))
    assert not [one for one in found if "grafana_dashboard" in one["metadata"].get("labels", {})]
