"""Golden tokenizations are verified against vLLM."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from routing.engine.tokens.outcomes import NoTokens
from routing.engine.tokens.tokenizer import load_model_files
from tests.routing.engine.tokens import tokenizers_zoo as zoo
from tests.routing.engine.tokens.bodies import Bodies
from tests.routing.engine.tokens.questions import TEMPLATES, ask_vllm, golden
from tests.routing.engine.tokens.test_splitter import CONTENTS, WORDS
from tests.routing.engine.tokens.test_template import render
from tests.support.vllm.installation import model_path

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]


def test_golden_responses_equal_those_of_vllm() -> None:
    written = golden()
    for (question, answer), now in zip(
        written, ask_vllm(model_path(), [question for question, _ in written]), strict=True
    ):
        assert answer == now, question["name"]


def test_supported_tokenizer_matches_vllm(tmp_path: Path) -> None:
    chance = random.Random(7)
    requests = []
    for number, name in enumerate(zoo.MAKERS):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "tokenizer.json").write_text(zoo.definition(name))
        (folder / "tokenizer_config.json").write_text(json.dumps(zoo.settings()))
        (folder / "config.json").write_text('{"model_type": "llama"}')
        for _ in range(40):
            text = "".join(chance.choices(CONTENTS + WORDS, k=chance.randint(1, 20)))
            body = {"prompt": text, "add_special_tokens": chance.random() < 0.5}
            question = {"path": "/v1/completions", "body": body, "template": "smollm2"}
            requests.append({**question, "folder": str(folder)})
    compared = set()
    for question, answer in zip(requests, ask_vllm(model_path(), requests), strict=True):
        tokenizer = load_model_files(Path(question["folder"])).tokenizer
        if tokenizer.doubts:
            continue
        body = question["body"]
        encode = tokenizer.encode_whole if body["add_special_tokens"] else tokenizer.encode
        assert encode(body["prompt"]).tolist() == answer["ids"], question
        compared.add(question["folder"])
    assert len(compared) >= 10


def test_random_bodies_match_vllm() -> None:
    """Where both sides have a text it is the same, and little is refused here which vLLM takes."""
    bodies = Bodies(11)
    requested = [
        {
            "path": "/v1/chat/completions",
            "body": bodies.body(),
            "template": TEMPLATES[number % len(TEMPLATES)],
        }
        for number in range(900)
    ]
    refused: list[str] = []
    same = 0
    for question, answer in zip(requested, ask_vllm(model_path(), requested), strict=True):
        try:
            text = render(question)
        except NoTokens as error:
            if "text" in answer:
                refused.append(f"{error.reason}: {error}")
            continue
        if "text" in answer:
            assert text == answer["text"], question
            same += 1
    assert same > 300
    assert same > 10 * len(refused)
    assert all(reason.startswith(("unsupported_field", "multimodal")) for reason in refused)
