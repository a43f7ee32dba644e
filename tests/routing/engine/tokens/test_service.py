"""Tokenizing service: immediate, deferred or failed results, and time spent on the loop."""

from __future__ import annotations

import asyncio
import json
import threading
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from routing.engine.fleet.probe_request import ProbeError
from routing.engine.tokens import comparison, outcomes, remote, requests, service
from routing.engine.tokens.outcomes import NoTokens
from routing.engine.tokens.requests import ServerDefaults
from routing.engine.tokens.segments import TokenSequence
from routing.engine.tokens.service import TokenOutcome, TokensConfig, TokenService, TokenTicket
from routing.engine.tokens.tokenizer import LocalTokenizer, LocalTokens, ModelFiles
from tests.routing.engine.tokens import tokenizers_zoo as zoo
from tests.routing.engine.tokens.questions import golden, template

CHAT = b"/v1/chat/completions"
TEXT = b"/v1/completions"
LONG = "All work and no play makes Jack a dull boy. " * 200
HI = [{"role": "user", "content": "Hi"}]
LONG_CHAT = {"messages": [{"role": "user", "content": LONG}]}


def local(name: str = "gpt2", chat_template: str = "smollm2", **settings: Any) -> LocalTokens:
    tokenizer = LocalTokenizer(json.loads(zoo.definition(name)), {**zoo.settings(), **settings})
    templates = {"default": template(chat_template)} if chat_template else {}
    return LocalTokens(ModelFiles(tokenizer, templates), ServerDefaults())


class Rig:
    def __init__(self, used: TokenService) -> None:
        self.service = used
        self.done: list[TokenOutcome] = []

    def submit(
        self, path: bytes, body: dict[str, Any], model: str = "m"
    ) -> TokenOutcome | TokenTicket:
        return self.service.submit(path, body, model, self.done.append)

    async def outcome(self, path: bytes, body: dict[str, Any], model: str = "m") -> TokenOutcome:
        got: asyncio.Future[TokenOutcome] = asyncio.get_running_loop().create_future()
        result = self.service.submit(path, body, model, got.set_result)
        return result if isinstance(result, TokenOutcome) else await got

    async def tokens(self, path: bytes, body: dict[str, Any]) -> TokenSequence:
        outcome = await self.outcome(path, body)
        assert outcome.tokens is not None, outcome.reason
        return outcome.tokens

    async def idle(self) -> None:
        async with asyncio.timeout(60):
            while self.service.waiting:
                await asyncio.sleep(0)


@asynccontextmanager
async def rig(
    used: LocalTokens | None = None, ask: Any = None, **config: Any
) -> AsyncIterator[Rig]:
    made = TokenService(TokensConfig(**{"wait_s": 60.0, **config}), used, ask)
    try:
        yield Rig(made)
    finally:
        await made.close()


