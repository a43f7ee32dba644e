"""Kustomize base: the chart's objects without Helm, and the example."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.packaging import chart

KUSTOMIZE = chart.ROOT / "deploy" / "kustomize"
BASE = KUSTOMIZE / "base" / "emberline.yaml"
FOLLOW = KUSTOMIZE / "follow" / "follow.yaml"
RECEIVERS = KUSTOMIZE / "receivers" / "receivers.yaml"
EGRESS = KUSTOMIZE / "egress" / "egress.yaml"
EXAMPLE = KUSTOMIZE / "example"


def plain(rendered: str) -> str:
    """Without the labels of Helm."""
    text = re.sub(r"^ *helm\.sh/chart: .*\n", "", rendered, flags=re.M)
    text = re.sub(r"^# Source: .*\n", "", text, flags=re.M)
    return re.sub(r"managed-by: Helm", "managed-by: kustomize", text)


@chart.needs_helm
def test_base_equals_the_chart_rendering() -> None:
    text = plain(chart.template("-f", str(KUSTOMIZE / "values.yaml")))
    if chart.UPDATE:
        BASE.write_text(text)
    assert BASE.read_text() == text, "UPDATE_GOLDEN=1 writes it anew"


@chart.needs_helm
@pytest.mark.parametrize(
    ("kept", "switch"),
    [
        (FOLLOW, "follow.enabled"),
        (EGRESS, "networkPolicy.egress.enabled"),
        (RECEIVERS, "monitoring.liveReceivers"),
    ],
)
def test_component_equals_the_chart_addition(kept: Path, switch: str) -> None:
    words = ("-f", str(KUSTOMIZE / "values.yaml"), "--set", f"{switch}=true")
    rendered = chart.template(*words).split("---\n")
    text = plain("".join(f"---\n{one}" for one in rendered if f"templates/{kept.name}" in one))
    if chart.UPDATE:
        kept.write_text(text)
    assert kept.read_text() == text, "UPDATE_GOLDEN=1 writes it anew"


def test_egress_component_adds_policies_for_base_pods() -> None:
    base = chart.objects(BASE.read_text())
    found = chart.objects(EGRESS.read_text())
    assert {one["kind"] for one in found} == {"NetworkPolicy"}
    assert not {one["metadata"]["name"] for one in base} & {
        one["metadata"]["name"] for one in found
    }
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in base if chart.pod_of(one)]
    for one in found:
        wanted = one["spec"]["podSelector"]["matchLabels"].items()
        assert [have for have in pods if wanted <= have.items()]


def test_following_component_has_its_rights() -> None:
    text = chart.with_rights(FOLLOW.read_text(), volumes=False)
    if chart.UPDATE:
        FOLLOW.write_text(text)
    assert FOLLOW.read_text() == text, "UPDATE_GOLDEN=1 writes it anew"
    found = chart.objects(text)
    bound = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    assert {one["kind"] for one in found} == bound
    names = {one["metadata"]["name"] for one in chart.objects(BASE.read_text())}
    assert not names & {one["metadata"]["name"] for one in found}, "it adds to the base"
    accounts = {one["name"] for role in found for one in role.get("subjects", ())}
    assert accounts <= names


def test_base_has_the_rights_of_the_console() -> None:
    text = chart.with_rights(BASE.read_text(), volumes=False)
    if chart.UPDATE:
        BASE.write_text(text)
    assert BASE.read_text() == text, "UPDATE_GOLDEN=1 writes it anew"


def test_base_contains_no_secret_and_no_helm() -> None:
    found = chart.objects(BASE.read_text())
    assert {"Deployment", "Job", "Role", "ConfigMap"} <= {one["kind"] for one in found}
    assert "Secret" not in {one["kind"] for one in found}
    assert "helm" not in BASE.read_text().lower()


def test_example_settings_exist_in_the_base() -> None:
    """A misspelt name would add a setting instead of changing one."""
    (base,) = (o for o in chart.objects(BASE.read_text()) if "EMBERLINE_HOST" in o.get("data", {}))
    changed = yaml.load((EXAMPLE / "settings.yaml").read_text(), Loader=yaml.CSafeLoader)
    assert changed["metadata"]["name"] == base["metadata"]["name"]
    assert set(changed["data"]) <= set(base["data"])
    made = yaml.load((EXAMPLE / "kustomization.yaml").read_text(), Loader=yaml.CSafeLoader)
    (secret,) = made["secretGenerator"]
    given = {Path(name).name for name in secret["files"]}
    requested = {
        item["key"]
        for one in chart.objects(BASE.read_text())
        for volume in (chart.pod_of(one) or {}).get("volumes", ())
        if "secret" in volume
        for item in volume["secret"]["items"]
    }
    assert given == requested


@chart.needs_kustomize
def test_example_builds(tmp_path: Path) -> None:
    shutil.copytree(KUSTOMIZE, tmp_path / "kustomize")
    example = tmp_path / "kustomize" / "example"
    with (example / "kustomization.yaml").open("a") as file:
        file.write("components: [../follow, ../egress]\n")
    names = yaml.load((example / "kustomization.yaml").read_text(), Loader=yaml.CSafeLoader)[
        "secretGenerator"
    ][0]
    for name in names["files"]:
        (example / name).write_text("a-secret")
    assert chart.KUSTOMIZE is not None
    done = subprocess.run([chart.KUSTOMIZE, "build", example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = chart.objects(done.stdout)
    (settings,) = (o for o in found if "EMBERLINE_HOST" in o.get("data", {}))
    assert settings["data"]["DATABASE_URL"].endswith("sslmode=require")
    (secret,) = (o for o in found if o["kind"] == "Secret")
    added = {"emberline-follow", "emberline-egress-work"}
    assert {*added, "emberline-workloads"} <= {o["metadata"]["name"] for o in found}
    for one in found:
        if one["kind"] not in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
            assert one["metadata"]["namespace"] == "emberline"
        for volume in (chart.pod_of(one) or {}).get("volumes", ()):
            if "secret" in volume:
                assert volume["secret"]["secretName"] == secret["metadata"]["name"]
        for container in (chart.pod_of(one) or {}).get("containers", ()):
            assert container["image"] == "registry.example.com/emberline-console:0.2.0"
