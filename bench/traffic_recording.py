"""CPU per recorded request and bytes per hour: `python -m bench.traffic_recording`.

Queueing is on the router's loop, encoding in a thread; reading is in the console. Process time.
"""

from __future__ import annotations

import base64
import hashlib
import platform
import random
import time
from array import array

from routing.engine.config import RecordingConfig
from routing.engine.observe.decisions import Decision
from routing.engine.observe.traffic import PieceBuffer, TrafficEncoder
from routing.traces.records import read_streams

HOUR = 500_000
_CASES = (("4 KB prompts in 64 groups", 16, 2, 64, 4000), ("100k-token agents", 1600, 16, 40, 1000))


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8, key=b"k" * 32).hexdigest()


def decisions(
    blocks: int, fresh: int, sessions: int, count: int
) -> list[tuple[Decision, array[int]]]:
    """Return requests of sessions that grow by `fresh` blocks."""
    chance = random.Random(1)
    chains = [array("Q", (chance.getrandbits(64) for _ in range(blocks))) for _ in range(sessions)]
    found = []
    for number in range(count):
        chain = chains[number % sessions]
        chain.extend(chance.getrandbits(64) for _ in range(fresh))
        made = Decision(f"d{number}", HOUR * 3600 + number / 50, "prefixaware")
        made.status = 200
        made.session = b"s%d" % (number % sessions)
        made.prompt_tokens, made.completion_tokens = len(chain) * 64 + 9, 200
        made.cached_tokens, made.chosen = len(chain) * 60, f"worker-{number % 8}"
        made.ttft_s, made.duration_s = chance.random(), 1 + chance.random()
        found.append((made, array("Q", chain)))
    return found


def main() -> None:
    print(f"{platform.machine()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}")
    for name, blocks, fresh, sessions, count in _CASES:
        items = decisions(blocks, fresh, sessions, count)
        pieces = PieceBuffer()
        encoder = TrafficEncoder(pieces, RecordingConfig(True), 256, digest)
        encoder.stop()
        encoder.join()
        began = time.process_time()
        for item in items[:2000]:
            encoder.add(item)
        queued = (time.process_time() - began) / min(count, 2000)
        began = time.process_time()
        encoder.work([*items, (None, ())])
        encoded = (time.process_time() - began) / count
        stored = [base64.b64decode(piece.data) for piece in pieces.after(0)]
        began = time.process_time()
        read = sum(len(one.blocks) for one in read_streams([stored], 0, 1e12).requests)
        print(
            f"{name}: queue {queued * 1e6:.1f} us, encode {encoded * 1e6:.0f} us, "
            f"{sum(map(len, stored)) / count:.0f} bytes, "
            f"read {(time.process_time() - began) / count * 1e6:.0f} us ({read / count:.0f} blocks)"
        )


if __name__ == "__main__":
    main()
