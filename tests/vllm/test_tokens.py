"""vLLM still gives the answers which the router's tokens are held against."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from routing.engine.tokens.tokenizer import load
from tests.routing.engine.tokens import tokenizers_zoo as zoo
from tests.routing.engine.tokens.questions import ask_vllm, golden
from tests.routing.engine.tokens.test_splitting import CONTENTS, WORDS
from tests.vllm.worker import model_path

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]


def test_the_golden_answers_are_vllms_answers() -> None:
    written = golden()
    for (question, answer), now in zip(
        written, ask_vllm(model_path(), [question for question, _ in written]), strict=True
    ):
        assert answer == now, question["name"]


def test_a_tokenizer_without_doubts_is_read_as_vllm_reads_it(tmp_path: Path) -> None:
    chance = random.Random(7)
    asked = []
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
            asked.append({**question, "folder": str(folder)})
    compared = set()
    for question, answer in zip(asked, ask_vllm(model_path(), asked), strict=True):
        tokenizer = load(Path(question["folder"])).tokenizer
        if tokenizer.doubts:
            continue
        body = question["body"]
        encode = tokenizer.encode_whole if body["add_special_tokens"] else tokenizer.encode
        assert encode(body["prompt"]).tolist() == answer["ids"], question
        compared.add(question["folder"])
    assert len(compared) >= 10
