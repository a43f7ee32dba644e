"""The contents of the files that a spec names as secrets, read when they are needed.

Promises that a content is only returned, never kept or logged, and that an error names the file and
who wants it. Must not know where contents go.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from console.provisioners.base import TemporaryError


def read_secrets(named: Mapping[str, str]) -> dict[str, str]:
    """By the names of `named`, which maps them to paths. A trailing line end is not part of it."""
    found = {}
    for name, path in named.items():
        try:
            found[name] = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise TemporaryError(
                "SecretMissing", f"The secret for {name} cannot be read from {path}."
            ) from error
    return found
