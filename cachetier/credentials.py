"""Files which workers are told of by name: the password, made on first need, and the nodes."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from console.core.environment import own_secret


def password_file() -> Path:
    """Its path; the file exists (mode 0600) when this returns, unless it was given to us."""
    path: Path = settings.EMBERLINE.l2_password_file
    own_secret(path, 32)
    return path


def node_list_file(tier: str) -> Path:
    """Where workers read which nodes a tier has (see `node_list`)."""
    path: Path = settings.EMBERLINE.var / "cache" / f"{tier}.nodes"
    return path
