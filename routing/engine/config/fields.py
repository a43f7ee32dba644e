"""Read typed fields from a mapping; reject invalid values and unknown fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LABEL = re.compile(r"[\x21-\x7e]{1,128}")
TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}")


class ConfigError(Exception):
    """Invalid configuration: names the field, the value, the reason and the fix."""

    file: Path | None = None  # unreadable file: retry when it appears

    def __init__(self, field: str, value: object, message: str, remedy: str) -> None:
        super().__init__(f"{field}: {message} (value: {value!r}). {remedy}")
        self.field = field
        self.value = value
        self.message = message
        self.remedy = remedy


class Fields:
    """Typed access to the fields of a mapping; unread fields are rejected by name."""

    def __init__(self, data: Any, prefix: str = "") -> None:
        if not isinstance(data, Mapping):
            raise ConfigError(prefix or "(whole)", data, "must be an object", "Give key: value.")
        self._left = dict(data)
        self._prefix = prefix

    def name(self, key: str) -> str:
        return f"{self._prefix}.{key}" if self._prefix else key

    def take(self, key: str, default: Any) -> Any:
        return self._left.pop(key, default)

    def text(self, key: str, default: str, pattern: re.Pattern[str] | None = None) -> str:
        value = self.take(key, default)
        if not isinstance(value, str):
            raise ConfigError(self.name(key), value, "must be text", "Put it in quotes.")
        if value != default and pattern is not None and not pattern.fullmatch(value):
            raise ConfigError(
                self.name(key),
                value,
                "has invalid characters or an invalid length",
                "Use visible ASCII characters without spaces.",
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise ConfigError(self.name(key), value, "must be true or false", "Use true or false.")
        return value

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(
                self.name(key),
                value,
                f"must be a whole number from {low} to {high}",
                f"The default is {default}.",
            )
        return value

    def whole_or_none(self, key: str, low: int, high: int) -> int | None:
        if self._left.get(key) is None:
            self._left.pop(key, None)
            return None
        return self.whole(key, low, low, high)

    def number(self, key: str, default: float, low: float, high: float) -> float:
        value = self.take(key, default)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not low <= value <= high:
            raise ConfigError(
                self.name(key),
                value,
                f"must be a number from {low} to {high}",
                f"The default is {default}.",
            )
        return float(value)

    def done(self) -> None:
        for key, value in self._left.items():
            name = self.name(str(key)) or "(empty)"
            raise ConfigError(name, value, "is not known", "Remove or rename it.")


def section(fields: Fields, key: str) -> Fields:
    return Fields(fields.take(key, {}), key)


def read_file(name: str, value: str, base_dir: Path) -> tuple[Path, bytes]:
    path = base_dir / value
    try:
        return path, path.read_bytes()
    except OSError as error:
        refusal = ConfigError(
            name, value, f"cannot be read: {error.strerror}", f"Put the file at {path}."
        )
        refusal.file = path
        raise refusal from None
