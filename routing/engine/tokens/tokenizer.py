"""Tokenizer of a model folder, equivalent to transformers in the worker.

`doubts` lists what makes transformers deviate from `tokenizer.json`; such a tokenizer must be
verified against a worker. `encode_batch_fast` is used even for one text: only the batch calls
release the GIL (`encode` blocked other threads for 20 ms at 8,000 tokens).
"""

from __future__ import annotations

import json
import os
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from routing.engine.tokens.outcomes import ERROR, NO_TOKENIZER, NoTokens
from routing.engine.tokens.requests import ChatPrompt, ServerDefaults, TextPrompt
from routing.engine.tokens.template import ChatTemplates, TemplateUnusable

Json = dict[str, Any]

# Otherwise the library uses all cores per batch; the caller sets the thread count. Read at each
# call.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Classes that use tokenizer.json unchanged; others rebuild from its vocabulary.
_PLAIN_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
SPECIAL_NAMES = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token"),
    "mask_token",
)
# Model types with prompt code in vLLM, regardless of the template.
_OWN_RENDERERS = ("deepseek_v32", "deepseek_v4", "deepseek_v41", "gpt_oss", "inkling", "kimi_k3")
_BATCH_CHARS = 16_384
_PROBES = ("", "a", " a", "Hello, world!\n", "1 2")


class TokenizerUnusable(Exception):
    """The folder has no usable tokenizer."""


class AddedToken(msgspec.Struct, frozen=True):
    """Token matched before normalization and splitting."""

    id: int
    content: str
    special: bool = False
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


def read_json(path: Path) -> Json:
    """Return {} if the file does not exist."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TokenizerUnusable(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise TokenizerUnusable(f"{path} does not contain an object")
    return document


class LocalTokenizer:
    """Immutable and thread-safe."""

    def __init__(self, definition: Json, settings: Json, model_type: str = "") -> None:
        try:
            self._tokenizer: Any = Tokenizer.from_str(json.dumps(definition))
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception
            raise TokenizerUnusable(f"tokenizer.json cannot be used: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.added = msgspec.convert(definition.get("added_tokens", ()), list[AddedToken])
        self.definition = definition
        self.doubts = _find_doubts(settings, model_type, self.added)
        self.special_tokens = _special_tokens(settings)
        self.prefix, self.suffix = self._surroundings()

    def encode(self, text: str) -> array[int]:
        """Encode without special tokens. Raise TokenizerUnusable."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: list[str]) -> list[array[int]]:
        """Encode in small batches: unpacking the library's result holds the GIL."""
        out: list[array[int]] = []
        start = size = 0
        for index, text in enumerate(texts):
            if size and size + len(text) > _BATCH_CHARS:
                out += self._encode(texts[start:index], add_special_tokens=False)
                start, size = index, 0
            size += len(text)
        return out + self._encode(texts[start:], add_special_tokens=False)

    def encode_whole(self, text: str) -> array[int]:
        return self._encode([text], add_special_tokens=True)[0]

    def _encode(self, texts: list[str], add_special_tokens: bool) -> list[array[int]]:
        try:
            encodings = self._tokenizer.encode_batch_fast(
                texts, add_special_tokens=add_special_tokens
            )
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception
            raise TokenizerUnusable(f"the tokenizer failed: {type(error).__name__}") from None
        return [array("I", item.ids) for item in encodings]

    def _surroundings(self) -> tuple[array[int], array[int]]:
        """Return the ids added before and after a text; record a doubt if they vary."""
        empty = self.encode_whole("")
        for cut in range(len(empty) + 1):
            prefix, suffix = empty[:cut], empty[cut:]
            if all(
                self.encode_whole(probe) == prefix + self.encode(probe) + suffix
                for probe in _PROBES
            ):
                return prefix, suffix
        self.doubts = (*self.doubts, "post_processor")
        return array("I"), array("I")


def _token_text(value: Any) -> str:
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else ""


def _special_tokens(settings: Json) -> dict[str, str]:
    return {name: text for name in SPECIAL_NAMES if (text := _token_text(settings.get(name)))}


def _find_doubts(settings: Json, model_type: str, added: list[AddedToken]) -> tuple[str, ...]:
    """Return names of deviations of transformers from tokenizer.json."""
    doubts: list[str] = []
    if settings.get("tokenizer_class") not in _PLAIN_CLASSES:
        doubts.append("tokenizer_class")
    if settings.get("auto_map"):
        doubts.append("remote_code")
    if "add_bos_token" in settings or "add_eos_token" in settings:
        doubts.append("added_bos_or_eos")
    if settings.get("split_special_tokens"):
        doubts.append("split_special_tokens")
    if "mistral" in model_type or "pixtral" in model_type or "voxtral" in model_type:
        doubts.append("mistral_regex")
    if model_type in _OWN_RENDERERS:
        doubts.append("own_renderer")
    if _changes_tokens(settings, added):
        doubts.append("added_tokens")
    return tuple(doubts)


