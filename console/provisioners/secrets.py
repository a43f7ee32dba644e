"""The contents of the files that a spec names as secrets, read when they are needed.

A content is only returned, never kept or logged; an error names the file and who wants it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from console.core import confined_files
from console.core.confined_files import FileRefused
from console.provisioners.base import PermanentError, TemporaryError


def read_secrets(
    named: Mapping[str, str], within: Mapping[str, str] | None = None
) -> dict[str, str]:
    """By the names of `named`, which maps them to paths; those in `within` only from that folder.
    A trailing line end is not part of a content."""
    found = {}
    for name, path in named.items():
        folder = (within or {}).get(name, "")
        try:
            text = confined_files.read_text(path, Path(folder)) if folder else _text(path)
            found[name] = text.rstrip("\r\n")
        except FileRefused as refused:
            kind = PermanentError if refused.outside else TemporaryError
            raise kind(
                "SecretMissing", f"The secret for {name} cannot be read: {refused}."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise TemporaryError(
                "SecretMissing", f"The secret for {name} cannot be read from {path}."
            ) from error
    return found


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
