"""Versions and licences of the console's components, read from installed files."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders
from django.db import connection

PACKAGE = "emberline"
_RUNTIME_PACKAGES = (
    ("Django", "django"),
    ("Django REST framework", "djangorestframework"),
    ("Celery", "celery"),
    ("uvicorn", "uvicorn"),
    ("uvloop", "uvloop"),
    ("Kubernetes client", "kubernetes"),
    ("supervisor", "supervisor"),
    ("Plotly", "plotly"),
    ("tokenizers", "tokenizers"),
)
_ROW = re.compile(r"^\|\s*`([^`]+)`\s*\|\s*`([^`]+)`\s*\|\s*([^|]+?)\s*\|\s*([^|]+?)\s*\|", re.M)
_VLLM = re.compile(r"^(vllm[\w]*)-(\d[^-]*)\.dist-info$")


@dataclass(frozen=True, slots=True)
class SoftwarePart:
    name: str
    version: str
    licence: str = ""


def version() -> str:
    return installed_version(PACKAGE) or "development checkout"


def installed_version(name: str) -> str:
    """Return the package's version, "" if not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def runtime() -> list[SoftwarePart]:
    parts = [
        SoftwarePart("Emberline", version()),
        SoftwarePart("Python", platform.python_version()),
    ]
    parts += [SoftwarePart(title, installed_version(name)) for title, name in _RUNTIME_PACKAGES]
    parts.append(SoftwarePart("Database", f"{connection.display_name} {_database()}"))
    parts.append(SoftwarePart("vLLM of local workers", _vllm(settings.EMBERLINE.vllm_python)))
    return [part for part in parts if part.version]


@lru_cache(maxsize=1)
def packages() -> tuple[SoftwarePart, ...]:
    return tuple(sorted(_packages(), key=lambda part: part.name.casefold()))


def browser_files() -> list[SoftwarePart]:
    readme = finders.find("vendor/README.md")
    path = Path(str(readme)) if readme else settings.EMBERLINE.static_root / "vendor/README.md"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    return [
        SoftwarePart(name, number.partition(",")[0], licence)
        for _, name, number, licence in _ROW.findall(text)
    ]


def _database() -> str:
    return ".".join(str(part) for part in connection.get_database_version())


def _vllm(python: Path) -> str:
    """Return vLLM's version from its environment's folder; importing it would take seconds."""
    for folder in python.parent.parent.glob("lib/python*/site-packages/vllm*.dist-info"):
        match = _VLLM.match(folder.name)
        if match:
            return f"{match[2]} ({match[1].replace('_', '-')})"
    return ""


def _packages() -> Iterator[SoftwarePart]:
    seen_names = set()
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name and name not in seen_names:
            seen_names.add(name)
            yield SoftwarePart(name, distribution.version, _licence(distribution.metadata))


def _licence(facts: metadata.PackageMetadata) -> str:
    fields = facts.json
    short = str(fields.get("license_expression") or fields.get("license") or "")
    if short and "\n" not in short and len(short) < 60:
        return short
    classes = [line for line in fields.get("classifier", []) if line.startswith("License ::")]
    return classes[0].rpartition(" :: ")[2] if classes else ""
