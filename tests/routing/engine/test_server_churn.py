"""Thousands of workers added and removed under traffic leave nothing.

Live objects, metrics, memories and allocated blocks are counted, not guessed from resident size.
The router and its connections are the real ones; transports only remember, so that thousands of
workers take seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.routing.engine.churn_process import SPANS, STANDING

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("strategy", ["prefixaware", "session", "roundrobin"])
def test_thousands_of_removed_workers_leave_nothing(strategy: str) -> None:
    """smg-project/smg PR#2132: the prefix trees of removed workers were never freed."""
    turns = 4000 if strategy == "prefixaware" else 1000
    command = [sys.executable, "-m", "tests.routing.engine.churn_process", strategy, str(turns)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    before, *_, after = found["counts"]
    blocks = [counts.pop("allocated blocks") for counts in found["counts"]]
    grown = [later - earlier for earlier, later in pairwise(blocks)]
    assert median(grown) < turns / SPANS / 4, f"less than one block for four workers: {grown}"
    for kind in ("WorkerConnection", "remembered of workers"):  # none to one for each worker
        assert after.pop(kind, 0) <= STANDING
        before.pop(kind, None)
    assert after == before
    assert found["answered"] > found["sent"] / 2
    assert (found["workers"], found["in_flight"]) == (STANDING, 0)
