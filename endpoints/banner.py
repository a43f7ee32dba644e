"""The banner which stands on every page while simulated workers answer requests."""

from __future__ import annotations

from console.accounts.permissions import Somebody
from console.web.banners import Banner
from endpoints import selectors


def simulated_banner(viewer: Somebody) -> Banner | None:
    names = selectors.simulated_names(viewer)
    if not names:
        return None
    shown = ", ".join(names[:5]) + (" and more" if len(names) > 5 else "")
    return Banner(
        key="simulated",
        level="warning",
        title="Simulated workers",
        text=f"No model computes behind {shown}: texts, times and hit rates are made up.",
    )
