"""Compare the compiled router with the interpreted one on raw requests and lying streams.

    make compiled
    python -m tests.fuzz.forms --compiled var/compiled [--inputs N] [--seed S]

Each form reads the same mutated inputs in a process of its own (tests/fuzz/wires.py: real protocol
objects, no sockets, a frozen clock) and writes what it sent to client and worker. Any difference,
or an exception of one form only, is printed with its input. Machine code is as strict as the
declared types: that is where the forms may differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.seeds import SEEDS, WORDS

STEER_BYTES = 5  # control data before the bytes of a seed
_VOLATILE = re.compile(
    rb"boot-[0-9a-f]{16}|-[0-9a-f]{12}\b|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT"
)
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def inputs(seed: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield requests and the worker's answers, of which one is mutated."""
    chance = random.Random(seed)
    requests, answers = (
        [seed[STEER_BYTES:] for seed in SEEDS[name]] for name in ("requests", "answers")
    )
    bodies = [seed[1:] for seed in SEEDS["bodies"]]
    for _ in range(count):
        kind = chance.randrange(3)
        if kind == 0:
            yield _mutated(chance, chance.choice(requests)), _OK
        elif kind == 1:
            body = _mutated(chance, chance.choice(bodies))
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"
            yield head % len(body) + body, _OK
        else:
            yield chance.choice(requests), _mutated(chance, chance.choice(answers))


def _mutated(chance: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(made))
        match chance.randrange(5):
            case 0:
                made[at:at] = chance.choice(WORDS)
            case 1:
                made[at : at + chance.randint(1, 8)] = b""
            case 2:
                made[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                made[at:at] = made[at : at + chance.randint(1, 40)] * chance.randint(1, 3)
            case _:
                made[at:at] = b"[" * chance.choice((1, 30, 300, 1100))
    return bytes(made[:3000])


def _outcome(request: bytes, answer: bytes) -> str:
    """Return what client and worker received, or the exception, as one line."""
    from tests.fuzz.wires import RouterHarness

    harness = RouterHarness()
    answered: set[int] = set()

    def serve() -> None:
        harness.turn()
        for index, connection in enumerate(list(harness.pool.connections)):
            if index not in answered and b"\r\n\r\n" in connection.transport.written:
                answered.add(index)
                connection.data_received(answer)

    try:
        harness.feed([request], serve)
        for _ in range(3):
            serve()
        sent = [bytes(one.transport.written) for one in harness.pool.connections]
        parts = [bytes(harness.out.written), *sent]
        ended = [harness.out.closing, harness.out.aborted, harness.out.paused]
        text = [_VOLATILE.sub(b"-", part).decode("latin-1") for part in parts]
        return json.dumps([text, ended, harness.worker.in_flight])
    except Exception as error:
        return f"exception {type(error).__name__}"
    finally:
        harness.end()


def _start(folder: Path, seed: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.fuzz.forms", "--here"]
    return subprocess.Popen(
        [*command, "--seed", str(seed), "--inputs", str(count)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.forms", description=__doc__)
    parser.add_argument("--compiled", type=Path, help="copy made by `make compiled`")
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.here:
        from routing.engine.observe.metrics import is_compiled

        print(is_compiled())
        for request, answer in inputs(flags.seed, flags.inputs):
            print(_outcome(request, answer))
        return 0
    if flags.compiled is None or not list(flags.compiled.glob("routing/engine/*.so")):
        parser.error("--compiled names no compiled copy: make compiled")
    folders = (Path.cwd(), flags.compiled.resolve())
    plain, native = (_start(folder, flags.seed, flags.inputs) for folder in folders)
    assert plain.stdout is not None
    assert native.stdout is not None
    if (plain.stdout.readline(), native.stdout.readline()) != ("False\n", "True\n"):
        parser.error("the copy is not compiled, or this checkout is")
    differing = compared = exceptions = 0
    pairs = zip(plain.stdout, native.stdout, strict=True)
    for (request, answer), (one, other) in zip(
        inputs(flags.seed, flags.inputs), pairs, strict=True
    ):
        compared += 1
        exceptions += one.startswith("exception")
        if one != other:
            differing += 1
            if differing <= 5:
                print(
                    f"request {request!r}\nanswer {answer!r}\n  interpreted {one}  compiled {other}"
                )
    print(f"{compared} inputs: {differing} differ; {exceptions} exceptions in the interpreted form")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
