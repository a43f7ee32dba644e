"""Sessions of agents as JSON lines, closed loop (docs/traces.md describes the format). Pure.

A session is a list of requests `[in, out, think_s, api_s, keep, from]`: a prompt has `in // 64`
whole blocks, of which the first `keep` are those of the previous request (or of number `from`).
`tool` and `system` are the tokens that sessions share at the start of their first prompts where
both are equal.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import orjson

from dashboards.insight.traces.dynamo import end_of
from dashboards.insight.traces.files import shared_blocks
from dashboards.insight.traces.joined import JoinedRequests
from dashboards.insight.traces.trace import (
    MOST_TOKENS,
    Trace,
    TraceError,
    TraceRequest,
    parse_rows,
    read_number,
)

BLOCK_TOKENS = 64
_SPREAD_S = 2.0  # between the starts of sessions that have none
_MOST_S = 1e9
_MOST_LEVELS = 8
_MOST_BLOCKS = 40_000_000  # of all prompts together
_MOST_NEW_BLOCKS = 5_000_000  # that no earlier prompt has
_FIELDS = ("in", "out", "think_s", "api_s", "keep", "from")


class _Reader:
    def __init__(self) -> None:
        self.requests = JoinedRequests()
        self.numbers: list[int] = []
        self._blocks = 0
        self._shared_heads: dict[tuple[int, int], int] = {}  # numbers, by tool and system
        self._ids: dict[Hashable, int] = {}
        self._fresh = 0

    def session(self, agent: Any, line: int, name: str, start: float, place: str = "") -> float:
        """Add the requests of an agent and its subagents; return when the last answer ended."""
        if not isinstance(agent, dict) or not isinstance(agent.get("requests"), list):
            raise TraceError(f"Line {line}: {place}requests is no list. Give the agent's requests.")
        if place.count(".subagents") > _MOST_LEVELS:
            raise TraceError(f"Line {line}: more than {_MOST_LEVELS} levels of subagents.")
        made: list[tuple[int, int]] = []  # numbers and whole blocks
        end, before = start, start
        for index, row in enumerate(agent["requests"]):
            where = f"{place}requests[{index}]"
            if isinstance(row, dict):
                end = max(end, self._subagents(row, line, f"{name}/{index}", before, where))
                continue
            size, answer, think, took, keep, origin = _read_row(row, line, where)
            if keep and not 0 <= origin + len(made) < 2 * len(made):
                raise TraceError(f"Line {line}: {where} keeps blocks of no earlier request.")
            whole = size // BLOCK_TOKENS
            head, known_blocks = made[origin] if keep else (-1, 0)
            if not 0 <= keep <= min(known_blocks, whole) and keep:
                raise TraceError(
                    f"Line {line}: {where} has keep {keep}, more than the prompts' whole blocks."
                )
            self._blocks += whole
            if self._blocks > _MOST_BLOCKS:
                raise TraceError(
                    f"Line {line}: the prompts together have more than {_MOST_BLOCKS} blocks. "
                    "Import fewer sessions at once."
                )
            if not made:
                head, keep = self._shared(agent, line, whole)
            own = self._new_blocks(-(-size // BLOCK_TOKENS) - keep, line)
            request = TraceRequest(end + think, size, answer, (), name, duration_s=took)
            made.append((self.requests.append(request, head, keep, own), whole))
            self.numbers.append(made[-1][0])
            end = before = end_of(request)
        return end

    def _subagents(
        self, row: dict[str, Any], line: int, name: str, start: float, place: str
    ) -> float:
        children = row.get("subagents")
        if not isinstance(children, list):
            raise TraceError(f"Line {line}: {place} has no list subagents.")
        end = start
        for number, child in enumerate(children):
            where = f"{place}.subagents[{number}]."
            if not isinstance(child, dict):
                raise TraceError(f"Line {line}: {where[:-1]} is no JSON object.")
            delay = read_number(child, "delay_s", line, _MOST_S, where)
            session = self.session(child, line, f"{name}.{number}", start + delay, where)
            end = max(end, session) if child["requests"] else end
        return end

    def _new_blocks(self, count: int, line: int) -> range:
        first, self._fresh = self._fresh, self._fresh + count
        if self._fresh > _MOST_NEW_BLOCKS:
            raise TraceError(
                f"Line {line}: the prompts have more than {_MOST_NEW_BLOCKS} different blocks. "
                "Import fewer sessions at once."
            )
        return range(first, self._fresh)

    def _shared(self, agent: dict[str, Any], line: int, whole: int) -> tuple[int, int]:
        """Return the number of a request with the head of a first prompt (tools, then system
        prompt), and its blocks.
        """
        tool, system = (int(read_number(agent, name, line)) for name in ("tool", "system"))
        number = self._shared_heads.get((tool, system))
        if number is None:
            tools = tool // BLOCK_TOKENS
            both = (tool + system) // BLOCK_TOKENS
            ids = [self._id((tool, index), line) for index in range(tools)]
            ids += [self._id((tool, system, index), line) for index in range(tools, both)]
            request = TraceRequest(0.0, 0, 0, ())
            number = self._shared_heads[tool, system] = self.requests.append(request, -1, 0, ids)
        return number, min(whole, self.requests.length(number))

    def _id(self, name: Hashable, line: int) -> int:
        block_id = self._ids.get(name)
        if block_id is None:
            block_id = self._ids[name] = self._new_blocks(1, line)[0]
        return block_id


def _read_row(row: Any, line: int, where: str) -> tuple[int, int, float, float | None, int, int]:
    if not isinstance(row, list) or not 5 <= len(row) <= len(_FIELDS):
        raise TraceError(
            f"Line {line}: {where} is no list [in, out, think_s, api_s, keep] or with from."
        )
    named = dict(zip(_FIELDS, row, strict=False))
    values = {}
    for name in _FIELDS[: len(row)]:
        most = _MOST_S if name.endswith("_s") else MOST_TOKENS
        if name != "api_s" or named[name] is not None:
            values[name] = read_number(named, name, line, most, f"{where}.")
    return (
        int(values["in"]),
        int(values["out"]),
        values["think_s"],
        values.get("api_s"),
        int(values["keep"]),
        int(values["from"]) if "from" in values else -1,
    )


def read_agentic(lines: Iterable[str | bytes]) -> Trace:
    """Read sessions. A session starts at `start_s`, or two seconds after the one before; a request
    arrives `think_s` after the answer before it, of which `api_s` or a nominal time is the
    duration. Subagents become sessions of their own. Raise TraceError.
    """
    reader = _Reader()
    start = 0.0
    for line, row in parse_rows(lines):
        name = row.get("id", f"session-{line}")
        if not isinstance(name, str) or not 0 < len(name) <= 200:
            raise TraceError(f"Line {line}: id is no text of up to 200 characters.")
        if "start_s" in row:
            start = read_number(row, "start_s", line, _MOST_S)
        reader.session(row, line, name, start)
        start += _SPREAD_S
    reader.requests.order_by_arrival(reader.numbers)
    return Trace(BLOCK_TOKENS, reader.requests)


def write_agentic(trace: Trace) -> Iterator[bytes]:
    """Yield JSON lines, sessions in order of their start (`start_s`). Requests without a session
    belong to the one whose prompt they continue. Raise TraceError for other blocks.
    """
    if trace.block_tokens != BLOCK_TOKENS:
        raise TraceError(
            f"The trace has blocks of {trace.block_tokens} tokens; the format has blocks of "
            f"{BLOCK_TOKENS}."
        )
    sessions = _sessions(trace)
    sizes = _shared_sizes([trace.requests[numbers[0]] for numbers in sessions.values()])
    for (name, numbers), (tool, system) in zip(sessions.items(), sizes, strict=True):
        requests = [trace.requests[number] for number in numbers]
        row = {
            "id": name,
            "tool": tool,
            "system": system,
            "start_s": round(requests[0].arrived_s, 3),
            "requests": _rows(requests),
        }
        yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _whole(request: TraceRequest) -> tuple[int, ...]:
    return request.blocks[: request.prompt_tokens // BLOCK_TOKENS]


def _sessions(trace: Trace) -> dict[str, list[int]]:
    """Return the requests' numbers by session: all prompts together may take much memory."""
    sessions: dict[str, list[int]] = {}
    ends: dict[int, str] = {}  # sessions by the last whole block of a prompt
    for number, request in enumerate(trace.requests):
        blocks = _whole(request)
        name = request.session
        if not name:
            name = next((ends[block] for block in reversed(blocks) if block in ends), "")
            name = name or f"request-{len(sessions) + 1}"
            if blocks:
                ends[blocks[-1]] = name
        sessions.setdefault(name, []).append(number)
    return sessions


