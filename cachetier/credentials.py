"""The one password of the tiers this console runs: made on first need, named by its file."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from console.environment import own_secret


def password_file() -> Path:
    """Its path; the file exists (mode 0600) when this returns."""
    path: Path = settings.EMBERLINE.secrets / "l2_password"
    own_secret(path, 32)
    return path
