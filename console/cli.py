"""The `emberline` script: `emberline endpoint list` is `manage.py emberline endpoint list`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(["emberline", "emberline", *sys.argv[1:]])


if __name__ == "__main__":
    main()
