"""Kubernetes value formats: quantities, merged mappings, escaped dollars. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_DECIMAL = ("", "k", "M", "G", "T", "P")
_DOLLAR = re.compile(r"\$(?:\(([A-Za-z_][A-Za-z0-9_.-]*)\))?")


def memory_quantity(size: int) -> str:
    """Format like the API server, so that observed and applied values are equal."""
    for base, units in ((1024, _BINARY), (1000, _DECIMAL)):
        power = 0
        while size and size % base ** (power + 1) == 0 and power + 1 < len(units):
            power += 1
        if power:
            return f"{size // base**power}{units[power]}"
    return str(size)


def cpu_quantity(cores: float) -> str:
    milli = math.ceil(cores * 1000)
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def resource_list(cpus: float, memory_bytes: int) -> dict[str, Any]:
    """Return `resources` entries; 0 means none."""
    named = {
        **({"cpu": cpu_quantity(cpus)} if cpus else {}),
        **({"memory": memory_quantity(memory_bytes)} if memory_bytes else {}),
    }
    return {"limits": named} if named else {}


def whole_seconds(value: float) -> int:
    """Round to whole seconds, at least one."""
    return max(1, math.ceil(value))


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings recursively; `over` wins, lists are replaced."""
    out = dict(under)
    for key, value in over.items():
        before = out.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        out[key] = merge(before, value) if both and before is not None else value
    return out


def merge_by_name(
    under: Iterable[Mapping[str, Any]], over: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Replace entries of the same name by those of `over` and append new ones."""
    out = {str(entry["name"]): dict(entry) for entry in under}
    out |= {str(entry.get("name", "")): dict(entry) for entry in over}
    return list(out.values())


def escape_dollars(text: str, variables: Collection[str] = ()) -> str:
    """Escape text for the kubelet so that it passes unchanged. `$(NAME)` remains a reference only
    for NAME in `variables`.
    """

    def kept(match: re.Match[str]) -> str:
        whole = match.group(0)
        return whole if match.group(1) in variables else "$" + whole

    return _DOLLAR.sub(kept, text)