class Gate(threading.Event):
    """Threads tokenize only once it is set; `began` when the first stands before it."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    real = LocalTokenizer.encode_all

    def slow(self: LocalTokenizer, texts: list[str]) -> list[array[int]]:
        if threading.current_thread() is not threading.main_thread():
            gate.began.set()
            gate.wait(60)
        return real(self, texts)

    monkeypatch.setattr(LocalTokenizer, "encode_all", slow)
    yield gate
    gate.set()


async def test_cached_tokenizing_equals_full_tokenizing() -> None:
    used = local()
    async with rig(used, inline_chars=20) as service:
        for _ in range(2):
            for question, answer in golden():
                if question["template"] != "smollm2" or question.get("server"):
                    continue
                outcome = await service.outcome(question["path"].encode(), question["body"])
                if "error" in answer:
                    assert outcome.tokens is None
                    continue
                assert outcome.tokens is not None, (question, outcome.reason)
                assert outcome.tokens.ids == used.tokenizer.encode(answer["text"]).tolist()
        counts = service.service.counts
        assert counts["tokenized"] and counts["short"] and counts["cached"]
        assert not service.done


async def test_token_ids_need_no_tokenizer() -> None:
    async with rig() as service:
        outcome = service.submit(TEXT, {"prompt": [5, 6, 7]})
        assert isinstance(outcome, TokenOutcome)
        assert (outcome.reason, outcome.tokens and outcome.tokens.ids) == ("ids", [5, 6, 7])
        assert service.service.counts["ids"] == 1


async def test_next_turn_is_available_at_once() -> None:
    async with rig(local()) as service:
        messages = [{"role": "system", "content": LONG}, *HI]
        first = service.submit(CHAT, {"messages": messages})
        assert isinstance(first, TokenTicket)
        await service.idle()
        await asyncio.sleep(0)
        assert [outcome.reason for outcome in service.done] == ["tokenized"]
        again = service.submit(CHAT, {"messages": messages})
        assert isinstance(again, TokenOutcome) and again.reason == "cached"
        more = [*messages, {"role": "assistant", "content": "Hello."}, *HI]
        turn = service.submit(CHAT, {"messages": more})
        assert isinstance(turn, TokenOutcome) and turn.reason == "extended"
        new = service.submit(CHAT, {"messages": HI})
        assert isinstance(new, TokenOutcome) and new.reason == "short"


async def test_concurrent_equal_prompts_are_tokenized_once(held: Gate) -> None:
    async with rig(local(), queue=1) as service:
        for _ in range(5):
            assert isinstance(service.submit(CHAT, LONG_CHAT), TokenTicket)
        assert service.service.waiting == 1
        held.set()
        await service.idle()
        await asyncio.sleep(0)
        assert [outcome.reason for outcome in service.done] == ["tokenized"] * 5
        assert len({outcome.tokens for outcome in service.done}) == 1


async def test_full_queue_rejects(held: Gate) -> None:
    async with rig(local(), queue=2) as service:
        for number in range(2):
            assert isinstance(service.submit(TEXT, {"prompt": f"{number}{LONG}"}), TokenTicket)
        third = service.submit(TEXT, {"prompt": f"3{LONG}"})
        assert isinstance(third, TokenOutcome) and third.reason == "queue_full"
        held.set()
        await service.idle()
        assert isinstance(service.submit(TEXT, {"prompt": f"3{LONG}"}), TokenTicket)


async def test_timeout_is_reported_and_the_next_turn_is_cached(held: Gate) -> None:
    async with rig(local(), wait_s=0.01) as service:
        outcome = await service.outcome(CHAT, LONG_CHAT)
        assert (outcome.reason, outcome.tokens) == ("timeout", None)
        held.set()
        await service.idle()
        assert (await service.outcome(CHAT, LONG_CHAT)).reason == "cached"
        counts = service.service.counts
        assert (counts["timeout"], counts["tokenized"], counts["cached"]) == (1, 0, 1)


async def test_abandoned_requests_are_skipped_under_load(held: Gate) -> None:
    used = local()
    async with rig(used, queue=4) as service:
        tickets = [service.submit(TEXT, {"prompt": f"{number}{LONG}"}) for number in range(4)]
        assert all(isinstance(ticket, TokenTicket) for ticket in tickets)
        assert await asyncio.to_thread(held.began.wait, 60)  # the first is in the thread already
        for ticket in tickets[:3]:
            ticket.cancel()  # type: ignore[union-attr]
        held.set()
        await service.idle()
        await asyncio.sleep(0)
        assert [outcome.reason for outcome in service.done] == ["tokenized"]
        known = [
            isinstance(service.submit(TEXT, {"prompt": f"{number}{LONG}"}), TokenOutcome)
            for number in range(4)
        ]
        assert known == [True, False, False, True]


async def test_abandoned_caller_gets_no_result(held: Gate) -> None:
    async with rig(local()) as service:
        ticket = service.submit(CHAT, LONG_CHAT)
        other = service.submit(CHAT, LONG_CHAT)
        assert isinstance(ticket, TokenTicket) and isinstance(other, TokenTicket)
        ticket.cancel()
        assert ticket._timer.cancelled()
        held.set()
        await service.idle()
        other.cancel()  # between the answer and its delivery
        await asyncio.sleep(0)
        assert service.done == []
        assert sum(service.service.counts.values()) == 0


async def test_closing_does_not_wait_for_threads(held: Gate) -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
    async with rig(local()) as service:
        ticket = service.submit(CHAT, LONG_CHAT)
        assert isinstance(ticket, TokenTicket)
    assert ticket._timer.cancelled()
    held.set()
    threads = service.service._threads
    assert threads is not None
    await asyncio.to_thread(threads.shutdown)
    await asyncio.sleep(0)
    assert (service.done, errors) == ([], [])


async def test_text_with_and_without_special_tokens_are_separate(held: Gate) -> None:
    async with rig(local()) as service:
        for added in (True, False):
            service.submit(TEXT, {"prompt": LONG, "add_special_tokens": added})
        assert service.service.waiting == 2


async def test_failing_thread_leaves_no_caller_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: LocalTokenizer, texts: list[str]) -> list[array[int]]:
        raise MemoryError

    used = local()
    monkeypatch.setattr(LocalTokenizer, "encode_all", broken)
    async with rig(used) as service:
        assert (await service.outcome(CHAT, LONG_CHAT)).reason == "tokenizer_error"
        assert service.service.waiting == 0


async def test_long_chats_are_rendered_in_a_thread_and_cached() -> None:
    chat = [HI[0], {"role": "assistant", "content": "Hello"}] * 5
    async with rig(local(), inline_messages=3, inline_chars=50) as service:
        assert isinstance(service.submit(CHAT, {"messages": chat}), TokenTicket)
        await service.idle()
        tokens = await service.tokens(CHAT, {"messages": chat})
        await asyncio.sleep(0)
        assert [outcome.reason for outcome in service.done] == ["tokenized"]
        assert service.service.counts["cached"] == 1
        assert tokens.ids == service.done[0].tokens.ids  # type: ignore[union-attr]
        broken = [*chat, {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]
        assert (await service.outcome(CHAT, {"messages": broken})).reason == "multimodal"


async def test_special_tokens_around_a_text_separate_chains() -> None:
    definition = json.loads(zoo.definition("gpt2"))
    mark = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    number = next(
        token["id"] for token in definition["added_tokens"] if token["content"] == "<|im_start|>"
    )
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [mark, text],
        "pair": [mark, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [number], "tokens": ["<|im_start|>"]}
        },
    }
    tokenizer = LocalTokenizer(definition, zoo.settings())
    used = LocalTokens(ModelFiles(tokenizer, {}), ServerDefaults())
    async with rig(used) as service:
        for prompt in ("Once", LONG, LONG + "more"):
            plain = await service.tokens(TEXT, {"prompt": prompt, "add_special_tokens": False})
            marked = await service.tokens(TEXT, {"prompt": prompt})
            assert marked.ids == [number, *plain.ids]
            assert plain.ids == tokenizer.encode(prompt).tolist()
            assert marked.chain(1, 1)[1:] != plain.chain(1, 1)
        assert service.service.counts["extended"] == 2


async def test_special_tokens_behind_a_text() -> None:
    used = LocalTokens(ModelFiles(zoo.tokenizer("bert"), {}), ServerDefaults())
    async with rig(used) as service:
        for prompt in ("once upon", LONG):
            tokens = await service.tokens(TEXT, {"prompt": prompt})
            assert tokens.ids == used.tokenizer.encode_whole(prompt).tolist()


@pytest.mark.parametrize(
    ("used", "trust", "reason"),
    [
        (local(), service.UNVERIFIED, "short"),
        (local(), service.VERIFIED, "short"),
        (local(), service.MISMATCH, "mismatch"),
        (local(add_bos_token=True), service.UNVERIFIED, "unverified"),
        (local(add_bos_token=True), service.VERIFIED, "short"),
        (local(chat_template="clock"), service.UNVERIFIED, "unverified"),
        (local(chat_template=""), service.VERIFIED, "no_tokenizer"),
        (None, service.UNVERIFIED, "no_tokenizer"),
    ],
)
async def test_doubtful_tokenizers_are_not_used(
    used: LocalTokens | None, trust: str, reason: str
) -> None:
    async with rig(used) as service:
        service.service.trust = trust
        assert (await service.outcome(CHAT, {"messages": HI})).reason == reason
        assert service.service.counts[reason] == 1


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (b"/v1/embeddings", {"input": "x"}, "unsupported_path"),
        (CHAT, {"messages": HI, "truncate_prompt_tokens": 3}, "unsupported_field"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "multimodal"),
        (CHAT, {"messages": [{"role": "user"}, {"role": 3}]}, "bad_request"),
        (CHAT, {"messages": HI, "continue_final_message": True}, "template_error"),
        (TEXT, {"prompt": "x" * 101}, "too_large"),
        (TEXT, {"prompt": ["a", "b"]}, "several_prompts"),
    ],
)
async def test_reasons_are_counted(path: bytes, body: dict[str, Any], reason: str) -> None:
    async with rig(local(), max_chars=100) as service:
        outcome = service.submit(path, body)
        assert isinstance(outcome, TokenOutcome)
        assert (outcome.reason, outcome.tokens) == (reason, None)
        counts = service.service.counts
        assert (counts[reason], sum(counts.values())) == (1, 1)
        assert set(counts) == set(outcomes.REASONS)


async def test_cache_is_verified_against_full_tokenizing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CHECK_EVERY", 3)
    async with rig(local()) as used:
        for _ in range(10):
            await used.outcome(CHAT, {"messages": HI})
            await used.idle()
        assert (used.service.checks, used.service.check_failures) == (3, 0)
        # A part remembered wrongly, as wrong cuts would make it.
        assert used.service.cache is not None
        for node in used.service.cache._nodes.values():
            node.data = node.data[4:]
        wrong = await used.tokens(CHAT, {"messages": HI})
        for _ in range(3):
            await used.outcome(CHAT, {"messages": HI})
            await used.idle()
        assert used.service.check_failures == 1
        right = await used.tokens(CHAT, {"messages": HI})
        assert right.ids != wrong.ids
        assert used.service.cache._splitter.split("a<|im_start|>" * 100) == ["a<|im_start|>" * 100]


# -- a worker's /tokenize


class Worker:
    """Answers as a worker with the same files would."""

    def __init__(self, used: LocalTokens) -> None:
        self.local = used
        self.requests: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.change: Callable[[list[int]], Any] = lambda ids: ids
        self.status = 200

    async def __call__(self, path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        assert path == "/tokenize"
        data = orjson.loads(body)
        self.requests.append(data)
        await self.gate.wait()
        if self.status != 200:
            return self.status, b"{}"
        named = TEXT if "prompt" in data else CHAT
        prompt = requests.read_prompt(named, data, ServerDefaults())
        assert not isinstance(prompt, requests.IdsPrompt)
        ids = comparison.local_ids(self.local, prompt)
        if ids is None:
            return 400, b"{}"
        return 200, orjson.dumps({"count": len(ids), "tokens": self.change(ids.tolist())})


async def test_worker_tokenizes_without_a_local_tokenizer() -> None:
    used = local(chat_template="everything")
    worker = Worker(used)
    async with rig(None, worker) as service:
        for question, answer in golden():
            if question["template"] != "everything" or question.get("server"):
                continue
            outcome = await service.outcome(question["path"].encode(), question["body"])
            if "error" in answer:
                assert outcome.reason in ("bad_request", "multimodal", "unsupported_field")
                continue
            assert outcome.reason == "remote"
            assert outcome.tokens is not None
            assert outcome.tokens.ids == used.tokenizer.encode(answer["text"]).tolist()


async def test_other_paths_are_tokenized_as_chats() -> None:
    used = local()
    async with rig(None, Worker(used)) as service:
        for question, answer in golden():
            if question["name"] == "path":
                outcome = await service.outcome(question["path"].encode(), question["body"])
                assert outcome.tokens is not None
                assert outcome.tokens.ids == used.tokenizer.encode(answer["text"]).tolist()


async def test_tokenize_request_of_a_worker() -> None:
    worker = Worker(local())
    async with rig(None, worker) as service:
        function = {"name": "f", "description": None, "parameters": None}
        tool = {"type": "function", "function": {"name": "f"}}
        thought = {"role": "assistant", "content": "x", "reasoning_content": "y"}
        body = {
            "messages": [*HI, thought],
            "tools": [tool],
            "documents": [{"text": "d"}],
            "reasoning_effort": "low",
            "chat_template_kwargs": {"a": 1},
            "temperature": 1,
        }
        await service.outcome(CHAT, body, "adapter")
        await service.outcome(TEXT, {"prompt": "x", "add_special_tokens": False}, "")
        assert worker.requests == [
            {
                "model": "adapter",
                "messages": [*HI, {"role": "assistant", "content": "x", "reasoning": "y"}],
                "tools": [{"type": "function", "function": function}],
                "add_generation_prompt": True,
                "continue_final_message": False,
                "add_special_tokens": False,
                "chat_template_kwargs": {
                    "a": 1,
                    "documents": [{"text": "d"}],
                    "reasoning_effort": "low",
                    "enable_thinking": True,
                },
            },
            {"prompt": "x", "add_special_tokens": False},
        ]
        image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
        outcome = await service.outcome(CHAT, {"messages": [image]})
        assert outcome.reason == "multimodal"
        assert len(worker.requests) == 2


async def test_worker_queries_are_few_and_shared() -> None:
    worker = Worker(local())
    worker.gate.clear()
    async with rig(None, worker, remote_limit=2) as service:
        for prompt in ("a", "b", "a", "b"):
            assert isinstance(service.submit(TEXT, {"prompt": prompt}), TokenTicket)
        third = service.submit(TEXT, {"prompt": "c"})
        assert isinstance(third, TokenOutcome) and third.reason == "queue_full"
        worker.gate.set()
        await service.idle()
        await asyncio.sleep(0)
        assert len(worker.requests) == 2
        assert [outcome.reason for outcome in service.done] == ["remote"] * 4


@pytest.mark.parametrize(
    ("status", "change", "reason"),
    [
        (400, None, "bad_request"),
        (404, None, "remote_error"),
        (500, None, "remote_error"),
        (200, lambda ids: None, "remote_error"),
        (200, lambda ids: ["x"], "remote_error"),
        (200, lambda ids: [-1], "remote_error"),
        (200, lambda ids: {"a": 1}, "remote_error"),
    ],
)
async def test_invalid_worker_responses(status: int, change: Any, reason: str) -> None:
    worker = Worker(local())
    worker.status = status
    worker.change = change
    async with rig(None, worker) as service:
        assert (await service.outcome(TEXT, {"prompt": "a"})).reason == reason
        assert service.service.waiting == 0


async def test_invalid_id_is_an_error_with_a_reason() -> None:
    worker = Worker(local())
    worker.change = lambda ids: [-1]
    with pytest.raises(NoTokens):
        await remote.tokenize(worker, b'{"prompt": "a"}', 1.0)


async def test_worker_tokenizes_without_a_local_template() -> None:
    async with rig(local(chat_template=""), Worker(local())) as service:
        assert (await service.outcome(CHAT, {"messages": HI})).reason == "remote"
        assert (await service.outcome(TEXT, {"prompt": "a"})).reason == "short"


async def test_unreachable_worker() -> None:
    async def ask(path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        raise ProbeError("refused", refused=True)

    async with rig(None, ask) as service:
        assert (await service.outcome(TEXT, {"prompt": "a"})).reason == "remote_error"


async def test_worker_that_times_out() -> None:
    worker = Worker(local())
    worker.gate.clear()
    async with rig(None, worker, wait_s=0.01) as service:
        assert (await service.outcome(TEXT, {"prompt": "a"})).reason == "timeout"


async def test_failed_query_leaves_no_caller_waiting() -> None:
    async def ask(path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        raise ZeroDivisionError

    async with rig(None, ask) as service:
        assert (await service.outcome(TEXT, {"prompt": "a"})).reason == "remote_error"
        assert service.service.waiting == 0
