"""What this room says on the Settings page: how many machines have a price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.catalogue.selectors import entries
from console.web.shell.cards import Card, Fact


def facts(_viewer: Any) -> Sequence[Fact]:
    every = entries()
    priced = sum(one.instance.price_usd_hour is not None for one in every)
    return (
        Fact("Instance types", str(len(every))),
        Fact("With a price", str(priced)),
        Fact("Changed or added here", str(sum(one.origin != "built-in" for one in every))),
    )


CARD = Card(
    "prices",
    "Prices",
    "What costs and savings are counted with.",
    30,
    facts,
    "catalogue:list",
    "Instance types",
)
