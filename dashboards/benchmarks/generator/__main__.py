"""Load generator process.

    python -m dashboards.benchmarks.generator --url http://127.0.0.1:9000 --model NAME [--rate 2]
    python -m dashboards.benchmarks.generator --folder FOLDER [--listen HOST:PORT]

The first form is interactive: it prints progress and the result. The second is for the console:
task and results are files in FOLDER. With `--listen` it serves health checks there and stays after
the end until terminated; restarted in the same folder (by its supervisor after a crash), it sends
nothing and reports the run as lost. TERM and INT end a run at once. Runs without Django.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from console.core.errors import Refused
from dashboards.benchmarks.generator import files, traces
from dashboards.benchmarks.generator.job import (
    APIS,
    FIELDS,
    MODES,
    WARM,
    WORKLOADS,
    TraceRow,
    parse_job,
)
from dashboards.benchmarks.generator.player import Player, Publish
from dashboards.benchmarks.generator.report_text import line, report

OK, FAILED, USAGE, ABORTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.folder:
        return _run(_managed(args.folder, args.listen))
    try:
        task = _task(args)
    except (Refused, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    return _run(_for_a_person(task, args.json, args.samples))


def _run(work: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:  # uvloop is optional: slower without it
        return asyncio.run(work)
    return uvloop.run(work)


async def _managed(folder: Path, listen: str) -> int:
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    player: Player | None = None

    def end() -> None:
        gone.set()
        if player is not None:
            player.abort()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    server = await _healthy(listen) if listen else None
    before = files.read_progress(folder)
    if not files.lock_folder(folder):
        pass  # another process runs this task
    elif before is None:
        player = Player(files.Task.read(folder), lambda _seen: None)
        if gone.is_set():
            player.abort()
        await _played(player, folder)
    elif before.get("state") == files.RUNNING:
        files.write_progress(folder, {**before, "state": files.LOST})
    if server is not None:
        await gone.wait()
        server.close()
    return OK


async def _played(player: Player, folder: Path) -> None:
    """Write samples before the final state, so that a reader of the state finds them."""

    def publish(seen: dict[str, Any]) -> None:
        if seen["state"] != files.RUNNING:
            files.write_samples(folder, player.samples)
        files.write_progress(folder, seen)

    player.publish = abort_on_error(player, publish)
    await player.play()


def abort_on_error(player: Player, publish: Publish) -> Publish:
    """Abort the run when progress cannot be written (folder deleted or disk full)."""

    def write_progress(seen: dict[str, Any]) -> None:
        try:
            publish(seen)
        except OSError as error:
            sys.stderr.write(f"cannot write the progress: {error}\n")
            player.abort()

    return write_progress


async def _healthy(listen: str) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n")
            await writer.drain()
        writer.close()

    host, _, port = listen.rpartition(":")
    return await asyncio.start_server(answer, host.strip("[]"), int(port))


async def _for_a_person(task: files.Task, as_json: bool, samples: Path | None) -> int:
    loop = asyncio.get_running_loop()

    def publish(seen: dict[str, Any]) -> None:
        if seen["state"] == files.RUNNING:
            sys.stderr.write(f"{line(seen)}\n")
            sys.stderr.flush()

    player = Player(task, publish)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, player.abort)
    last = await player.play()
    if samples is not None:
        samples.write_bytes(files.pack(player.samples))
    text = json.dumps(last, indent=2) if as_json else report(last)
    sys.stdout.write(f"{text}\n")
    if last["state"] == files.ABORTED:
        return ABORTED
    return FAILED if last["stopped_by"] == "errors" or not last["result"]["requests"] else OK


def _task(given: argparse.Namespace) -> files.Task:
    fields = {name: getattr(given, name) for name in ("workload", "mode", "api", "nonce")}
    for field in FIELDS:
        if (value := getattr(given, field.name)) is not None:
            fields[field.name] = value
    rows: tuple[TraceRow, ...] = ()
    if given.workload == "trace":
        rows = traces.parse(given.trace.read_text()) if given.trace else traces.sample()
    key = given.api_key_file.read_text().strip() if given.api_key_file else ""
    named = (pair.partition("=") for pair in given.worker)
    workers = {name: url for name, _, url in named}
    return files.Task(parse_job(fields, rows), given.url, given.model, key, workers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dashboards.benchmarks.generator",
        description="Send load to an endpoint and measure its responses.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--folder", type=Path, help="used by the console: folder of the task and result files")
    add("--listen", default="", metavar="HOST:PORT", help="with --folder: port for health checks")
    add("--url", default="http://127.0.0.1:9000", help="URL of a router or a worker")
    add("--model", default="", help="served model name")
    add(
        "--api-key-file",
        type=Path,
        help="file with the key, which is not accepted on the command line",
    )
    add(
        "--worker",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="worker whose /metrics are read",
    )
    add("--workload", choices=list(WORKLOADS), default="chat")
    add("--mode", choices=list(MODES), default="rate")
    add("--api", choices=list(APIS), default="chat")
    add("--nonce", default=WARM, help="prompts with different nonces share no cache entries")
    add("--trace", type=Path, help="Mooncake format; default: a built-in sample")
    add("--json", action="store_true", help="print the report as JSON")
    add("--samples", type=Path, help="file for all requests (gzipped JSON)")
    for field in FIELDS:
        unit = f" {field.unit}" if field.unit else ""
        text = f"{field.label} ({field.default:g}{unit}). {field.help}"
        add(f"--{field.name.replace('_', '-')}", type=float, help=text.replace("%", "%%"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
