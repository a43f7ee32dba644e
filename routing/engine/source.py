"""Reads the configuration file, and says when it or a file it names has changed.

Promises that a half-written, invalid or vanished file never replaces what runs: `Source.poll`
returns a whole new Config or the reason why not. Must not know what a Config is used for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from routing.engine.config import Config, ConfigError, parse


def _decode(path: Path, content: bytes) -> Any:
    if path.suffix in (".yaml", ".yml"):
        try:
            import yaml  # only here: a JSON file needs no YAML reader
        except ImportError:
            raise ConfigError(
                "(file)", path.name, "YAML needs the package pyyaml", "Install it or write JSON."
            ) from None
        try:
            return yaml.safe_load(content)
        except yaml.YAMLError:
            raise ConfigError(
                "(file)", path.name, "is not valid YAML", "Correct its syntax."
            ) from None
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise ConfigError(
            "(file)", path.name, f"is not valid JSON (line {error.lineno})", "Correct its syntax."
        ) from None


def load(path: Path) -> Config:
    """Read and check the file; raises ConfigError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            "(file)", str(path), f"cannot be read: {error.strerror}", "Check the path."
        ) from None
    return parse(_decode(path, content), path.resolve().parent)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


class Source:
    """One configuration file and the files it names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Stamped before reading: a write in between is seen as a change at the next poll.
        self._stamps = {path: _stamp(path)}
        self.config = load(path)
        self._follow(self.config)

    def _follow(self, config: Config) -> None:
        for path in config.files:
            self._stamps.setdefault(path, _stamp(path))
        for path in set(self._stamps) - {self.path, *config.files}:
            del self._stamps[path]

    def poll(self, force: bool = False) -> Config | ConfigError | None:
        """The new Config, why it is refused, or None when nothing has changed."""
        stamps = {path: _stamp(path) for path in self._stamps}
        if stamps == self._stamps and not force:
            return None
        self._stamps = stamps
        try:
            config = load(self.path)
        except ConfigError as error:
            return error
        self.config = config
        self._follow(config)
        return config
