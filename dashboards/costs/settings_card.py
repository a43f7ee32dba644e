"""Settings card of cost measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.web.shell.cards import Card, Fact
from dashboards.calibration_switches import read_switches


def facts(_viewer: Any) -> Sequence[Fact]:
    switches = read_switches()
    own = sum(value != switches.default for value in switches.of.values())
    return (
        Fact("Automatic calibration", "on" if switches.default else "off"),
        Fact("Endpoints that differ", str(own)),
    )


CARD = Card(
    "calibration",
    "Calibration",
    "Prefill time per prompt token, the base of cache savings in USD.",
    35,
    facts,
    "dashboards:calibrations",
    "Calibration",
)
