"""Manifests over REST, page and command line: previewed, and applied completely or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.test import Client
from rest_framework.test import APIClient

from console.accounts.models import User
from console.audit.models import AuditEvent
from console.clusters import selectors as clusters
from endpoints import actions, manifest_actions
from endpoints.actions import SYSTEM
from endpoints.manifest_actions import ManifestTarget
from endpoints.manifests import documents
from endpoints.models import Endpoint, Revision
from endpoints.refusals import ConflictError
from tests.endpoints.manifests.conftest import LEAST, SAMPLES, put, sample
from tests.support.console import browser, program

pytestmark = pytest.mark.django_db
URL = "/api/v1/endpoints/apply/"
YAML = "application/yaml"
KINDLESS = {"name": "plain", "model": "smollm2-135m-instruct", "engine": "simulated"}
IMPORTABLE = [path for path in SAMPLES if "modeldeployment.yaml" not in path.name]


@pytest.fixture(autouse=True)
def west(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster by that name, of which nothing is known yet."""
    monkeypatch.setattr(clusters, "names", lambda: ["west"])


def post(api: APIClient, text: Any, query: str = "?cluster=west") -> Any:
    body = text if isinstance(text, str) else documents.to_yaml(text)
    return api.post(f"{URL}{query}", body, content_type=YAML)


@pytest.mark.parametrize("path", IMPORTABLE, ids=lambda path: path.stem)
def test_sample_is_applied_and_exported_unchanged(path: Path) -> None:
    api, document = program("admin"), sample(path)
    answer = post(api, path_text(document))
    assert answer.status_code == 200, answer.json()
    (result,) = answer.json()["results"]
    assert result["action"] == "create"
    endpoint = Endpoint.objects.get(name=result["name"])
    assert endpoint.parsed.placement.cluster == "west"
    assert endpoint.parsed.placement.namespace == "ns-team-a"
    exported = api.get(f"/api/v1/endpoints/{result['name']}/export/")
    assert exported.headers["Content-Type"] == YAML
    assert documents.read_documents(exported.content.decode()) == [document]
    again = post(api, document).json()["results"][0]
    assert (again["action"], again["changes"]) == ("unchanged", [])
    assert Revision.objects.count() == 1


def path_text(document: dict[str, Any]) -> str:
    return documents.to_yaml(document)


def test_dry_run_changes_nothing_and_reports_everything() -> None:
    api = program("operator")
    post(api, LEAST)
    answer = post(api, put(LEAST, "spec/replicas", 3), "?cluster=west&dry_run=true").json()
    assert answer["dry_run"] is True
    (result,) = answer["results"]
    assert result["action"] == "update"
    assert [(c["field"], c["before"], c["after"], c["effect"]) for c in result["changes"]] == [
        ("replicas", 1, 3, "live")
    ]
    assert {note["code"] for note in result["notes"]} == {"ping_on_vllm"}
    assert Endpoint.objects.get().generation == 1
    post(api, put(LEAST, "spec/replicas", 3))
    endpoint = Endpoint.objects.get()
    assert (endpoint.generation, endpoint.parsed.replicas) == (2, 3)
    assert AuditEvent.objects.filter(verb="endpoint.apply", target="endpoint/llama").count() == 1


def test_objects_are_applied_together_or_not_at_all() -> None:
    api = program("operator")
    other = put(LEAST, "metadata/name", "other")
    bad = put(other, "spec/replicas", "two")
    answer = post(api, documents.to_yaml(LEAST, bad))
    assert answer.status_code == 400
    assert [item["field"] for item in answer.json()["errors"]] == ["[1].spec.replicas"]
    assert not Endpoint.objects.exists()
    assert post(api, documents.to_yaml(LEAST, other, KINDLESS)).status_code == 200
    assert set(Endpoint.objects.values_list("name", flat=True)) == {"llama", "other", "plain"}
    assert not Endpoint.objects.get(name="plain").parsed.placement.cluster


def test_duplicate_object_names_are_rejected() -> None:
    answer = post(program("operator"), documents.to_yaml(LEAST, LEAST))
    assert [item["code"] for item in answer.json()["errors"]] == ["duplicate"]


