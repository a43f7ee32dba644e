"""Command line doctor for any router: `python -m routing.doctor --admin URL`.

Exit codes: 0 no problems, 1 warnings, 2 errors or invalid arguments.
"""

from __future__ import annotations

import argparse
import json
import sys

from routing.doctor import examination
from routing.doctor.examination import examine
from routing.doctor.inspection import Limits, NamedWorker


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m routing.doctor", description=__doc__)
    parser.add_argument(
        "--admin",
        action="append",
        required=True,
        metavar="URL",
        help="a router's admin port, repeatable: all routers of the endpoint",
    )
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="worker the router should have registered, repeatable (all registered)",
    )
    parser.add_argument(
        "--timeout", type=float, default=Limits().all_s, help="total timeout in seconds"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    args = parser.parse_args(arguments)
    workers = [_named(parser, word) for word in args.worker] or None
    urls = [url.rstrip("/") for url in args.admin]
    report = examine("", urls, workers, Limits(all_s=args.timeout))
    text = (
        json.dumps(report.data(), indent=2)
        if args.output == "json"
        else examination.format_examination(report)
    )
    sys.stdout.write(text + "\n")
    return report.exit_code


def _named(parser: argparse.ArgumentParser, word: str) -> NamedWorker:
    name, _, url = word.partition("=")
    if not name or "://" not in url:
        parser.error(f"--worker {word}: write NAME=URL, such as w0=http://127.0.0.1:8001")
    return NamedWorker(name, url)


if __name__ == "__main__":
    sys.exit(main())
