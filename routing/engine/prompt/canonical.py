"""Canonical bytes of a request's prompt, independent of the API and the JSON spelling.

Two bodies give the same bytes up to where their prompts differ. Media are hashed. Whatever changes
a prompt from its first token (model, adapter, salt, template arguments) is a name beside the bytes
that seeds the chain. Nothing of this is logged.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import orjson
import xxhash

from routing.engine.errors import Refusal
from routing.engine.http.bodies import ReadPace

# path: field with the prompt, is it a chat
_FIELDS: dict[bytes, tuple[str, bool]] = {
    b"/v1/chat/completions": ("messages", True),
    b"/v1/completions": ("prompt", False),
    b"/v1/responses": ("input", True),
    b"/v1/messages": ("messages", True),
    b"/v1/embeddings": ("input", False),
}
# Fields that affect the prompt from its start: vLLM hashes model (LoRA adapter) and salt into the
# first block; the others are template and processor arguments.
_CHAIN_SEED_FIELDS: Final = frozenset(
    (
        *("add_special_tokens", "cache_salt", "chat_template", "chat_template_kwargs"),
        *("documents", "media_io_kwargs", "mm_processor_kwargs"),
        *("previous_response_id", "reasoning", "reasoning_effort"),
        *("truncate_prompt_tokens", "truncation_side"),
    )
)
# Keys of a message or part that are handled elsewhere or not rendered.
_NOT_RENDERED: Final = frozenset(("role", "content", "cache_control", "id", "status"))
_TEXTS: Final = (None, "text", "input_text", "output_text")
_MEDIA: Final = frozenset(
    (
        *("image", "image_url", "input_image", "image_embeds", "image_pil"),
        *("video", "video_url", "audio", "audio_url", "audio_embeds", "input_audio"),
        *("file", "input_file", "document", "prompt_embeds"),
    )
)
_MAX_PLAIN_CHARS: Final = 256  # longer strings under these names are data and are hashed
_DATA_KEYS: Final = frozenset(("url", "data", "image_url", "file_data"))
MEDIUM_BYTES: Final = 2048  # weight of a medium, about 500 tokens
MAX_WEIGHED_MEDIA: Final = 64  # further ones weigh as much as their hash
_DEPTH: Final = 16
_MAX_OBJECTS: Final = 10_000  # bound on objects searched for media
_SLICE: Final = 32
_SORTED: Final = orjson.OPT_SORT_KEYS


# Chain seed: kind of prompt, model, other arguments as JSON.
Name = tuple[bytes, str, bytes]
# Canonical bytes, seed name, True for token ids (four bytes each), True for text only (its length
# predicts the tokens).
Prompt = tuple[bytes, Name, bool, bool]
_NO_PROMPT: Prompt = (b"", (b"", "", b""), False, False)


def infer_path(body: dict[str, Any]) -> bytes | None:
    for path in (b"/v1/chat/completions", b"/v1/completions", b"/v1/responses"):
        if _FIELDS[path][0] in body:
            return path
    return None


def check_counts(path: bytes, body: dict[str, Any], messages: int, parts: int) -> None:
    field = _FIELDS.get(path)
    if field is None:
        return
    name, is_chat = field
    for key in (name, "tools"):
        items = body.get(key)
        if type(items) is list and len(items) > messages and type(items[0]) is not int:
            text = f"{key} has {len(items)} entries; at most {messages} are accepted"
            raise Refusal("too_many_messages", f"{text} (limits.messages).", key)
    if not is_chat:
        return
    counts = body.get(name)
    if type(counts) is not list:
        counts = []
    contents = [item.get("content") for item in counts if type(item) is dict]
    count = sum(len(each) for each in (*contents, body.get("system")) if type(each) is list)
    if count > parts:
        text = f"The content of {name} has {count} parts; at most {parts} are accepted"
        raise Refusal("too_many_parts", f"{text} (limits.parts).", f"{name}.content")


def read(path: bytes, body: dict[str, Any], model: str) -> Prompt:
    """Return the prompt. May raise TypeError or UnicodeEncodeError for bodies that the engine
    rejects too.
    """
    field = _FIELDS.get(path)
    if field is None:
        return _NO_PROMPT
    name, is_chat = field
    if not is_chat:
        return _read_completion(body, body.get(name), model)
    parts, walk = _read_preamble(body)
    exact = _messages(_as_message_list(body.get(name)), parts, walk)
    return _make_prompt(body, model, b"".join(parts), exact, b"chat")


async def read_large(path: bytes, body: dict[str, Any], model: str, pace: ReadPace) -> Prompt:
    """Like `read`, in slices."""
    field = _FIELDS.get(path)
    if field is None or not field[1]:
        return read(path, body, model)
    parts, walk = _read_preamble(body)
    exact = True
    messages = _as_message_list(body.get(field[0]))
    for index in range(0, len(messages), _SLICE):
        exact = _messages(messages[index : index + _SLICE], parts, walk) and exact
        await pace.pause()
    return _make_prompt(body, model, b"".join(parts), exact, b"chat")


def _read_completion(body: dict[str, Any], value: Any, model: str) -> Prompt:
    data, kind, exact = _read_texts(value)
    embeds = body.get("prompt_embeds")
    if embeds:
        part = {"type": "prompt_embeds", "data": embeds}
        data, exact = _part(part, MediaCount()) + data, False
    return _make_prompt(body, model, data, exact, kind)


def _make_prompt(body: dict[str, Any], model: str, data: bytes, exact: bool, kind: bytes) -> Prompt:
    rest = b"" if body.keys().isdisjoint(_CHAIN_SEED_FIELDS) else _seed_fields(body)
    return data, (kind, model, rest), kind == b"ids", exact


def _seed_fields(body: dict[str, Any]) -> bytes:
    fields = {
        name: value
        for name, value in body.items()
        if name in _CHAIN_SEED_FIELDS and (value or value == 0)  # without null and empty values
    }
    return orjson.dumps(fields, option=_SORTED) if fields else b""


def _read_texts(value: Any) -> tuple[bytes, bytes, bool]:
    """Return a text or token ids; of a list the first, which is computed first."""
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass"), b"text", True
    if type(value) is not list or not value:
        return b"", b"text", False
    first = value[0]
    if type(first) is int:
        return _pack_ids(value), b"ids", True
    if type(first) is list:
        rest = [b"\xff\xff\xff\xff" + _pack_ids(item) for item in value[1:]]
        return b"".join([_pack_ids(first), *rest]), b"ids", True
    parts = [
        item.encode("utf-8", "surrogatepass") if type(item) is str else _sorted_json(item)
        for item in value
    ]
    return b"\x1e".join(parts), b"text", True


def _pack_ids(value: Any) -> bytes:
    if type(value) is list:
        try:
            return array("I", value).tobytes()
        except OverflowError:
            pass
    raise TypeError("token ids are whole numbers from 0 to 2**32 - 1")


class MediaCount:
    __slots__ = ("media", "objects")

    def __init__(self) -> None:
        self.media = 0
        self.objects = 0


def _read_preamble(body: dict[str, Any]) -> tuple[list[bytes], MediaCount]:
    """Return tools and instructions, which precede the messages."""
    parts: list[bytes] = []
    walk = MediaCount()
    tools = body.get("tools")
    if tools:
        parts.append(b"\x1d" + _sorted_json(_without_media(tools, walk)))
    system = body.get("system") or body.get("instructions")
    if system:
        parts.append(_message({"role": "system", "content": system}, walk))
    return parts, walk


def _as_message_list(messages: Any) -> list[Any]:
    if type(messages) is str:
        return [{"role": "user", "content": messages}]
    return messages if type(messages) is list else []


def _messages(messages: list[Any], parts: list[bytes], walk: MediaCount) -> bool:
    """Append each message's bytes; return True if all are text only."""
    exact = True
    for message in messages:
        if type(message) is dict and len(message) == 2:
            content = message.get("content")
            role = message.get("role")
            if type(content) is str and type(role) is str:
                # Apart: a copy of a long text less.
                parts.append(f"\x1e{role}\x1f".encode("utf-8", "surrogatepass"))
                parts.append(content.encode("utf-8", "surrogatepass"))
                continue
        parts.append(_message(message, walk))
        exact = exact and _is_text(message)
    return exact


