"""Provisioners by name, and the modules each one imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from console.provisioners import registry
from console.provisioners.base import PermanentError
from tests.support.cachenode import ROOT


def test_by_name(tmp_path: Path) -> None:
    assert registry.get_provisioner("fake", tmp_path).name == "fake"
    assert registry.get_provisioner("local", tmp_path).name == "local"


def test_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="fake, kubernetes, local") as caught:
        registry.get_provisioner("mesos", tmp_path)
    assert caught.value.reason == "UnknownProvisioner"


def test_name_imports_only_its_module() -> None:
    code = (
        "import sys, pathlib; from console.provisioners import registry;"
        "registry.get_provisioner('fake', pathlib.Path('/nonexistent'));"
        "print([m for m in sys.modules if m.startswith('console.provisioners.local')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr
