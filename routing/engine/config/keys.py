"""Parse the key file.

Error messages never repeat values that may be keys.
"""

from __future__ import annotations

from typing import Any

import msgspec

from routing.engine.config.schema import Key, KeyLimits
from routing.engine.config.validation import ConfigError, Section, convert


class _KeyFile(Section, frozen=True):
    keys: list[Key]


def parse_keys(data: Any) -> tuple[Key, ...]:
    keys: dict[str, Key] = {}
    limits: dict[str, KeyLimits] = {}
    file: _KeyFile = convert(data, _KeyFile, "api_keys_file")
    for index, entry in enumerate(file.keys):
        name = f"api_keys_file.keys[{index}]"
        key = msgspec.structs.replace(entry, sha256=entry.sha256.lower())
        if key.sha256 in keys:
            raise ConfigError(f"{name}.id", key.id, "repeats a key", "Remove one of them.")
        if limits.setdefault(key.id, key.limits) != key.limits:
            raise ConfigError(
                f"{name}.limits",
                key.id,
                "differ from those of another key with this id",
                "Use is counted by id: write the same limits, or give each key its own id.",
            )
        keys[key.sha256] = key
    return tuple(keys.values())
