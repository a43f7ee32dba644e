"""`python -m console.launcher up|down|status|prepare|compile-engines|test-tools`."""

from __future__ import annotations

import argparse
import sys

from console.launcher import alertmanager, compiled_engines, lifecycle, tools
from console.launcher.layout import default_layout
from console.launcher.progress import StepFailed, print_line, step


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m console.launcher", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("up", help="set up and start everything")
    start.add_argument("--detach", action="store_true", help="return once the demo is Ready")
    verbs.add_parser("down", help="stop everything")
    verbs.add_parser("status", help="show what is running")
    verbs.add_parser("prepare", help="the vLLM environment and the demo model")
    verbs.add_parser(
        "compile-engines", help="router and cache node as machine code, in var/engines"
    )
    verbs.add_parser("test-tools", help="install the programs the tests need")
    options = parser.parse_args()
    try:
        return _dispatch(options)
    except StepFailed as error:
        print_line(f"\nmake {options.verb}: {error}")
        if error.output:
            print_line(error.output)
        return 1
    except KeyboardInterrupt:
        return 130


def _dispatch(options: argparse.Namespace) -> int:
    layout = default_layout()
    if options.verb == "up":
        return lifecycle.up(layout, detach=options.detach)
    if options.verb == "down":
        return lifecycle.down(layout)
    if options.verb == "status":
        return lifecycle.status(layout)
    if options.verb == "prepare":
        if not lifecycle.prepare(layout):
            print_line("WORKERS=simulated: nothing to prepare.")
        return 0
    layout.prepare()
    if options.verb == "compile-engines":
        compiled_engines.compile_copy(layout)
        return 0
    with step("Compiler, browser, servers and cache clients for the tests"):
        tools.ensure_compiler()
        tools.ensure_chromium()
        tools.ensure_headless_shell(layout)
        tools.ensure_redis_tools()
        tools.ensure_cache_clients()
        if tools.ensure_prometheus(layout) is None:
            raise StepFailed("The tests need Prometheus: apt-get install prometheus")
        if alertmanager.ensure_server(layout) is None:
            remedy = "apt-get install prometheus-alertmanager"
            raise StepFailed(f"The tests need Alertmanager: {remedy}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
