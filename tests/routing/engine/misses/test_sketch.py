"""Early changes of a prompt and their kinds, derived from hashes alone."""

from __future__ import annotations

import random
from time import perf_counter

import pytest

from routing.engine.misses import sketch
from routing.engine.misses.sketch import MAX_BYTES, PromptSeed, SketchBook

SEED = PromptSeed("m", 0, 0)


def sentences(seed: int, count: int = 30) -> str:
    pick = random.Random(seed)
    return " ".join(f"Say {pick.randbytes(9).hex('-')} that much." for _ in range(count))


RULES = sentences(1)
HEAD = "You are the assistant of a bank.\n"


def test_earlier_prompt_of_the_same_salt_comes_first() -> None:
    book = SketchBook()
    seeds = [SEED, *(PromptSeed("m", salt, 0) for salt in (5, 6, 7))]

    def send(seed: PromptSeed, number: int) -> str | None:
        text = f"{HEAD}Ticket number {number}\n{RULES}".encode()
        change = book.compare(text, seed, 0)
        return None if change is None else change.kind

    assert [send(seed, 1) for seed in seeds] == [None, *[sketch.SALT] * 3]
    for number in range(2, 6):  # in turns, and each of them twice
        for seed in seeds[::-1] if number % 2 else seeds:
            assert send(seed, 10 * number) == sketch.ID
            assert send(seed, 10 * number + 1) == sketch.ID
    assert len(book) == len(seeds)
    assert send(PromptSeed("m", 8, 0), 1) == sketch.SALT


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("Now: 2026-11-22T10:00:01Z\n", "Now: 2026-11-23T11:59:07Z\n", sketch.TIMESTAMP),
        ("The time is 10:02.\n", "The time is 22:40.\n", sketch.TIMESTAMP),
        ("Request 7fa3-19bc-88aa01\n", "Request 0bd1-22ef-71cc99\n", sketch.ID),
        ("Ticket number 481\n", "Ticket number 99207\n", sketch.ID),
        ("Be  polite and short\n", "Be polite and  short\n", sketch.WHITESPACE),
        ("Be polite and short\n", "Be polite and very long\n", sketch.TEXT),
        ("", "An added line of instructions\n", sketch.TEXT),
        ("A removed line of instructions\n", "", sketch.TEXT),
        (sentences(2, 2) + "\n" + sentences(3, 2) + "\n", "", sketch.TEXT),
    ],
)
def test_kind_of_an_early_change(before: str, after: str, kind: str) -> None:
    book = SketchBook()
    old = (HEAD + before + RULES + sentences(7, 3)).encode()
    new = (HEAD + after + RULES + sentences(8, 3)).encode()
    assert book.compare(old, SEED, 0) is None
    change = book.compare(new, SEED, 0)
    assert change is not None
    assert change.kind == kind
    assert change.offset == len(HEAD)
    repeated = len((HEAD + after + RULES).encode())
    assert abs(change.end - repeated) < 200, "the new end is not counted as changed"


def test_reordered_tools_are_an_order() -> None:
    tools = [f'{{"description":"{sentences(n, 3)}","name":"tool{n}"}}' for n in range(4)]
    body = "\x1esystem\x1f" + RULES
    old = "\x1d[" + ",".join(tools) + "]" + body
    new = "\x1d[" + ",".join([tools[1], tools[0], *tools[2:]]) + "]" + body
    book = SketchBook()
    book.compare(old.encode(), SEED, 0)
    change = book.compare(new.encode(), SEED, 0)
    assert change is not None
    assert (change.kind, change.place) == (sketch.ORDER, "tools")


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (PromptSeed("m", 5, 0), sketch.SALT),
        (PromptSeed("adapter", 0, 0), sketch.MODEL),
        (PromptSeed("m", 0, 9), sketch.TEMPLATE),
    ],
)
def test_a_prompt_under_another_salt_model_or_template(seed: PromptSeed, kind: str) -> None:
    book = SketchBook()
    book.compare(RULES.encode(), SEED, 0)
    change = book.compare(RULES.encode(), seed, 0)
    assert change is not None
    assert (change.kind, change.offset, change.end) == (kind, 0, len(RULES))


@pytest.mark.parametrize("number", range(4))  # a digest decides whether a piece is indexed
def test_whole_prompt_of_one_line_under_another_model(number: int) -> None:
    book = SketchBook()
    line = f"{number} river stone cloud engine paper green window " * 12
    book.compare(line.encode(), SEED, 0)
    change = book.compare(line.encode(), PromptSeed("adapter", 0, 0), 0)
    assert change is not None
    assert (change.kind, change.end) == (sketch.MODEL, len(line))
    assert book.compare(f"{line}and more".encode(), PromptSeed("third", 0, 0), 0) is None


def test_new_prompts_are_no_change() -> None:
    book = SketchBook()
    for number in range(40):
        pick = random.Random(number)
        text = "\n".join(pick.randbytes(30).hex() for _ in range(40))
        assert book.compare((HEAD + text).encode(), SEED, 0) is None


def test_part_of_the_prompt_that_changed() -> None:
    def prompt(now: str) -> bytes:
        turns = "\x1esystem\x1f" + HEAD + "\x1euser\x1f" + now + "\n" + RULES
        return turns.encode()

    book = SketchBook()
    book.compare(prompt("at 10:20"), SEED, 0)
    change = book.compare(prompt("at 11:31"), SEED, 0)
    assert change is not None
    assert (change.kind, change.place) == (sketch.TIMESTAMP, "message 2 (user)")


def test_time_and_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [perf_counter()]
    monkeypatch.setattr(sketch, "perf_counter", lambda: now[0])
    book = SketchBook()
    assert book.has_time()
    book._left = -0.05
    assert not book.has_time()
    assert book.skipped == 1
    now[0] += 10
    assert book.has_time(), "the share accrues with time"
    for number in range(sketch.SKETCHES_KEPT + 50):
        book.compare(f"{sentences(number)}".encode(), SEED, 0)
    assert len(book) <= sketch.SKETCHES_KEPT
    assert len(book._anchors) <= sketch.SKETCHES_KEPT * sketch.MAX_PIECES


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", [b"x", b"1", b"a1 ", b"jan", b". ", b"},", b" ", b"1:"])
def test_no_text_makes_a_comparison_long(text: bytes) -> None:
    """Hours if a pattern steps back in it."""
    book = SketchBook()
    for prompt in (text * MAX_BYTES, b"2026-01-01 " + text * MAX_BYTES):
        book.compare(prompt, SEED, 0)
    assert len(book) > 0