def test_json_is_applied_and_exported() -> None:
    api = program("operator")
    answer = api.post(f"{URL}?cluster=west", [LEAST], format="json")
    assert answer.status_code == 200, answer.json()
    exported = api.get("/api/v1/endpoints/llama/export/?output=json").json()
    assert exported == LEAST
    assert api.get("/api/v1/endpoints/llama/export/?output=xml").status_code == 400
    assert api.get("/api/v1/endpoints/nobody/export/").status_code == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("spec/worker/args", ["--host=1.2.3.4"]), "spec.worker.args"),
        (("spec/replicas", 1000), "spec.replicas"),
        (("metadata/annotations", {"emberline.dev/cache.l1.chunk_tokens": "17"}),
         "metadata.annotations[emberline.dev/cache.l1.chunk_tokens]"),
        (("spec/worker/modelVolumeMount/mountPath", "models"),
         "spec.worker.modelVolumeMount.mountPath"),
    ],
)  # fmt: skip
def test_spec_errors_are_reported_at_manifest_paths(change: tuple[str, Any], field: str) -> None:
    answer = post(program("operator"), put(LEAST, *change))
    assert answer.status_code == 400
    assert field in {item["field"] for item in answer.json()["errors"]}


def test_cluster_object_needs_a_cluster() -> None:
    answer = post(program("operator"), LEAST, "")
    assert [item["field"] for item in answer.json()["errors"]] == ["placement.cluster"]


def test_namespace_is_given_where_the_object_has_none() -> None:
    bare = put(LEAST, "metadata/namespace", None)
    post(program("operator"), bare, "?cluster=west&namespace=team-b")
    assert Endpoint.objects.get().parsed.placement.namespace == "team-b"


def test_exported_local_endpoint_is_applied_unchanged() -> None:
    actions.create(SYSTEM, KINDLESS)
    api = program("operator")
    text = api.get("/api/v1/endpoints/plain/export/").content.decode()
    (result,) = post(api, text, "").json()["results"]
    assert result["action"] == "unchanged"
    assert {note["code"] for note in result["notes"]} == {"no_placement"}
    (result,) = post(api, text.replace("\nspec:", "\nspec:\n  replicas: 3"), "").json()["results"]
    assert [change["field"] for change in result["changes"]] == ["replicas"]
    assert api.patch("/api/v1/endpoints/plain/", {"replicas": 1}, format="json").status_code == 200
    text = api.get("/api/v1/endpoints/plain/export/").content.decode()
    assert post(api, text, "").json()["results"][0]["action"] == "unchanged"


def test_unreadable_text_is_rejected() -> None:
    api = program("operator")
    assert "line 1" in post(api, "a: [").json()["detail"]
    assert api.post(URL, b"\xff", content_type=YAML).status_code == 400
    assert api.post(URL, b"a: 1", content_type="application/xml").status_code == 415
    assert post(api, LEAST, "?dry_run=maybe").json()["field"] == "dry_run"


def test_viewer_can_only_export(charlie: User) -> None:
    actions.create(SYSTEM, KINDLESS)
    api = program("viewer")
    assert post(api, LEAST).status_code == 403
    assert post(api, LEAST, "?cluster=west&dry_run=true").status_code == 403
    assert api.get("/api/v1/endpoints/plain/export/").status_code == 200


def test_reserved_words_of_urls_are_no_names() -> None:
    for name in ("apply", "import"):
        answer = post(program("operator"), put(LEAST, "metadata/name", name))
        assert answer.json()["code"] == "reserved_name"


def test_page_previews_and_applies_changes() -> None:
    client: Client = browser("operator")
    assert b"Import manifests" in client.get("/endpoints/import/").content
    text = documents.to_yaml(LEAST)
    form = {"text": text, "cluster": "west", "namespace": ""}
    shown = client.post("/endpoints/import/", {**form, "preview": "1"})
    assert shown.status_code == 200
    page = shown.content.decode()
    assert 'name="apply"' in page and "Llama-3.1-8B-Instruct" in page and "ping" in page
    assert not Endpoint.objects.exists()
    done = client.post("/endpoints/import/", {**form, "apply": "1"})
    assert done.headers["Location"] == "/endpoints/llama/"
    whole = client.get("/endpoints/llama/manifest/").content.decode()
    assert "InferenceEndpointConfig" in whole
    file = client.get("/endpoints/llama/manifest/?download=1")
    assert file.headers["Content-Disposition"] == 'attachment; filename="llama.yaml"'
    assert documents.read_documents(file.content.decode()) == [LEAST]


