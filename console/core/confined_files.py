"""Read user-named files from one folder reserved by an administrator.

The path is opened component by component below the folder without following links in between, so
the file read is the file checked, even during renames. Links inside the folder may refer to files
inside it, as in mounted Kubernetes Secrets.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAX_BYTES = 65_536


class FileRefused(ValueError):
    """The file is forbidden or unreadable. `outside`: permanently, until the name changes."""

    def __init__(self, message: str, *, outside: bool = False) -> None:
        super().__init__(message)
        self.outside = outside


def read_text(path: str, folder: Path) -> str:
    """Return the content of a short UTF-8 file inside `folder`, or raise `FileRefused`."""
    descriptor = _open(path, folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileRefused(f"{path} is not a regular file")
        if status.st_size > MAX_BYTES:
            raise FileRefused(f"{path} is larger than {MAX_BYTES} bytes")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            content = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    try:
        return content[:MAX_BYTES].decode("utf-8")
    except UnicodeDecodeError:
        raise FileRefused(f"{path} is not UTF-8 text") from None


def refusal(path: str, folder: Path) -> FileRefused | None:
    """Return the error `read_text` would raise now, None if none."""
    try:
        read_text(path, folder)
    except FileRefused as refused:
        return refused
    return None


def _open(path: str, folder: Path) -> int:
    try:
        root = os.path.realpath(folder)
        inside = Path(os.path.realpath(path)).relative_to(root)
    except (ValueError, OSError):  # also a NUL, or an overlong path
        raise FileRefused(f"{path} is not inside {folder}", outside=True) from None
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = -1
    try:
        descriptor = os.open(root, flags | os.O_DIRECTORY)
        for index, name in enumerate(inside.parts, 1):
            # Do not block on pipes or terminals.
            more = os.O_NONBLOCK if index == len(inside.parts) else os.O_DIRECTORY
            below = os.open(name, flags | more, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise FileRefused(f"{path} cannot be read ({error.strerror})") from None
    return descriptor
