"""Model folders are read as in transformers, and possible differences are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from routing.engine.tokens.tokenizer import LocalTokenizer, TokenizerUnusable, load_model_files
from tests.routing.engine.tokens import tokenizers_zoo as zoo
from tests.routing.engine.tokens.questions import golden
from tests.support.vllm.installation import model_path


def folder(tmp_path: Path, **files: Any) -> Path:
    (tmp_path / "tokenizer.json").write_text(zoo.definition("gpt2"))
    contents = {"tokenizer_config": zoo.settings(), **files}
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def doubts(tmp_path: Path, model_type: str = "", **changes: Any) -> tuple[str, ...]:
    settings = {**zoo.settings(), **changes}
    found = folder(tmp_path, tokenizer_config=settings, config={"model_type": model_type})
    return load_model_files(found).tokenizer.doubts


def decoder(**changes: Any) -> dict[str, Any]:
    rules = dict.fromkeys(("special", "normalized", "lstrip", "rstrip", "single_word"), False)
    return {"added_tokens_decoder": {"501": {"content": "<|im_start|>", **rules, **changes}}}


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({}, ""),
        (decoder(), ""),
        ({"tokenizer_class": "Qwen2Tokenizer"}, "tokenizer_class"),
        ({"tokenizer_class": None}, "tokenizer_class"),
        ({"auto_map": {"AutoTokenizer": "x.y"}}, "remote_code"),
        ({"add_bos_token": False}, "added_bos_or_eos"),
        ({"add_eos_token": True}, "added_bos_or_eos"),
        ({"split_special_tokens": True}, "split_special_tokens"),
        ({"bos_token": "<s>"}, "added_tokens"),
        ({"image_token": "<image>"}, "added_tokens"),
        ({"bos_token": {"content": "<s>"}}, "added_tokens"),
        ({"extra_special_tokens": ["<x>"]}, "added_tokens"),
        ({"extra_special_tokens": {"x_token": "<x>"}}, "added_tokens"),
        ({"additional_special_tokens": ["<think>", {"content": "<x>"}]}, "added_tokens"),
        (decoder(lstrip=True), "added_tokens"),
        (decoder(special=True), "added_tokens"),
        (decoder(content="<x>"), "added_tokens"),
    ],
)
def test_features_changed_by_transformers_are_doubtful(
    tmp_path: Path, changes: dict[str, Any], doubt: str
) -> None:
    assert doubts(tmp_path, **changes) == ((doubt,) if doubt else ())


def test_models_with_special_rules_are_doubtful(tmp_path: Path) -> None:
    assert doubts(tmp_path, "gpt_oss") == ("own_renderer",)
    assert doubts(tmp_path, "mistral3") == ("mistral_regex",)
    (tmp_path / "tekken.json").write_text("{}")
    (tmp_path / "processor_config.json").write_text("{}")
    assert doubts(tmp_path) == ("mistral_format", "processor")


def test_special_tokens_of_an_older_model_come_from_their_own_file(tmp_path: Path) -> None:
    older = {"bos_token": {"content": "<think>", "lstrip": False}}
    found = load_model_files(folder(tmp_path, special_tokens_map=older)).tokenizer
    assert found.special_tokens["bos_token"] == "<think>"
    assert found.special_tokens["eos_token"] == "<|im_end|>"
    newer = {**zoo.settings(), **decoder()}
    found = load_model_files(folder(tmp_path, tokenizer_config=newer)).tokenizer
    assert found.special_tokens["bos_token"] == "<|im_start|>"


def test_tokens_around_a_text() -> None:
    bert = zoo.tokenizer("bert")
    assert (bert.prefix.tolist(), bert.suffix.tolist()) == ([1], [2])
    gpt2 = zoo.tokenizer("gpt2")
    assert (gpt2.prefix.tolist(), gpt2.suffix.tolist()) == ([], [])
    definition = json.loads(zoo.definition("bert"))
    definition["post_processor"]["single"].append({"Sequence": {"id": "A", "type_id": 0}})
    assert "post_processor" in LocalTokenizer(definition, zoo.settings()).doubts


def test_truncation_and_padding_in_the_file_are_ignored() -> None:
    definition = json.loads(zoo.definition("gpt2"))
    definition["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    definition["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "x",
    }
    made = LocalTokenizer(definition, zoo.settings())
    for text in ("a", "a long text of several words"):
        assert made.encode(text) == zoo.tokenizer("gpt2").encode(text)


def templates(tmp_path: Path, given: Path | None = None, **settings: Any) -> dict[str, str]:
    found = folder(tmp_path, tokenizer_config={**zoo.settings(), **settings})
    return load_model_files(found, given).templates


def test_source_of_the_chat_template(tmp_path: Path) -> None:
    assert templates(tmp_path) == {}
    assert templates(tmp_path, chat_template="a") == {"default": "a"}
    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    assert templates(tmp_path, chat_template=several) == {"default": "a", "tool_use": "b"}
    (tmp_path / "chat_template.jinja").write_text("file")
    assert templates(tmp_path, chat_template=several) == {"default": "file"}
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("r")
    assert templates(tmp_path) == {"default": "file", "rag": "r"}
    own = tmp_path / "own.jinja"
    own.write_text("own")
    assert templates(tmp_path, own) == {"default": "own"}


def test_path_of_the_file_itself(tmp_path: Path) -> None:
    (folder(tmp_path) / "chat_template.jinja").write_text("file")
    assert load_model_files(tmp_path / "tokenizer.json").templates == {"default": "file"}


def test_unusable_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(TokenizerUnusable, match="has no tokenizer"):
        load_model_files(tmp_path)
    for content in ("{", "[]", '{"version": "9"}'):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(TokenizerUnusable):
            load_model_files(tmp_path)
    folder(tmp_path, tokenizer_config={"chat_template": [{"name": "x"}]})
    with pytest.raises(TokenizerUnusable, match="chat template"):
        load_model_files(tmp_path)
    with pytest.raises(TokenizerUnusable, match="chat template"):
        load_model_files(folder(tmp_path), tmp_path / "missing.jinja")


@pytest.mark.vllm
def test_token_ids_equal_those_of_vllm() -> None:
    tokenizer = load_model_files(model_path()).tokenizer
    assert tokenizer.doubts == ()
    for question, answer in golden():
        if "text" in answer:
            added = question["body"].get("add_special_tokens", True)
            encode = tokenizer.encode_whole if added else tokenizer.encode
            assert encode(answer["text"]).tolist() == answer["ids"]
