"""Load the configuration and detect changes of its files.

An incomplete, invalid or missing file never replaces the running configuration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from routing.engine.config import Config, ConfigError, parse


def _decode_file(path: Path, content: bytes) -> Any:
    if path.suffix in (".yaml", ".yml"):
        try:
            from console.core import yaml_reader  # lazy: a JSON file needs no YAML parser
        except ImportError:
            raise ConfigError(
                "(file)", path.name, "YAML needs the package pyyaml", "Install it or write JSON."
            ) from None
        try:
            return yaml_reader.read_document(content)
        except yaml_reader.YamlError as error:
            raise ConfigError(
                "(file)", path.name, f"is not valid YAML: {error}", "Correct its syntax."
            ) from None
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise ConfigError(
            "(file)", path.name, f"is not valid JSON (line {error.lineno})", "Correct its syntax."
        ) from None


def load_config(path: Path | None) -> Config:
    assert path is not None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            "(file)", str(path), f"cannot be read: {error.strerror}", "Check the path."
        ) from None
    return parse(_decode_file(path, content), path.resolve().parent)


def _file_stamps(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


class ConfigSource:
    """One configuration file (or the flags, read by `read`) and its referenced files."""

    def __init__(self, path: Path | None, read: Callable[[], Config] | None = None) -> None:
        self._main = () if path is None else (path,)
        self._read = read if read is not None else functools.partial(load_config, path)
        # Stamped before reading, so that a concurrent write is detected at the next poll.
        self._stamps = {path: _file_stamps(path) for path in self._main}
        self.config = self._read()
        self._follow(self.config.files)

    def _follow(self, files: tuple[Path, ...]) -> None:
        for path in files:
            self._stamps.setdefault(path, _file_stamps(path))
        for path in set(self._stamps) - {*self._main, *files}:
            del self._stamps[path]

    def poll(self, force: bool = False) -> Config | ConfigError | None:
        """Return the new Config, the error that rejects it, or None if nothing changed."""
        stamps = {path: _file_stamps(path) for path in self._stamps}
        if stamps == self._stamps and not force:
            return None
        self._stamps = stamps
        try:
            config = self._read()
        except ConfigError as error:
            if error.file is not None:
                self._stamps.setdefault(error.file, _file_stamps(error.file))
            return error
        self.config = config
        self._follow(config.files)
        return config
