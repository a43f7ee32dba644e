"""Command line errors."""

from __future__ import annotations


class ConfigError(ValueError):
    """Invalid configuration; the message names the flag, its value and the fix."""
