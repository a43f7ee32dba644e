"""Disk tier after a kill at any time: values are the last stored and never dropped ones."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from tests.support.cachenode import ROOT
from tests.support.l2disk import Disk
from tests.support.l2killed import CAPACITY, KEYS, NAMESPACES, key_of, value_of

ROUNDS = 12


class Checker:
    """What may be there: for each key the versions it may have; none of them is always allowed."""

    def __init__(self) -> None:
        self.allowed: dict[int, set[int]] = {number: set() for number in range(KEYS)}
        self.begun: list[str] = []
        self.version = 0
        self.ended = 0

    def hear(self, line: str) -> None:
        sign, what, target, version = line.split()
        self.version = int(version)
        if sign == "+":
            self.begun = [what, target, version]
            if what == "put":  # from now on the old value or the new one
                self.allowed[int(target)].add(int(version))
            return
        self.begun = []
        self.ended += 1
        if what == "put":
            self.allowed[int(target)] = {int(version)}
        elif what == "drop":
            self.allowed[int(target)] = set()
        elif what == "clear":
            for number in range(int(target), KEYS, len(NAMESPACES)):
                self.allowed[number] = set()

    def check(self, disk: Disk) -> int:
        """How many values are there; each is one which may be."""
        count = 0
        for number, versions in self.allowed.items():
            value = disk.get(key_of(number))
            if value is not None:
                assert value in [value_of(number, version) for version in versions], number
                count += 1
            self.allowed[number] = {v for v in versions if value == value_of(number, v)}
        return count


def killed(folder: Path, seed: int, checker: Checker) -> None:
    argv = [sys.executable, "-m", "tests.support.l2killed"]
    argv += [str(folder), str(seed), str(checker.version)]
    lines = random.Random(seed).randrange(1, 1500)
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(lines):
            checker.hear(process.stdout.readline().decode())
        process.kill()
        for line in process.stdout.read().decode().splitlines():  # printed before it was killed
            checker.hear(line)


def test_killed_node_returns_no_wrong_or_dropped_value(tmp_path: Path) -> None:
    checker, found = Checker(), 0
    for seed in range(ROUNDS):
        killed(tmp_path / "disk", seed, checker)
        disk = Disk(tmp_path / "disk", CAPACITY)
        found += checker.check(disk)
        disk.close()
    assert checker.ended > 1000
    assert found > ROUNDS * 2, "too little was there to be checked"
