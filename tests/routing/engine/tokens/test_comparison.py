"""A template or tokenizer that differs from the worker's is reported with a remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routing.engine.fleet.probe_request import ProbeError
from routing.engine.tokens import comparison
from routing.engine.tokens.requests import ServerDefaults
from routing.engine.tokens.tokenizer import LocalTokenizer, LocalTokens, ModelFiles
from tests.routing.engine.tokens import tokenizers_zoo as zoo
from tests.routing.engine.tokens.questions import TEMPLATES, template
from tests.routing.engine.tokens.test_service import Worker, local


async def report(mine: LocalTokens, workers: LocalTokens) -> comparison.TokenReport:
    return await comparison.compare_tokens(mine, Worker(workers), "m", 5.0)


@pytest.mark.parametrize("name", TEMPLATES)
async def test_equal_files_have_no_difference(name: str) -> None:
    found = await report(local(chat_template=name), local(chat_template=name))
    assert (found.verdict, found.compared, found.findings) == ("same", len(comparison.PROBES), ())


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "smollm2"])
async def test_different_template_is_found(name: str) -> None:
    found = await report(local(chat_template=name), local(chat_template="smollm2"))
    assert found.verdict == "different"
    assert all("template" in finding.fix for finding in found.findings)
    assert "plain text" not in {finding.probe for finding in found.findings}


async def test_template_that_differs_for_tools_only() -> None:
    plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}"
    files = [local().tokenizer, {"default": plain + "{{ tools | tojson if tools }}"}]
    mine = LocalTokens(ModelFiles(files[0], {"default": plain}), ServerDefaults())  # type: ignore[arg-type]
    found = await report(mine, LocalTokens(ModelFiles(*files), ServerDefaults()))  # type: ignore[arg-type]
    assert [finding.probe for finding in found.findings] == ["tools", "a tool's result"]
    assert "tools differently" in found.findings[0].fix


async def test_different_tokenizer_is_found() -> None:
    found = await report(local("gpt2"), local("llama3"))
    assert found.verdict == "different"
    assert all("--tokenizer" in finding.fix for finding in found.findings)
    assert "from token" in found.findings[0].what


async def test_special_tokens_around_a_text_are_found() -> None:
    definition = json.loads(zoo.definition("bert"))
    definition["post_processor"] = None
    bare = LocalTokenizer(definition, zoo.settings())
    templates = {"default": template("smollm2")}
    found = await report(
        LocalTokens(ModelFiles(bare, templates), ServerDefaults()),
        LocalTokens(ModelFiles(zoo.tokenizer("bert"), templates), ServerDefaults()),
    )
    assert [finding.probe for finding in found.findings] == ["plain text"]
    assert "add_bos_token" in found.findings[0].fix


async def test_missing_response_is_no_difference() -> None:
    async def gone(path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        raise ProbeError("connection refused", refused=True)

    found = await comparison.compare_tokens(local(), gone, "m", 5.0)
    assert (found.verdict, found.compared) == ("unreachable", 0)
    worker = Worker(local())
    worker.status = 400
    without = LocalTokens(ModelFiles(local().tokenizer, {}), ServerDefaults())
    found = await comparison.compare_tokens(without, worker, "m", 5.0)
    assert found.verdict == "different"  # plain text is not refused here


@pytest.mark.parametrize(
    ("mine", "workers", "words"),
    [
        ([1, 2], [1, 2], ""),
        (None, None, ""),
        (None, [1], "only the router rejects"),
        ([1], None, "only the worker rejects"),
        ([1, 2], [1, 3], "from token 1 on: 2 tokens here [2], 2 at the worker [3]"),
        ([1], [1, 3], "from token 1 on: 1 tokens here [], 2 at the worker [3]"),
    ],
)
def test_differences_are_described(mine: Any, workers: Any, words: str) -> None:
    content = comparison.describe_difference(mine, workers)
    assert content.startswith(words) and bool(content) == bool(words)
