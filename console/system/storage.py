"""The disk of EMBERLINE_VAR on every page and in the console's metrics."""

from __future__ import annotations

from django.conf import settings

from console.accounts.permissions import Somebody
from console.core import disk
from console.processkit.metrics import Registry
from console.web.banners import Banner

PREFIX = "emberline_console_disk_"


def look() -> disk.Disk | None:
    """None where the file system does not answer."""
    try:
        return disk.look(settings.EMBERLINE.var)
    except OSError:
        return None


def banner(viewer: Somebody) -> Banner | None:
    del viewer  # it concerns everybody
    found = look()
    if found is None:
        return Banner("disk", "danger", "Disk does not answer", "See System.")
    if found.state is disk.DiskState.OK:
        return None
    full = found.state is disk.DiskState.FULL
    title = "Disk full" if full else "Disk almost full"
    lost = "Changes fail and metrics have a gap; endpoints serve. " if full else ""
    level = "danger" if full else "warning"
    return Banner("disk", level, title, f"{found.text}. {lost}See System.")


def expose(registry: Registry) -> None:
    found = look()
    if found is None:
        return
    path = str(found.path)
    for name, text, value in (
        ("free_bytes", "Free space of the file system of EMBERLINE_VAR.", found.free_bytes),
        ("size_bytes", "Size of that file system.", found.total_bytes),
        ("inodes_free_ratio", "Free share of its inodes.", found.inodes_free_share),
        ("read_only", "1 while it is mounted read-only.", int(found.read_only)),
    ):
        registry.gauge(PREFIX + name, text, path=path).set(value)
