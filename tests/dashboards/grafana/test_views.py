"""Grafana export page, its files, and the API."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
import yaml
from django.test import Client

from dashboards.alerts.rules import rule_file as alerts_rules
from dashboards.alerts.rules.rule_file import RULES
from dashboards.alerts.settings import actions as alerting
from dashboards.grafana.export import dashboard as export
from dashboards.prometheus.config import recording_rules
from endpoints.models import Endpoint
from tests.dashboards.grafana.export.checker import wrong_with
from tests.support.console import browser, make_endpoint, person
from tests.support.people import client_of
from tests.support.teams import teams, their_endpoints

pytestmark = pytest.mark.django_db

API = "/api/v1/grafana"


@pytest.fixture
def viewer() -> Client:
    return browser("viewer")


def unpacked(client: Client) -> dict[str, str]:
    answer = client.get("/grafana/emberline-grafana.zip")
    assert answer.status_code == 200
    assert answer["Content-Disposition"] == 'attachment; filename="emberline-grafana.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_all_boards_in_one_file(viewer: Client) -> None:
    found = unpacked(viewer)
    boards = {name: text for name, text in found.items() if name.endswith(".json")}
    assert set(boards) == {
        f"emberline-grafana/dashboards/{one.uid}.json" for one in export.list_exports()
    }
    for text in boards.values():
        made = json.loads(text)
        assert wrong_with(made) == []
        (back,) = (link for link in made["links"] if link["type"] == "link")
        assert back["url"].startswith("http://testserver/dashboards/")
    rules = yaml.load(
        found["emberline-grafana/rules/emberline-alerts.yml"], Loader=yaml.CSafeLoader
    )
    assert sum(len(group["rules"]) for group in rules["groups"]) == len(RULES)
    records = yaml.load(
        found["emberline-grafana/rules/emberline-recording.yml"], Loader=yaml.CSafeLoader
    )
    assert records["groups"] == recording_rules.all_groups()
    (provider,) = yaml.load(
        found["emberline-grafana/grafana-provider.yaml"], Loader=yaml.CSafeLoader
    )["providers"]
    assert provider["type"] == "file"


def test_equal_state_gives_equal_bytes(viewer: Client) -> None:
    """So that a pipeline which keeps it commits only what changed."""
    first, second = (viewer.get("/grafana/emberline-grafana.zip").content for _ in range(2))
    assert first == second


def test_one_board(viewer: Client) -> None:
    for one in export.list_exports():
        answer = viewer.get(f"/grafana/dashboards/{one.uid}.json")
        assert answer["Content-Disposition"] == f'attachment; filename="{one.uid}.json"'
        response = viewer.get(f"{API}/dashboards/{one.uid}/")
        assert answer.json() == response.json()
        assert response.json()["uid"] == one.uid
    assert viewer.get("/grafana/dashboards/emberline-none.json").status_code == 404
    assert viewer.get(f"{API}/dashboards/emberline-none/").status_code == 404


def test_api_lists_and_exports_the_boards_of_the_page(viewer: Client) -> None:
    listed = viewer.get(f"{API}/dashboards/").json()["results"]
    assert [one["uid"] for one in listed] == [one.uid for one in export.list_exports()]
    assert {one["scope"] for one in listed} == {"fleet", "endpoint"}
    files = viewer.get(f"{API}/export/").json()["files"]
    packed = unpacked(viewer)
    assert {f"emberline-grafana/{file['path']}": file["text"] for file in files} == packed


def test_page_lists_and_explains_the_boards(viewer: Client) -> None:
    text = viewer.get("/grafana/").content.decode()
    for one in export.list_exports():
        assert one.title in text
        assert f"/grafana/dashboards/{one.uid}.json" in text
    assert "lmcache:num_vllm_hit_tokens_total" in text
    assert "LMCache exports these only in vLLM&#x27;s process" in text.replace("'", "&#x27;")
    assert viewer.get("/grafana/recording.yml").content.decode() == recording_rules.render()


def test_settings_page_links_to_the_boards(viewer: Client) -> None:
    assert "/grafana/" in viewer.get("/settings/").content.decode()


def test_no_board_names_an_endpoint(viewer: Client) -> None:
    """Users who may see any board may export them."""
    make_endpoint("somebody-elses")
    assert not [name for name, text in unpacked(viewer).items() if "somebody-elses" in text]


def test_team_members_cannot_export_configured_rules(viewer: Client) -> None:
    """A number of its own names the endpoint."""
    made = teams()
    their_endpoints(made)
    theirs = Endpoint.objects.get(team=made.theirs).name
    alerting.set_rule(person("operator"), "HighTTFT", theirs, {"threshold": 7})
    rules = "emberline-grafana/rules/emberline-alerts.yml"
    assert theirs in unpacked(viewer)[rules]
    frank = client_of(made.frank)
    assert unpacked(frank)[rules] == alerts_rules.render()
    assert theirs not in frank.get(f"{API}/export/").content.decode()