def _changes_tokens(settings: Json, added: list[AddedToken]) -> bool:
    """Return True if transformers would add tokens or change their rules."""
    tokens = {token.content: token for token in added}
    named = [_token_text(value) for name, value in settings.items() if name.endswith("_token")]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        values = settings.get(name) or ()
        named += map(_token_text, values.values() if isinstance(values, dict) else values)
    if any(text and text not in tokens for text in named):
        return True
    for item in (settings.get("added_tokens_decoder") or {}).values():
        token = tokens.get(_token_text(item))
        if token is None or any(
            bool(item.get(rule)) != getattr(token, rule)
            for rule in ("special", "normalized", "lstrip", "rstrip", "single_word")
        ):
            return True
    return False


def read_chat_templates(folder: Path, settings: Json, given: Path | None) -> dict[str, str]:
    """Return template texts by name; a given file takes precedence."""
    try:
        if given is not None:
            return {"default": given.read_text("utf-8")}
        templates: dict[str, str] = {}
        own = settings.get("chat_template")
        if isinstance(own, str):
            templates["default"] = own
        elif isinstance(own, list):
            templates = {str(item["name"]): str(item["template"]) for item in own}
        files = {path.stem: path for path in folder.glob("additional_chat_templates/*.jinja")}
        if (folder / "chat_template.jinja").exists():
            files["default"] = folder / "chat_template.jinja"
        if files:  # files override tokenizer_config.json
            templates = {name: path.read_text("utf-8") for name, path in files.items()}
        return templates
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TokenizerUnusable(f"the chat template cannot be read: {error}") from None


@dataclass(frozen=True)
class ModelFiles:
    tokenizer: LocalTokenizer
    templates: dict[str, str]


def load_model_files(path: Path, chat_template: Path | None = None) -> ModelFiles:
    """Load a model folder or a tokenizer.json; takes about 0.2 s. Raise TokenizerUnusable."""
    folder = path if path.is_dir() else path.parent
    definition = read_json(folder / "tokenizer.json" if path.is_dir() else path)
    if not definition:
        raise TokenizerUnusable(f"{path} has no tokenizer.json")
    settings = read_json(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in settings:
        settings = settings | read_json(folder / "special_tokens_map.json")
    model_type = str(read_json(folder / "config.json").get("model_type", ""))
    tokenizer = LocalTokenizer(definition, settings, model_type)
    own_format = any(folder.glob("tekken.json")) or any(folder.glob("tokenizer.model.v*"))
    if own_format:  # vLLM uses mistral-common instead
        tokenizer.doubts = (*tokenizer.doubts, "mistral_format")
    if (folder / "chat_template.json").exists() or (folder / "processor_config.json").exists():
        tokenizer.doubts = (*tokenizer.doubts, "processor")
    return ModelFiles(tokenizer, read_chat_templates(folder, settings, chat_template))


class LocalTokens:
    """Tokenizer and chat template of a model. `template_problem`: why chats are unavailable, "" if
    they are.
    """

    def __init__(self, files: ModelFiles, defaults: ServerDefaults) -> None:
        self.tokenizer = files.tokenizer
        self.defaults = defaults
        self.template_problem = ""
        self._templates: ChatTemplates | None = None
        self.doubts = list(files.tokenizer.doubts)
        try:
            self._templates = ChatTemplates(files.templates, files.tokenizer.special_tokens)
        except TemplateUnusable as error:
            self.template_problem = str(error)
            return
        if self._templates.uses_clock:  # its date may differ from the worker's
            self.doubts.append("template_clock")

    def text(self, prompt: TextPrompt | ChatPrompt) -> str:
        """Return the text to tokenize. Raise NoTokens."""
        if isinstance(prompt, TextPrompt):
            return prompt.text
        if self._templates is None:
            raise NoTokens(NO_TOKENIZER, self.template_problem)
        return self._templates.pick(prompt.tools).render(prompt, self.defaults)

    def ids(self, prompt: TextPrompt | ChatPrompt) -> array[int]:
        """Tokenize without cuts and cache. Raise NoTokens."""
        text = self.text(prompt)
        try:
            if prompt.add_special_tokens:
                return self.tokenizer.encode_whole(text)
            return self.tokenizer.encode(text)
        except TokenizerUnusable as error:
            raise NoTokens(ERROR, str(error)) from None
