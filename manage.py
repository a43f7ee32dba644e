#!/usr/bin/env python
"""Runs Django's commands for the console; holds no logic of its own."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.core.management import execute_from_command_line

    from console.launcher import runtime_environment

    runtime_environment.adopt_environment(os.environ)
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
