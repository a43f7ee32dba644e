"""Early changes between prompts of a template, with place, kind and remedy."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from routing.analysis.prompt_check import PromptError, check_prompts, read_prompts

_WORDS = ("river", "stone", "cloud", "the", "paper", "that", "green", "window", "light", "this")
_PICK = random.Random(3)
RULES = "".join(f"{' '.join(_PICK.choices(_WORDS, k=8))} {n}.\n" for n in range(20))
ORDER = '{"name": "Ann", "city": "Rome"}'


def body(system: str, *text: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    turns = [{"role": roles[at % 2], "content": one} for at, one in enumerate(text)]
    return {"model": "m", "messages": [{"role": "system", "content": system}, *turns], **more}


def tool(name: str, **keys: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": RULES[:99], **keys}}


def checked(*prompts: Any) -> list[Any]:
    return check_prompts(read_prompts(json.dumps(prompts)))


@pytest.mark.parametrize(
    ("before", "after", "cause", "character"),
    [
        ("Now: 2026-11-22 10:00\n", "Now: 2026-11-23 11:12\n", "changed_timestamp", 24),
        ("Request 7fa3-19bc-88\n", "Request 0bd1-22ef-71\n", "changed_id", 18),
        ("Be  polite\n", "Be polite\n", "changed_whitespace", 13),
        ("Be polite\n", "Be brief\n", "changed_text", 13),
        (f"{ORDER}\n", '{"city": "Rome", "name": "Ann"}\n', "changed_order", 12),
    ],
)
def test_kind_and_place_of_a_change(before: str, after: str, cause: str, character: int) -> None:
    [found] = checked(body(f"You help.\n{before}{RULES}"), body(f"You help.\n{after}{RULES}"))
    assert (found.cause, found.part) == (cause, "message 1 (system)")
    assert found.character == character
    assert found.stable_tokens > 100
    assert found.before in before
    assert found.remedy


def test_stable_prompts_and_new_turns_are_no_findings() -> None:
    turns = ["Why?", "Because.", "And then?"]
    assert not checked(*(body(RULES, *turns[: 1 + at]) for at in range(3)))
    assert not checked(body(RULES, "Why is it so?"), body(RULES, "What is the time now?"))
    assert not checked(RULES + "first", RULES + "second", RULES)


def test_tools_and_keys_in_another_order() -> None:
    one, two = tool("one", strict=True), tool("two")
    swapped = {"function": one["function"], "type": "function"}
    for tools in ([two, one], [swapped, two]):
        [found] = checked(body(RULES, tools=[one, two]), body(RULES, tools=tools))
        assert (found.cause, found.part) == ("changed_order", "tools")


def test_pairs_with_the_same_change_are_one_finding() -> None:
    [found] = checked(*(f"Now: 2026-11-2{day}\n{RULES}" for day in range(5)))
    assert (found.count, found.part) == (4, "text")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('["one"]', "1 prompt found"),
        ("", "0 prompt"),
        ('"one"\nnonsense', "Line 2 is not JSON"),
        ('["one", 5]', "Prompt 2 is neither"),
        ('["one", {"prompt": [1, 2]}]', "Prompt 2 has token IDs"),
    ],
)
def test_bad_input_is_named(text: str, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        read_prompts(text)
