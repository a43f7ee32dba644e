"""Compare local token ids with a worker's /tokenize on probe prompts.

Reports the first difference with a likely cause and fix. Probe texts are built in; no caller data
is sent or shown.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from routing.engine.tokens import remote, requests
from routing.engine.tokens.outcomes import REMOTE_ERROR, NoTokens
from routing.engine.tokens.requests import ChatPrompt, TextPrompt
from routing.engine.tokens.tokenizer import LocalTokens

SAME, DIFFERENT, UNREACHABLE = "same", "different", "unreachable"
_SHOWN = 8

_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city, é & <b>",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Zürich"}'},
}
_GREETING = {"role": "user", "content": "Hi there!"}
_ANSWER = {"role": "assistant", "content": " Hello.\n\nHow can I help?\n"}
_SYSTEM = {"role": "system", "content": "Be brief."}
_MIXED_TEXT = (
    "Mixed  spaces\t\n\n  naïve 你好 👩‍👧 1234567 it's don't\u00a0x <|im_end|></s><s>[INST]"
)

_Body = dict[str, Any]
_PLAIN_TEXT = "plain text without special tokens"
_SURROUNDED = "plain text"


def _chat(name: str, *messages: _Body, **options: Any) -> tuple[str, bytes, _Body]:
    return name, b"/v1/chat/completions", {"messages": list(messages), **options}


# Basic probes first. A template may reject some (no system role, no tools); then both sides must.
PROBES: tuple[tuple[str, bytes, _Body], ...] = (
    (_PLAIN_TEXT, b"/v1/completions", {"prompt": _MIXED_TEXT, "add_special_tokens": False}),
    (_SURROUNDED, b"/v1/completions", {"prompt": " Once upon"}),
    _chat("one message", _GREETING),
    _chat("system prompt", _SYSTEM, _GREETING),
    _chat("several turns", _SYSTEM, _GREETING, _ANSWER, _GREETING),
    _chat("unusual text", {"role": "user", "content": _MIXED_TEXT}),
    _chat("content in parts", {"role": "user", "content": [{"type": "text", "text": "a"}] * 2}),
    _chat("tools", _GREETING, tools=[_TOOL]),
    _chat(
        "a tool's result",
        _GREETING,
        {"role": "assistant", "content": None, "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        tools=[_TOOL],
    ),
    _chat("without generation prompt", _GREETING, _ANSWER, add_generation_prompt=False),
    _chat("thinking switched off", _GREETING, chat_template_kwargs={"enable_thinking": False}),
)


@dataclass(frozen=True)
class TokenDifference:
    """One difference, or a query without answer."""

    probe: str
    what: str
    fix: str


@dataclass(frozen=True)
class TokenReport:
    verdict: str
    compared: int
    findings: tuple[TokenDifference, ...] = ()


def describe_difference(local: Sequence[int] | None, worker: Sequence[int] | None) -> str:
    """Describe the difference; "" if equal. None: that side rejects the prompt."""
    if local is None or worker is None:
        if local is worker:
            return ""
        who = "the router" if local is None else "the worker"
        return f"only {who} rejects the prompt"
    if list(local) == list(worker):
        return ""
    index = 0
    while index < min(len(local), len(worker)) and local[index] == worker[index]:
        index += 1
    return (
        f"from token {index} on: {len(local)} tokens here {list(local[index : index + _SHOWN])}, "
        f"{len(worker)} at the worker {list(worker[index : index + _SHOWN])}"
    )


def fix_for(name: str, differ: Sequence[str]) -> str:
    """Return the likely fix, given which earlier probes differ."""
    if name == _PLAIN_TEXT or _PLAIN_TEXT in differ:
        return (
            "Set --tokenizer to the folder of the same model and revision that the worker serves."
        )
    if name == _SURROUNDED:
        return "Special tokens differ: compare add_bos_token in tokenizer_config.json."
    if "tool" in name:
        return (
            "The template renders tools differently: set the worker's --chat-template on the "
            "router, "
            "and the same --exclude-tools-when-tool-choice-none."
        )
    if "parts" in name:
        return (
            "Start the workers without --chat-template-content-format: the router "
            "always detects it."
        )
    return (
        "Set the worker's chat template on the router (its --chat-template, or the model's "
        "own of the same revision), and its --default-chat-template-kwargs."
    )


def local_ids(local: LocalTokens, prompt: TextPrompt | ChatPrompt) -> array[int] | None:
    try:
        return local.ids(prompt)
    except NoTokens:
        return None


async def compare_tokens(
    local: LocalTokens, ask: remote.Ask, model: str, timeout_s: float
) -> TokenReport:
    """Run the probes; stops at the first query without answer, which is no difference."""
    findings: list[TokenDifference] = []
    compared = agreed = 0
    for name, path, body in PROBES:
        prompt = requests.read_prompt(path, body, local.defaults)
        assert not isinstance(prompt, requests.IdsPrompt)
        try:
            question = remote.tokenize_body(prompt, model)
            worker: array[int] | None = await remote.tokenize(ask, question, timeout_s)
        except NoTokens as error:
            if error.reason == REMOTE_ERROR:
                finding = TokenDifference(
                    name, f"no response: {error}", "Check that the worker is up."
                )
                return TokenReport(UNREACHABLE, compared, (*findings, finding))
            worker = None  # the worker's template rejects it
        compared += 1
        what = describe_difference(local_ids(local, prompt), worker)
        if what:
            fix = fix_for(name, [finding.probe for finding in findings])
            findings.append(TokenDifference(name, what, fix))
        elif worker is not None:
            agreed += 1
    if not findings and not agreed:
        finding = TokenDifference(
            "", "the worker rejects every probe", "Check it manually: POST /tokenize."
        )
        return TokenReport(UNREACHABLE, compared, (finding,))
    return TokenReport(DIFFERENT if findings else SAME, compared, tuple(findings))