def _shared_sizes(firsts: list[TraceRequest]) -> list[tuple[int, int]]:
    """Return `tool` and `system` of each session: equal values stand for equal heads. `tool` is
    what all sessions with the same first block share, `system` the rest that at least two share.
    Where all values of a length are used, a head counts as not shared.
    """
    users = Counter(block for first in firsts for block in _whole(first))
    tools: dict[int, int] = {}
    systems: dict[int, int] = {}
    used: set[Hashable] = set()
    shared_sizes = []
    for first in firsts:
        blocks = _whole(first)
        most = users[blocks[0]] if blocks else 0
        level = _while(blocks, users, most) if most > 1 else 0
        deepest = _while(blocks, users, 2) if most > 1 else 0
        if not level:
            shared_sizes.append((0, 0))
            continue
        tool = tools.get(blocks[0])
        if tool is None:
            tool = tools[blocks[0]] = _free(used, 0, level * BLOCK_TOKENS)
        system = 0
        if tool and deepest > level:
            name = blocks[deepest - 1]
            if name not in systems:
                systems[name] = _free(used, tool, deepest * BLOCK_TOKENS)
            system = max(systems[name] - tool, 0)
        shared_sizes.append((tool, system))
    return shared_sizes


def _while(blocks: tuple[int, ...], users: Counter[int], least: int) -> int:
    return sum(1 for _ in itertools.takewhile(lambda block: users[block] >= least, blocks))


