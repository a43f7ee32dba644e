"""Step-by-step model of one vLLM worker on an external clock.

Continuous batching as vLLM schedules it: each step includes every decoding request and, within the
remaining token budget, prompts in order of arrival, split at the budget. A prompt is matched
against the cache when first scheduled; its blocks are visible to the next prompt from then on; the
last token is always computed. Prompts wait for free memory. Blocks found in L1 or L2 are loaded
beside the steps, one prompt after the other, and computed blocks are written to both. Simplified: a
request allocates memory for its whole output at the start, so that nothing is preempted; output is
cached under names that are never requested.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence

from cachetier.simulation.block_cache import NOTHING, BlockCache
from cachetier.simulation.tier_cache import TierCache
from dashboards.insight.whatif.simulation.hardware import Hardware, TierModel

NEVER = math.inf

Change = tuple[int, int | None]  # as in cachetier.simulation.block_cache.Journal


class Job:
    """Request inside a worker; times are of the simulation clock."""

    __slots__ = (
        "answer_chain",
        "answer_tokens",
        "arrived",
        "cached",
        "chain",
        "computed",
        "done_at",
        "filled",
        "first_at",
        "held",
        "l1_tokens",
        "l2_tokens",
        "prompt_tokens",
        "reported",
        "session",
        "strategy",
        "tag",
    )

    def __init__(
        self,
        tag: int,
        chain: Sequence[int],
        prompt_tokens: int,
        answer_tokens: int,
        session: int = -1,
        reported: int = -1,
        strategy: str = "",
        answer_chain: Sequence[int] = (),
    ) -> None:
        self.tag = tag
        self.strategy = strategy  # that placed it when it was recorded
        self.reported = reported  # cached tokens as measured; -1: unknown
        self.session = session
        self.chain = chain  # names of its whole blocks; unnamed ones never match
        self.answer_chain = answer_chain  # names of those that its answer fills, as far as known
        self.prompt_tokens = prompt_tokens
        self.answer_tokens = answer_tokens
        self.arrived = 0.0
        self.cached = 0  # tokens not computed: on the device, in L1 or in L2
        self.l1_tokens = 0
        self.l2_tokens = 0
        self.computed = 0  # tokens cached or computed
        self.filled = 0  # whole blocks among them
        self.held: list[int] = []  # shareable blocks
        self.first_at = 0.0
        self.done_at = 0.0


class FleetWorker:
    """Model of one worker in virtual time. `submit` jobs, then `advance` to a time no later than
    `next_at`; returns each finished job once.
    """

    def __init__(
        self, hardware: Hardware, now: float = 0.0, shared: TierCache[int] | None = None
    ) -> None:
        """`shared`: the workers' common L2."""
        self.hardware = hardware
        self.cache: BlockCache[int] = BlockCache(hardware.blocks)
        self.l1 = make_tier(hardware.l1, hardware)
        self.l2 = shared
        self.waiting: deque[Job] = deque()
        self.prefilling: list[Job] = []  # started, not fully computed
        self.next_at = NEVER
        self.busy_s = 0.0  # time with a prompt in computation or waiting
        self.cached_tokens = 0
        self.prompt_tokens = 0
        # Cache changes of finished steps; enabled by `follow`, whose caller clears it.
        self.news: list[Change] = []
        self.published: Callable[[float], None] | None = None  # called with the time of news
        self.l1_news: list[Change] | None = None  # the same of L1 and L2, as they happen
        self.l2_news: list[Change] | None = None
        self._step_changes: list[Change] = []  # of the current step
        self._unasked = NOTHING  # last name given to a block of output
        self._answering: list[tuple[int, int, Job]] = []  # by final step
        self._order = 0
        self._step = 0
        self._started = now  # start of the current step or steps
        self._steps = 0  # steps in progress: several only without prompts
        self._each_s = 0.0
        self._ending: list[Job] = []  # prompts completed at the end of the step
        self._loading: list[tuple[float, int, Job]] = []  # from L1 or L2, by time of readiness
        self._loader_free_at = 0.0

    # -- for the oracle

    @property
    def answering(self) -> int:
        return len(self._answering)

    def until_step(self, now: float) -> float:
        """Return the time until a prompt arriving now can be scheduled."""
        if self.next_at is NEVER:
            return 0.0
        if self._steps <= 1:
            return self.next_at - now
        return self._each_s - (now - self._started) % self._each_s

    def until_room(self, job: Job) -> float:
        """Return how long the job would wait for memory, in steps without prompts."""
        lack = sum(map(self._blocks, (*self.waiting, job)))
        lack -= self.cache.room
        lack -= self.cache.match(job.chain)
        if lack <= 0:
            return 0.0
        each_s = self.hardware.step_s + self.hardware.decode_s * len(self._answering)
        for end, _, running in sorted(self._answering):
            lack -= self._blocks(running)
            if lack <= 0:
                return (end - self._step) * each_s
        return 0.0

    def _blocks(self, job: Job) -> int:
        """Return the memory of a request in blocks."""
        return -(-(job.prompt_tokens + job.answer_tokens) // self.hardware.block_tokens)

    # -- simulation

    def follow(self) -> None:
        """Record cache changes from now on."""
        self.cache.journal = self._step_changes
        self.l1_news = []
        self.l2_news = []

    def submit(self, job: Job, now: float) -> None:
        job.arrived = now
        self.waiting.append(job)
        if self.next_at is NEVER or not self._steps:
            self._started = now
            self._begin()
        elif self._steps > 1:  # decode only: the new prompt joins after this step
            steps = max(1, math.ceil((now - self._started) / self._each_s))
            if steps < self._steps:
                self._steps = steps
                self.next_at = self._started + steps * self._each_s

    def advance(self, now: float) -> tuple[list[Job], list[Job]]:
        """End the current step if due by `now`; return jobs with a first token and finished
        jobs."""
        if self.next_at > now:
            return [], []
        end = self.next_at
        self._step += self._steps
        if self._step_changes:  # vLLM publishes changes at the end of a step
            # The model does not announce blocks of output without a name.
            self.news += [change for change in self._step_changes if change[0] >= 0]
            self._step_changes.clear()
            if self.published is not None:
                self.published(end)
        if self.prefilling or self.waiting:
            self.busy_s += self._steps * self._each_s
        first, self._ending = self._ending, []
        done: list[Job] = []
        for job in first:
            job.first_at = end
            self.prefilling.remove(job)
            if job.answer_tokens > 1:
                self._order += 1
                ends = self._step + job.answer_tokens - 1
                heapq.heappush(self._answering, (ends, self._order, job))
            else:
                done.append(job)
        answering = self._answering
        while answering and answering[0][0] <= self._step:
            done.append(heapq.heappop(answering)[2])
        for job in done:
            job.done_at = end
            self._release(job)
        self._started = end
        self._begin()
        return first, done

    def _release(self, job: Job) -> None:
        whole = (job.prompt_tokens + job.answer_tokens) // self.hardware.block_tokens
        answered = whole - len(job.chain)
        names = self._answer(job, job.answer_chain[:answered]) if answered > 0 else []
        unnamed = max(answered - len(job.answer_chain), 0)
        names += range(self._unasked - unnamed, self._unasked)
        self._unasked -= unnamed
        names.reverse()  # the last is evicted first
        self.cache.free(job.held, self._blocks(job) - len(names) - len(job.held), names)

    def _answer(self, job: Job, named: Sequence[int]) -> list[int]:
        """Announce and store the blocks that an answer filled; return those that are new."""
        before = job.chain[-1] if job.chain else NOTHING
        fresh = []
        for block in named:
            if block not in self.cache:
                fresh.append(block)
                if self.cache.journal is not None:
                    self.cache.journal.append((block, before))
            if self.l1 is not None:
                self.l1.store(block, before, self.l1_news)
            if self.l2 is not None:
                self.l2.store(block, before, self.l2_news)
            before = block
        return fresh

    # -- one step

    def _begin(self) -> None:
        hardware = self.hardware
        while self._loading and self._loading[0][0] <= self._started:
            self._loaded(heapq.heappop(self._loading)[2])
        tokens, positions = self._schedule(hardware.step_tokens - len(self._answering))
        answers = len(self._answering)
        if tokens:
            seconds = hardware.step_s + hardware.decode_s * answers
            seconds += hardware.prefill_s * tokens + hardware.context_s * positions
            self._steps = 1
        elif answers:
            seconds = hardware.step_s + hardware.decode_s * answers
            self._steps = self._answering[0][0] - self._step
            if self._loading:  # a loaded prompt joins after this step
                left = (self._loading[0][0] - self._started) / seconds
                self._steps = min(self._steps, max(1, math.ceil(left)))
        elif self._loading:
            self._steps, self._each_s = 0, 0.0
            self.next_at = self._loading[0][0]
            return
        else:
            self.next_at = NEVER
            return
        self._each_s = seconds
        self.next_at = self._started + self._steps * seconds

    def _schedule(self, budget: int) -> tuple[int, float]:
        """Return prompt tokens of the next step and the sum of their positions."""
        tokens = 0
        positions = 0.0
        for job in self.prefilling:
            count = min(budget - tokens, job.prompt_tokens - job.computed)
            positions += self._compute(job, count)
            tokens += count
        waiting = self.waiting
        running = len(self._answering) + len(self.prefilling) + len(self._loading)
        while waiting and tokens < budget and running < self.hardware.step_answers:
            job = waiting[0]
            if not self._start(job):
                break
            waiting.popleft()
            running += 1
            if job.cached > job.computed:
                self._load(job)
                continue
            self.prefilling.append(job)
            count = min(budget - tokens, job.prompt_tokens - job.computed)
            positions += self._compute(job, count)
            tokens += count
        return tokens, positions

    def _start(self, job: Job) -> bool:
        size = self.hardware.block_tokens
        matched = matched_blocks(self.cache, job.chain, job.prompt_tokens, size)
        if not self.cache.take(job.chain, matched, self._blocks(job) - matched):
            return False
        job.held = list(job.chain[:matched])
        job.filled = matched
        job.cached = job.computed = matched * size
        if self.l1 is not None or self.l2 is not None:
            self._match_tiers(job, matched)
        if matched and matched * size == job.cached < job.reported < job.cached + 2 * size:
            # Engines cache smaller blocks: the prompt agreed a little further. Its blocks were
            # rounded down twice, to the router's blocks of text and to the model's.
            job.cached = job.computed = min(job.reported, job.prompt_tokens - 1)
        self.cached_tokens += job.cached
        self.prompt_tokens += job.prompt_tokens
        return True

    def _match_tiers(self, job: Job, matched: int) -> None:
        """Count the blocks that follow in L1 or L2."""
        size = self.hardware.block_tokens
        for tier in (self.l1, self.l2):
            if tier is not None:
                tier.touch(job.chain)
        for block in job.chain[matched : (job.prompt_tokens - 1) // size]:
            if self.l1 is not None and block in self.l1:
                job.l1_tokens += size
            elif self.l2 is not None and block in self.l2:
                job.l2_tokens += size
            else:
                break
        job.cached += job.l1_tokens + job.l2_tokens

    def _load(self, job: Job) -> None:
        seconds = 0.0
        tiers = self.hardware.l1, self.hardware.l2
        for tier, tokens in zip(tiers, (job.l1_tokens, job.l2_tokens), strict=True):
            if tier is not None and tokens:
                seconds += tier.latency_s + tier.load_s * tokens
        ready = max(self._started, self._loader_free_at) + seconds
        self._loader_free_at = ready
        self._order += 1
        heapq.heappush(self._loading, (ready, self._order, job))

    def _loaded(self, job: Job) -> None:
        """Put loaded blocks on the device, those of L2 in L1 too."""
        job.computed = job.cached
        self._fill(job, job.cached // self.hardware.block_tokens)
        self.prefilling.append(job)

    def _fill(self, job: Job, whole: int) -> None:
        while job.filled < whole:
            block = job.chain[job.filled]
            before = job.chain[job.filled - 1] if job.filled else NOTHING
            job.filled += 1
            if self.cache.fill(block, before):
                job.held.append(block)
            if self.l1 is not None:
                self.l1.store(block, before, self.l1_news)
            if self.l2 is not None:
                self.l2.store(block, before, self.l2_news)

    def _compute(self, job: Job, count: int) -> float:
        positions = count * (job.computed + count / 2)
        job.computed += count
        self._fill(job, min(job.computed // self.hardware.block_tokens, len(job.chain)))
        if job.computed == job.prompt_tokens:
            self._ending.append(job)
        return positions


def make_tier(tier: TierModel | None, hardware: Hardware) -> TierCache[int] | None:
    return TierCache(tier.tokens // hardware.block_tokens, tier.policy) if tier else None


def matched_blocks(
    cache: BlockCache[int], chain: Sequence[int], prompt_tokens: int, block_tokens: int
) -> int:
    """Return the cached blocks of a prompt, never including the last token's block."""
    return min(cache.match(chain), (prompt_tokens - 1) // block_tokens)
