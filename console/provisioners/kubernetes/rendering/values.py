"""Small shapes of Kubernetes' own: quantities, merged mappings, dollars that stay dollars. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_DECIMAL = ("", "k", "M", "G", "T", "P")
_DOLLAR = re.compile(r"\$(?:\(([A-Za-z_][A-Za-z0-9_.-]*)\))?")


def memory(size: int) -> str:
    """As the API server would write it, so that what is found equals what was wanted."""
    for base, units in ((1024, _BINARY), (1000, _DECIMAL)):
        power = 0
        while size and size % base ** (power + 1) == 0 and power + 1 < len(units):
            power += 1
        if power:
            return f"{size // base**power}{units[power]}"
    return str(size)


def cpu(cores: float) -> str:
    milli = math.ceil(cores * 1000)
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def limits(cpus: float, memory_bytes: int) -> dict[str, Any]:
    """As `resources` has them; 0 is none of its own."""
    named = {
        **({"cpu": cpu(cpus)} if cpus else {}),
        **({"memory": memory(memory_bytes)} if memory_bytes else {}),
    }
    return {"limits": named} if named else {}


def seconds(value: float) -> int:
    """Whole ones, at least one."""
    return max(1, math.ceil(value))


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` wins; mappings are merged, lists are replaced."""
    out = dict(under)
    for key, value in over.items():
        before = out.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        out[key] = merged(before, value) if both and before is not None else value
    return out


def by_name(
    under: Iterable[Mapping[str, Any]], over: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Entries of `over` take the place of those with their name, new ones follow."""
    out = {str(entry["name"]): dict(entry) for entry in under}
    out |= {str(entry.get("name", "")): dict(entry) for entry in over}
    return list(out.values())


def literal(text: str, variables: Collection[str] = ()) -> str:
    """The text as the kubelet must find it to hand on just this text. A reference `$(NAME)` stays
    one only where NAME is among `variables`: words written for Kubernetes in the first place."""

    def kept(match: re.Match[str]) -> str:
        whole = match.group(0)
        return whole if match.group(1) in variables else "$" + whole

    return _DOLLAR.sub(kept, text)
