"""The chart as tests see it: its files, what it renders where Helm is, and what it must grant.

Helm is not part of this repository: `HELM=/path/to/helm`, or `helm` on PATH. What was rendered is
kept in tests/packaging/golden and deploy/kustomize/base, so that its content is checked everywhere;
`UPDATE_GOLDEN=1` with a Helm writes it anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.provisioners.kubernetes.discovery import rights
from deploy.helm import chart_files

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "emberline"
GOLDEN = Path(__file__).parent / "golden"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))
HELM = os.environ.get("HELM") or shutil.which("helm")
KUSTOMIZE = os.environ.get("KUSTOMIZE") or shutil.which("kustomize")
# Neither tool can be had from a package index. What they would render is kept and checked
# everywhere, and `sources` detects that it was rendered from other templates.
needs_helm = pytest.mark.skipif(
    HELM is None, reason="NOT RENDERED ANEW: no helm (HELM=/path/to/helm); what is kept is checked"
)
needs_kustomize = pytest.mark.skipif(
    KUSTOMIZE is None, reason="NOT BUILT: no kustomize (KUSTOMIZE=/path/to/kustomize)"
)
CASES = {
    "own-database": ["-f", str(GOLDEN / "own-database.values.yaml")],
    "bundled": ["-f", str(GOLDEN / "bundled.values.yaml")],
    "everything": ["-f", str(GOLDEN / "everything.values.yaml")],
}
STAND_INS = {
    "files/endpoint-alerts.yaml": "- name: endpoint-alerts\n  rules: []\n",
    "files/recording.yaml": "- name: recording\n  rules: []\n",
    "files/grafana/emberline-fleet-overview.json": (
        '{"title": "Overview", "links": [{"type": "dashboards"},'
        ' {"url": "https://console.invalid/dashboards/"}]}'
    ),
}
Object = dict[str, Any]
_RULES = re.compile(r"(kind: (Cluster)?Role\n(?:(?!---).*\n)*?rules:\n)(?:  - \{.*\n)+")


def sources() -> str:
    """A digest of all that Helm renders from, but for files/, whose content tests compare."""
    places = [
        *sorted((CHART / "templates").rglob("*")),
        CHART / "Chart.yaml",
        CHART / "values.yaml",
        ROOT / "deploy" / "kustomize" / "values.yaml",
        *sorted(GOLDEN.glob("*.values.yaml")),
    ]
    found = hashlib.sha256()
    for path in places:
        if path.is_file():
            found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()


@lru_cache
def made_chart() -> Path:
    """The chart with stand-ins for the files that `make chart` derives from the console, so that a
    kept rendering changes with the templates only.
    """
    folder = Path(tempfile.mkdtemp(prefix="chart-")) / "emberline"
    shutil.copytree(CHART, folder)
    chart_files.write(folder, STAND_INS)
    return folder


def template(*words: str, namespace: str = "emberline") -> str:
    assert HELM is not None
    done = subprocess.run(
        [HELM, "template", "emberline", str(made_chart()), "-n", namespace, *words],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def objects(text: str) -> list[Object]:
    return [one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one]


def golden(case: str) -> list[Object]:
    return objects((GOLDEN / f"{case}.yaml").read_text())


def pod_of(found: Object) -> Object | None:
    """The pod template's spec of a workload."""
    template = found.get("spec", {}).get("template")
    return template["spec"] if template else None


def rights_file() -> str:
    """What files/rights.yaml must hold: everything Emberline may ask of a cluster."""
    head = "# Made of console/provisioners/kubernetes/discovery/rights.py by the packaging tests.\n"
    return head + yaml.safe_dump({"rights": _listed()}, sort_keys=False, default_flow_style=None)


def with_rights(text: str, *, volumes: bool) -> str:
    """A rendering with the rules which the chart's template makes of that file today, so that
    whoever changes a right needs no Helm."""

    def rules(match: re.Match[str]) -> str:
        cluster, part = bool(match[2]), _part(match[1])
        lines = [
            f'  - {{apiGroups: ["{one["group"]}"], resources: [{", ".join(one["resources"])}], '
            + (f"resourceNames: [{', '.join(one['names'])}], " if "names" in one else "")
            + f"verbs: [{', '.join(one['verbs'])}]}}\n"
            for one in _listed()
            if bool(one.get("cluster")) is cluster
            and one.get("part", "") == part
            and (not cluster or part or volumes or "create" not in one["verbs"])
        ]
        return match[1] + "".join(lines)

    return _RULES.sub(rules, text)


def _part(head: str) -> str:
    """The group of rights that a Role is for, by its name."""
    parts = (rights.FOLLOW_GROUP, rights.RECEIVERS_GROUP)
    return next((part for part in parts if f"-{part}\n" in head), "")


def _listed() -> list[Object]:
    together: dict[tuple[Any, ...], list[str]] = {}
    for one in rights.RIGHTS:
        key = (one.group, one.capability, one.cluster, one.verbs, one.names, one.part)
        together.setdefault(key, []).append(one.resource)
    listed = []
    for (group, capability, cluster, verbs, names, part), resources in together.items():
        entry: Object = {"group": group, "resources": resources, "verbs": list(verbs)}
        entry |= {"cluster": True} if cluster else {}
        entry |= {"capability": capability} if capability else {}
        entry |= {"names": list(names)} if names else {}
        entry |= {"part": part} if part else {}
        listed.append(entry)
    return listed