def _is_text(message: Any) -> bool:
    content = message.get("content") if type(message) is dict else None
    return type(content) is not list or all(
        type(part) is dict and type(part.get("text")) is str for part in content
    )


def _message(message: Any, walk: MediaCount) -> bytes:
    if type(message) is not dict:
        return b"\x1e" + _sorted_json(message)
    role = message.get("role")
    kind = message.get("type")
    content = message.get("content")
    if type(content) is str:
        text = content.encode("utf-8", "surrogatepass")
    elif type(content) is list:
        text = _parts(content, walk)
    else:
        text = b"" if content is None else _sorted_json(content)
    head = f"\x1e{role if type(role) is str else ''}\x1f".encode("utf-8", "surrogatepass")
    rest = {
        key: _without_media(value, walk)
        for key, value in message.items()
        if key not in _NOT_RENDERED and value not in (None, "", [], {})
    }
    if kind == "message":
        del rest["type"]
    return head + text + (b"\x1c" + _sorted_json(rest) if rest else b"")


def _parts(parts: list[Any], walk: MediaCount) -> bytes:
    """Join texts by a line break, as vLLM does for string templates."""
    out: list[bytes] = []
    for part in parts:
        if type(part) is dict:
            text = part.get("text")
            if type(text) is str and part.get("type") in _TEXTS:
                out.append(text.encode("utf-8", "surrogatepass"))
            else:
                out.append(_part(part, walk))
        elif type(part) is str:
            out.append(part.encode("utf-8", "surrogatepass"))
        else:
            out.append(_sorted_json(part))
    return b"\n".join(out)


def _part(part: dict[str, Any], walk: MediaCount) -> bytes:
    kind = part.get("type")
    if kind not in _MEDIA if type(kind) is str else True:
        return b"\x1d" + _sorted_json(_without_media(part, walk))
    uuid = part.get("uuid")  # vLLM's id of a medium whose data may be omitted
    digest = xxhash.xxh3_128(
        _sorted_json([kind, uuid] if uuid else _without_media(part, walk))
    ).digest()
    walk.media += 1
    weight = MEDIUM_BYTES // len(digest) if walk.media <= MAX_WEIGHED_MEDIA else 1
    return b"\x1d" + digest * weight


def _without_media(value: Any, walk: MediaCount, depth: int = 0) -> Any:
    """Return the value with media hashed and unrendered keys removed."""
    kind = type(value)
    if kind is not list and kind is not dict:
        return value
    walk.objects += 1
    if depth > _DEPTH or walk.objects > _MAX_OBJECTS:
        return value
    if kind is list:
        return [_without_media(item, walk, depth + 1) for item in value]
    out: dict[str, Any] = {}
    for key, item in value.items():
        if key == "cache_control":
            continue
        if type(item) is str:
            out[key] = (
                _hash_text(item) if len(item) > _MAX_PLAIN_CHARS and key in _DATA_KEYS else item
            )
        else:
            out[key] = _without_media(item, walk, depth + 1)
    return out


def _hash_text(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def _sorted_json(value: Any) -> bytes:
    return orjson.dumps(value, option=_SORTED)
