"""Small tokenizers of every kind, with added tokens of every special rule."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from routing.engine.tokens.tokenizer import LocalTokenizer

Json = dict[str, Any]

LETTERS = [
    AddedToken("dog", rstrip=True, normalized=False, special=True),
    AddedToken("fox", lstrip=True, normalized=False, special=True),
]
CORPUS = [
    "the quick brown fox jumps over the lazy dog, and it's the dog's own fault; don't ask why.",
    "Once upon a time there were 1234 tokens and 56 more; naïve café 你好 世界 are words, too!",
    "system user assistant <think> </think> function name arguments {} [] \n\n  spaces\t tabs\r\n",
] * 4
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MARKS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"]
AWKWARD = [
    AddedToken("<mask>", lstrip=True, normalized=False, special=True),
    AddedToken("<gap>", rstrip=True, normalized=False, special=True),
    AddedToken("<both>", lstrip=True, rstrip=True, normalized=False, special=True),
    AddedToken("<word>", single_word=True, normalized=False),
    AddedToken("tool", single_word=True, normalized=False),
    AddedToken("<|im_end|>x", normalized=False, special=True),
    AddedToken("<|im", normalized=False, special=True),
    AddedToken(" <lead>", normalized=False, special=True),
    AddedToken("<trail> ", normalized=False, special=True),
    AddedToken("[INST]", normalized=False, special=True),
    AddedToken("fox jumps", normalized=False),
    AddedToken("<norm>", normalized=True),
    AddedToken("café", normalized=True),
    AddedToken("  ", normalized=True),
]


def _byte_level(splitter: Any, marks: list[Any], normalizer: Any = None) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = splitter
    if normalizer is not None:
        made.normalizer = normalizer
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    _add(made, marks)
    return made


def _add(made: Tokenizer, marks: list[Any]) -> None:
    made.add_tokens(
        [
            mark if isinstance(mark, AddedToken) else AddedToken(mark, normalized=False)
            for mark in marks
        ]
    )


def _llama3() -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _pieces(kind: str, marks: list[Any]) -> Tokenizer:
    """In the manner of SentencePiece."""
    if kind == "unigram":
        made = Tokenizer(models.Unigram())
        trainer: Any = trainers.UnigramTrainer(
            vocab_size=300, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
        )
    else:
        made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=False))
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False)
    if kind == "prepend":
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        scheme = "first" if kind == "first" else "always"
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    made.train_from_iterator(CORPUS, trainer)
    _add(made, marks)
    return made


def _bert(marks: list[Any]) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    _add(made, marks)
    return made


def _gpt2(**options: Any) -> Any:
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})


MAKERS: dict[str, Any] = {
    "gpt2": lambda: _byte_level(_gpt2(), MARKS),
    "gpt2 digits": lambda: _byte_level(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()]), MARKS
    ),
    "gpt2 prefix": lambda: _byte_level(_gpt2(add_prefix_space=True), MARKS),
    "gpt2 awkward": lambda: _byte_level(_gpt2(), [*MARKS, *AWKWARD]),
    # Awkward, but nothing in it forbids cuts at spaces.
    "gpt2 half": lambda: _byte_level(_gpt2(), [*MARKS, *AWKWARD[:7], AWKWARD[9], AWKWARD[11]]),
    "gpt2 strip": lambda: _byte_level(_gpt2(), MARKS, normalizers.Strip()),
    "gpt2 after": lambda: _byte_level(_gpt2(), [*MARKS, LETTERS[0]]),
    "gpt2 before": lambda: _byte_level(_gpt2(), [*MARKS, LETTERS[1]]),
    "llama3": lambda: _byte_level(_llama3(), MARKS),
    "llama3 nfc": lambda: _byte_level(_llama3(), MARKS, normalizers.NFC()),
    "llama3 nfkc": lambda: _byte_level(_llama3(), [*MARKS, *AWKWARD], normalizers.NFKC()),
    "first": lambda: _pieces("first", MARKS),
    "first awkward": lambda: _pieces("first", [*MARKS, *AWKWARD]),
    "always": lambda: _pieces("always", [*MARKS, *AWKWARD]),
    "prepend": lambda: _pieces("prepend", [*MARKS, *AWKWARD]),
    "unigram": lambda: _pieces("unigram", [*MARKS, *AWKWARD]),
    "bert": lambda: _bert([*MARKS, *AWKWARD]),
}


@cache
def definition(name: str) -> str:
    return str(MAKERS[name]().to_str())


def settings() -> Json:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
    }


@cache
def tokenizer(name: str) -> LocalTokenizer:
    return LocalTokenizer(json.loads(definition(name)), settings())