def test_page_rejects_with_paths_and_keeps_the_text() -> None:
    client = browser("operator")
    text = documents.to_yaml(put(LEAST, "spec/replicas", "<b>"))
    answer = client.post("/endpoints/import/", {"text": text, "cluster": "west", "apply": "1"})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert "<code>spec.replicas</code>" in page and "<b>" not in page
    assert "huggingFaceModel" in page
    assert browser("viewer").get("/endpoints/import/").status_code == 403


def test_file_can_be_uploaded() -> None:
    from django.core.files.uploadedfile import SimpleUploadedFile

    file = SimpleUploadedFile("x.yaml", documents.to_yaml(LEAST).encode())
    form = {"text": "", "file": file, "cluster": "west", "apply": "1"}
    browser("operator").post("/endpoints/import/", form)
    assert Endpoint.objects.filter(name="llama").exists()


def run(*words: str) -> str:
    from io import StringIO

    out = StringIO()
    call_command("emberline", "endpoint", *words, stdout=out)
    return out.getvalue()


def test_command_line_applies_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(documents.to_yaml(LEAST))
    (tmp_path / "b.json").write_text(json.dumps(put(LEAST, "metadata/name", "other")))
    (tmp_path / "notes.txt").write_text("no manifest")
    text = run("apply", "-f", str(tmp_path), "--cluster", "west", "--dry-run")
    assert "endpoint/llama created (dry run)" in text and not Endpoint.objects.exists()
    text = run("apply", "-f", str(tmp_path), "--cluster", "west")
    assert "endpoint/llama created" in text and "endpoint/other created" in text
    assert "warning: spec.loadBalancer.healthCheckPath" in text
    (tmp_path / "a.yaml").write_text(documents.to_yaml(put(LEAST, "spec/replicas", 2)))
    text = run("apply", "-f", str(tmp_path), "--cluster", "west")
    assert "endpoint/llama changed" in text and "  replicas: 1 -> 2 (live)" in text
    assert "endpoint/other unchanged" in text
    assert documents.read_documents(run("export", "llama")) == [put(LEAST, "spec/replicas", 2)]
    assert json.loads(run("export", "other", "-o", "json"))["metadata"]["name"] == "other"


def test_command_line_reports_errors(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(documents.to_yaml(put(LEAST, "spec/replicas", "x")))
    with pytest.raises(CommandError, match=r"spec\.replicas"):
        run("apply", "-f", str(file), "--cluster", "west")
    with pytest.raises(CommandError, match="cannot be read"):
        run("apply", "-f", str(tmp_path / "none.yaml"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CommandError, match="no file"):
        run("apply", "-f", str(tmp_path / "empty"))


def test_secret_in_a_variable_is_not_shown_again() -> None:
    api = program("operator")
    post(api, LEAST)
    content = [{"name": "A_TOKEN", "value": "hunter2"}]
    changed = put(LEAST, "spec/worker/environmentVariables", content)
    answer = post(api, changed, "?cluster=west&dry_run=true")
    assert "pod.env" in answer.content.decode()
    assert "hunter2" not in answer.content.decode()


def test_preview_needs_an_operator(charlie: User) -> None:
    with pytest.raises(PermissionDenied):
        manifest_actions.plan(charlie, [LEAST], ManifestTarget("west"))


def test_concurrent_change_rolls_back_the_complete_text(monkeypatch: pytest.MonkeyPatch) -> None:
    other = put(LEAST, "metadata/name", "other")
    manifest_actions.apply(SYSTEM, [LEAST, other], ManifestTarget("west"))
    planned = manifest_actions.plan

    def overtaken(*args: Any) -> Any:
        found = planned(*args)
        actions.scale(SYSTEM, "other", 5)
        return found

    monkeypatch.setattr(manifest_actions, "plan", overtaken)
    text = [put(document, "spec/replicas", 3) for document in (LEAST, other)]
    with pytest.raises(ConflictError):
        manifest_actions.apply(SYSTEM, text, ManifestTarget("west"))
    assert Endpoint.objects.get(name="llama").parsed.replicas == 1
