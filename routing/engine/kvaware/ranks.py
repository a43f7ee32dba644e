"""Selection of a data-parallel rank behind one worker address.

Each rank has its own cache, and vLLM balances by load only. A request with known blocks names its
rank (`x-data-parallel-rank`): the least prompt work including the queue. No rank is named with a
single rank, a caller's own choice, or ranks not numbered 0, 1, 2 ... (vLLM counts otherwise).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from routing.engine.kv.holders import Rank
from routing.engine.kv.index import Index
from routing.engine.kv.match import Match, match_ranks
from routing.engine.kv.progress import ExpectedBlocks, ExpectedPrompt

HEADER = b"x-data-parallel-rank"


class Seat:
    __slots__ = ("guess", "guessed", "line", "match", "work", "worker")

    def __init__(
        self, worker: str, match: Match, guessed: bool, work: int, guess: ExpectedPrompt
    ) -> None:
        self.worker = worker
        self.match = match  # tokens the rank need not compute
        self.guessed = guessed  # includes expected blocks
        self.work = work
        self.guess = guess
        self.line = rank_header(match.rank)


class Ranks:
    def __init__(self, index: Index) -> None:
        self.pending = ExpectedBlocks()
        self._index = index
        self._work: dict[str, list[int]] = {}  # in-flight tokens of each rank
        self._turn = 0

    def choose(self, worker: str, chains: Mapping[int, Sequence[int]], tokens: int) -> Seat | None:
        """Return a seat, counted until `leave`; None: vLLM chooses."""
        if not self._index.several_ranks:
            return None
        ranks = ordered_ranks(self._index, worker)
        count = len(ranks)
        if count < 2:
            return None
        held = match_ranks(self._index, chains, ranks)
        reported = {_rank_key(worker, number): holding.gpu for number, holding in held.items()}
        coming = self.pending.matched(chains, reported)
        work = self._work.get(worker)
        if work is None or len(work) != count:
            work = self._work[worker] = [0] * count
        self._turn += 1

        def cost(number: int) -> tuple[int, int]:
            token_count = max(held[number].tokens, coming.get(_rank_key(worker, number), 0))
            return work[number] + tokens - token_count, (number - self._turn) % count

        best = min(range(count), key=cost)
        match, on_its_way = held[best], coming.get(_rank_key(worker, best), 0)
        if guessed := on_its_way > match.tokens:
            match = Match(on_its_way, 0, 0, best)
        new = max(tokens - match.tokens, 1)
        work[best] += new
        name = _rank_key(worker, best)
        guess = self.pending.sent(name, chains, reported[name])
        return Seat(worker, match, guessed, new, guess)

    def forget(self, worker: str) -> None:
        """Drop the expectations of a lost worker."""
        for number in range(len(self._work.get(worker, ()))):
            self.pending.forget(_rank_key(worker, number))

    def leave(self, seat: Seat) -> None:
        work = self._work.get(seat.worker)
        rank = seat.match.rank
        if work is not None and rank < len(work):
            work[rank] = max(work[rank] - seat.work, 0)
            if not any(work):
                del self._work[seat.worker]


def ordered_ranks(index: Index, worker: str) -> list[Rank]:
    """Return a worker's ranks in order; empty if their numbers may differ in vLLM."""
    ranks = sorted(index.ranks_of(worker), key=lambda rank: rank.number)
    return ranks if [rank.number for rank in ranks] == list(range(len(ranks))) else []


def rank_header(rank: int) -> bytes:
    return b"%b: %d\r\n" % (HEADER, rank)


def _rank_key(worker: str, rank: int) -> str:
    return f"{worker}\n{rank}"
