"""Limits of file descriptors, with a process that really has none left."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from console.processkit import descriptors
from tests.support.descriptors import none_left


def test_soft_limit_is_raised_to_the_hard_one() -> None:
    script = (
        "import resource; from console.processkit import descriptors as d\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 500)); d.raise_limit(); print(d.limit())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "500", done.stderr


def test_exhaustion_is_told_from_other_errors() -> None:
    before = descriptors.in_use()
    with none_left():
        with pytest.raises(OSError) as caught:
            os.dup(0)
        assert descriptors.is_own_limit(caught.value)
        assert descriptors.in_use() == descriptors.limit()
    assert descriptors.in_use() == before
    with pytest.raises(OSError) as missing:
        Path("/nowhere").read_text()
    assert not descriptors.is_own_limit(missing.value)
    assert descriptors.is_own_limit(OSError(errno.ENFILE, "x"))
    assert not descriptors.is_own_limit(None)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > before
