"""Why a command line is not taken."""

from __future__ import annotations


class ConfigError(ValueError):
    """Says which flag, what it held, and what to write instead."""
