"""What this machine can spare for a cache tier; asked anew each time."""

from __future__ import annotations

import psutil
from django.conf import settings

from cachetier.tier.spec import Room
from console.clusters import selectors as clusters

# A tier beside workers on one machine must leave them room.
_SHARE_OF_MEMORY = 0.75
_SHARE_OF_DISK = 0.8


def room() -> Room:
    var = settings.EMBERLINE.var
    var.mkdir(parents=True, exist_ok=True)
    return Room(
        memory_bytes=int(psutil.virtual_memory().total * _SHARE_OF_MEMORY),
        disk_bytes=int(psutil.disk_usage(str(var)).free * _SHARE_OF_DISK),
        clusters=frozenset(clusters.names()),
    )
