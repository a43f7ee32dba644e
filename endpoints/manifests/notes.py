"""What somebody should know of an object that is accepted: dead fields, traps, what only AWS does.

Must not know Django.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mark(StrEnum):
    """`KEPT`: stays in the manifest, and nothing is done for it here."""

    WARNING = "warning"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Note:
    """`code` is stable; `path` is that of the object."""

    path: str
    code: str
    message: str
    remedy: str = ""
    mark: Mark = Mark.WARNING