def _free(used: set[Hashable], within: int, tokens: int) -> int:
    """Return a number of tokens with this number of blocks that nothing else has; 0 for none."""
    for more in range(BLOCK_TOKENS):
        if (within, tokens + more) not in used:
            used.add((within, tokens + more))
            return tokens + more
    return 0


def _rows(requests: list[TraceRequest]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    owners: dict[int, int] = {}  # first request with a block
    prompts: list[tuple[int, ...]] = []
    end = round(requests[0].arrived_s, 3)  # as `read_agentic` adds up the rounded times
    for number, request in enumerate(requests):
        blocks = _whole(request)
        keep = shared_blocks(prompts[-1], blocks) if prompts else 0
        origin = -1
        if keep < len(blocks) and blocks[keep] in owners:
            other = owners[blocks[keep]]
            longer = shared_blocks(prompts[other], blocks)
            if longer > keep:
                keep, origin = longer, other
        think = round(max(request.arrived_s - end, 0.0), 3)
        took = None if request.duration_s is None else round(request.duration_s, 3)
        row = [request.prompt_tokens, request.output_tokens, think, took, keep]
        rows.append([*row, origin] if origin >= 0 else row)
        for block in blocks[keep:]:
            owners.setdefault(block, number)
        prompts.append(blocks)
        end = end_of(replace(request, arrived_s=end + think, duration_s=took))
    return rows
