"""The `emberline` script: `emberline endpoint list` is `manage.py emberline endpoint list`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(["emberline", "emberline", *sys.argv[1:]])
        sys.stdout.flush()
    except BrokenPipeError:  # `emberline endpoint logs demo | head`: its reader has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell says of a program which SIGPIPE ended


if __name__ == "__main__":
    main()
