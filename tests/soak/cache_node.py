"""Soak test of a cache node under mixed load, with a checker for every byte returned.

    python -m tests.soak.cache_node --minutes 30 [--memory 256MiB] [--disk 1GiB] [--policy arc]

Clients set, get, delete and expire values of a hundred bytes to five megabytes, disconnect midway
and leave replies unread, while the node is killed, stopped, restarted and resized. Values returned
must equal the last ones written; deleted or expired values must not return, not even from disk
after a kill. Memory must stay within capacity plus a constant, open files must not grow, and after
the final flush usage must be zero. Exits with 1 at the first violation and keeps the node's log.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.rig import busy, free_ports, machine
from cachetier.engine.config import MIB, parse_size
from cachetier.wire import arena
from tests.soak import values
from tests.soak.node import Node
from tests.soak.worker import Worker
from tests.support.waiting import until

# Memory beyond stored values: Python, connection buffers, the disk index, pending disk writes and
# allocator overhead.
_BESIDES = 200 * MIB


@dataclass(frozen=True, slots=True)
class Plan:
    seconds: float
    memory: int
    disk: int = 0
    shm: str = ""
    policy: str = ""
    workers: int = 4
    seed: int = 1
    max_bytes: int = values.MAX_BYTES
    kill_every_s: float = 20.0


@dataclass(slots=True)
class Finding:
    wrong: list[str] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    compared_bytes: int = 0
    kills: int = 0
    resizes: int = 0
    resident: list[tuple[float, int, int]] = field(default_factory=list)  # time, resident, used
    open_files: int = 0
    evicted: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        rates = ", ".join(f"{name} {count:,}" for name, count in sorted(self.operations.items()))
        text = [
            f"operations: {rates}",
            f"compared: {self.compared_bytes / 1e9:.2f} GB, killed or stopped {self.kills} times, "
            f"resized {self.resizes} times",
            "left: " + ", ".join(f"{name} {count:,}" for name, count in self.evicted.items()),
            f"open files at most {self.open_files}",
            "memory by tenth of the time (resident less used, MiB, at most): "
            + " ".join(f"{more / MIB:.0f}" for more in self.tenths()),
        ]
        return text + [f"WRONG: {one}" for one in self.wrong]

    def tenths(self) -> list[int]:
        if not self.resident:
            return []
        first, last = self.resident[0][0], self.resident[-1][0]
        width = (last - first) / 10 or 1.0
        most = [0] * 10
        for at, resident, used in self.resident:
            place = min(int((at - first) / width), 9)
            most[place] = max(most[place], resident - used)
        return most


class Soak:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._chance = random.Random(plan.seed)
        ports = free_ports(1)[0]
        flags = ["--memory", str(plan.memory)]
        if plan.disk:
            flags += ["--disk", f"{folder / 'disk'}:{plan.disk}"]
        if plan.shm:
            flags += ["--shm", plan.shm]
        if plan.policy:
            flags += ["--policy", plan.policy]
        self.node = Node(folder, (ports, ports + 1), flags)
        self._workers = [
            Worker(number, plan.workers, self.node.port, plan.seed, plan.max_bytes, bool(plan.shm))
            for number in range(plan.workers)
        ]
        self._capacity = plan.memory
        self.found = Finding()

    def run(self) -> Finding:
        for worker in self._workers:
            worker.start()
        end = time.monotonic() + self._plan.seconds
        next_kill = self._soon()
        try:
            while time.monotonic() < end and not self._troubled():
                time.sleep(0.25)  # sampling interval
                self._check_memory()
                if self._chance.random() < 0.05:
                    self._resize()
                if time.monotonic() > next_kill:
                    self._restart()
                    next_kill = self._soon()
            self._finish()
        except OSError as exc:  # admin port failed
            code = self.node.ended_with()
            self._print(f"the node ended by itself ({code})" if code is not None else f"{exc!r}")
        finally:
            for worker in self._workers:
                worker.stop.set()
            self.node.process.kill()
            self.node.process.wait()
            if self._plan.shm:  # a killed node leaves it for the next one
                (Path(arena.FOLDER) / self._plan.shm).unlink(missing_ok=True)
        return self.found

    def _troubled(self) -> bool:
        return any(worker.wrong for worker in self._workers) or bool(self.found.wrong)

    def _soon(self) -> float:
        return time.monotonic() + self._chance.uniform(0.5, 1.5) * self._plan.kill_every_s

    def _check_memory(self) -> None:
        stats = self.node.stats()
        used = stats["memory"]["used_bytes"]
        resident = self.node.resident_bytes()
        self.found.resident.append((time.monotonic(), resident, used))
        self.found.open_files = max(self.found.open_files, self.node.open_files())
        if resident > max(used, self._capacity) + _BESIDES:
            self._print(f"{resident} bytes resident, {used} used, {self._capacity} allowed")
        if used > max(stats["memory"]["capacity_bytes"], self._plan.memory):
            self._print(f"{used} bytes used of {stats['memory']['capacity_bytes']}")
        if stats["integrity_failures"]:
            self._print(f"{stats['integrity_failures']} integrity failures")

    def _print(self, text: str) -> None:
        self.found.wrong.append(text)

    def _resize(self) -> None:
        wanted = int(self._plan.memory * self._chance.uniform(0.4, 1.0))
        status = self.node.order(f"/resize?memory={wanted}")
        if status == 200:
            self._capacity = max(wanted, self._capacity if self._held() else 0)
            self.found.resizes += 1
        elif status != 409:
            self._print(f"POST /resize was answered {status}")

    def _held(self) -> bool:
        return self.node.stats()["memory"]["held_bytes"] > 0

    def _restart(self) -> None:
        self._take_counts()
        number = signal.SIGKILL if self._chance.random() < 0.7 else signal.SIGTERM
        self.node.stop(number)
        self._capacity = self._plan.memory
        self.node.start()
        self.found.kills += 1

    def _take_counts(self) -> None:
        self.found.evicted.update(self.node.stats()["evicted"])

    def _finish(self) -> None:
        """Disconnect everyone and flush: usage must be zero."""
        for worker in self._workers:
            worker.stop.set()
        for worker in self._workers:
            worker.join(60)
            if worker.is_alive():
                self._print(f"{worker.name} hangs")
            if worker.wrong:
                self._print(worker.wrong)
            self.found.operations.update(worker.done)
            self.found.compared_bytes += worker.compared_bytes
        self._take_counts()
        if self.node.order("/flush") != 200:
            self._print("POST /flush was refused")
        try:
            until(lambda: not self._left())
        except AssertionError:
            self._print(f"after dropping everything: {self._left()}")

    def _left(self) -> dict[str, int]:
        memory = self.node.stats()["memory"]
        wanted = ("used_bytes", "entries", "held_bytes", "receiving_bytes")
        return {name: memory[name] for name in wanted if memory[name]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--memory", default="256MiB")
    parser.add_argument("--disk", default="", help="size of a disk tier, for example 1GiB")
    parser.add_argument("--shm", action="store_true", help="share the arena, and read by leases")
    parser.add_argument("--policy", default="")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    plan = Plan(
        seconds=flags.minutes * 60,
        memory=parse_size(flags.memory),
        disk=parse_size(flags.disk) if flags.disk else 0,
        shm=f"emberline-soak-{os.getpid()}" if flags.shm else "",
        policy=flags.policy,
        workers=flags.workers,
        seed=flags.seed,
    )
    print(machine(), busy(), sep="\n")
    folder = Path(tempfile.mkdtemp(prefix="emberline-soak-"))
    found = Soak(plan, folder).run()
    print("\n".join(found.lines()))
    if found.wrong:
        print(f"the node's log is {folder / 'node.log'}")
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
