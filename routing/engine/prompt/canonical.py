"""What a request's prompt is: its canonical bytes, whichever API it came by.

Promises that two bodies give bytes which are the same up to where their prompts are: whatever the
order and spacing of the JSON, keys that are empty or mean nothing to the prompt, and whether a
text came as a string or as parts. Chats, responses and messages of Anthropic's API end in the same
chat template, so they are written alike. An image or another medium is its hash, as long as some
hundred tokens of text. What changes the prompt from its first token on (model, adapter, salt,
template arguments) is not in the bytes but in a name beside them, which tells where a
chain begins.
Must not know hashing of blocks or routing, and gives no text to a log.
"""

from __future__ import annotations

from array import array
from typing import Any

import orjson
import xxhash

from routing.engine.errors import Refusal
from routing.engine.http.bodies import ReadPace

# Path: the field which holds the prompt, and whether it is a chat.
_FIELDS: dict[bytes, tuple[str, bool]] = {
    b"/v1/chat/completions": ("messages", True),
    b"/v1/completions": ("prompt", False),
    b"/v1/responses": ("input", True),
    b"/v1/messages": ("messages", True),
    b"/v1/embeddings": ("input", False),
}
# Fields which change a prompt from its beginning on; vLLM mixes the model (which names the LoRA
# adapter) and the salt into its first block, the others are arguments of template and processor.
_BEGINNING = frozenset(
    (
        *("add_special_tokens", "cache_salt", "chat_template", "chat_template_kwargs"),
        *("documents", "media_io_kwargs", "mm_processor_kwargs"),
        *("previous_response_id", "reasoning", "reasoning_effort"),
        *("truncate_prompt_tokens", "truncation_side"),
    )
)
# Of a message or part: told apart elsewhere, or never rendered.
_NOT_RENDERED = frozenset(("role", "content", "cache_control", "id", "status"))
_TEXTS = (None, "text", "input_text", "output_text")
_MEDIA = frozenset(
    (
        *("image", "image_url", "input_image", "image_embeds", "image_pil"),
        *("video", "video_url", "audio", "audio_url", "audio_embeds", "input_audio"),
        *("file", "input_file", "document", "prompt_embeds"),
    )
)
_BULK = 256  # a longer string under one of these names is data, and is written as its hash
_BULKY = frozenset(("url", "data", "image_url", "file_data"))
MEDIUM_BYTES = 2048  # what a medium weighs: about 500 tokens, as usual images do
MEDIA_WEIGHED = 64  # the first of a request; each further one weighs as much as its hash
_DEPTH = 16
_WALKED = 10_000  # objects and arrays of a request in which media are looked for
_SLICE = 32  # messages
_SORTED = orjson.OPT_SORT_KEYS


# What a chain's beginning depends on: kind of prompt, model, and the rest as JSON.
Name = tuple[bytes, str, bytes]
# Canonical bytes, name, whether they are token ids (four bytes each), and whether they are text
# only: then their length tells how many tokens they have.
Prompt = tuple[bytes, Name, bool, bool]
_NOTHING: Prompt = (b"", (b"", "", b""), False, False)


def api_of(body: dict[str, Any]) -> bytes | None:
    """The path a bare body is meant for."""
    for path in (b"/v1/chat/completions", b"/v1/completions", b"/v1/responses"):
        if _FIELDS[path][0] in body:
            return path
    return None


def check_counts(path: bytes, body: dict[str, Any], messages: int, parts: int) -> None:
    """Raise Refusal where the body has more messages, tools, prompts or parts than this."""
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
    found = body.get(name)
    contents = [item.get("content") for item in found if type(item) is dict] if found else []
    count = sum(len(each) for each in (*contents, body.get("system")) if type(each) is list)
    if count > parts:
        text = f"The content of {name} has {count} parts; at most {parts} are accepted"
        raise Refusal("too_many_parts", f"{text} (limits.parts).", f"{name}.content")


def read(path: bytes, body: dict[str, Any], model: str) -> Prompt:
    """May raise TypeError or UnicodeEncodeError for what the engine will refuse too."""
    field = _FIELDS.get(path)
    if field is None:
        return _NOTHING
    name, is_chat = field
    if not is_chat:
        return _plain(body, body.get(name), model)
    parts, walk = _before(body)
    exact = _messages(_listed(body.get(name)), parts, walk)
    return _prompt(body, model, b"".join(parts), exact, b"chat")


async def read_large(path: bytes, body: dict[str, Any], model: str, pace: ReadPace) -> Prompt:
    """As `read`, in slices."""
    field = _FIELDS.get(path)
    if field is None or not field[1]:
        return read(path, body, model)
    parts, walk = _before(body)
    exact = True
    messages = _listed(body.get(field[0]))
    for at in range(0, len(messages), _SLICE):
        exact = _messages(messages[at : at + _SLICE], parts, walk) and exact
        await pace.pause()
    return _prompt(body, model, b"".join(parts), exact, b"chat")


def _plain(body: dict[str, Any], value: Any, model: str) -> Prompt:
    data, kind, exact = _texts(value)
    embeds = body.get("prompt_embeds")
    if embeds:
        part = {"type": "prompt_embeds", "data": embeds}
        data, exact = _part(part, Walk()) + data, False
    return _prompt(body, model, data, exact, kind)


def _prompt(body: dict[str, Any], model: str, data: bytes, exact: bool, kind: bytes) -> Prompt:
    rest = b"" if body.keys().isdisjoint(_BEGINNING) else _beginning(body)
    return data, (kind, model, rest), kind == b"ids", exact


def _beginning(body: dict[str, Any]) -> bytes:
    fields = body.keys() & _BEGINNING
    told = {name: body[name] for name in fields if body[name] not in (None, "", [], {})}
    return _stable(told) if told else b""


# -- texts and token ids


def _texts(value: Any) -> tuple[bytes, bytes, bool]:
    """A text, token ids, or a list of either: then the first, which is computed first, leads."""
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass"), b"text", True
    if type(value) is not list or not value:
        return b"", b"text", False
    first = value[0]
    if type(first) is int:
        return _ids(value), b"ids", True
    if type(first) is list:
        rest = [b"\xff\xff\xff\xff" + _ids(item) for item in value[1:]]
        return b"".join([_ids(first), *rest]), b"ids", True
    parts = [
        item.encode("utf-8", "surrogatepass") if type(item) is str else _stable(item)
        for item in value
    ]
    return b"\x1e".join(parts), b"text", True


def _ids(value: Any) -> bytes:
    if type(value) is list:
        try:
            return array("I", value).tobytes()
        except OverflowError:
            pass
    raise TypeError("token ids are whole numbers from 0 to 2**32 - 1")


# -- chats


class Walk:
    """How many media were written of a request, and how many of its objects were looked into."""

    __slots__ = ("media", "objects")

    def __init__(self) -> None:
        self.media = 0
        self.objects = 0


def _before(body: dict[str, Any]) -> tuple[list[bytes], Walk]:
    """What comes before the messages: tools and instructions."""
    parts: list[bytes] = []
    walk = Walk()
    tools = body.get("tools")
    if tools:
        parts.append(b"\x1d" + _stable(_squeezed(tools, walk)))
    system = body.get("system") or body.get("instructions")
    if system:
        parts.append(_message({"role": "system", "content": system}, walk))
    return parts, walk


def _listed(messages: Any) -> list[Any]:
    if type(messages) is str:
        return [{"role": "user", "content": messages}]
    return messages if type(messages) is list else []


def _messages(messages: list[Any], parts: list[bytes], walk: Walk) -> bool:
    """Append each message's bytes; whether all of them are text only."""
    exact = True
    for message in messages:
        if type(message) is dict and len(message) == 2:
            content = message.get("content")
            role = message.get("role")
            if type(content) is str and type(role) is str:  # nearly all are like this
                parts.append(f"\x1e{role}\x1f{content}".encode("utf-8", "surrogatepass"))
                continue
        parts.append(_message(message, walk))
        exact = exact and _is_text(message)
    return exact


def _is_text(message: Any) -> bool:
    content = message.get("content") if type(message) is dict else None
    return type(content) is not list or all(
        type(part) is dict and type(part.get("text")) is str for part in content
    )


def _message(message: Any, walk: Walk) -> bytes:
    if type(message) is not dict:
        return b"\x1e" + _stable(message)
    role = message.get("role")
    kind = message.get("type")
    content = message.get("content")
    if type(content) is str:
        text = content.encode("utf-8", "surrogatepass")
    elif type(content) is list:
        text = _parts(content, walk)
    else:
        text = b"" if content is None else _stable(content)
    head = f"\x1e{role if type(role) is str else ''}\x1f".encode("utf-8", "surrogatepass")
    rest = {
        key: _squeezed(value, walk)
        for key, value in message.items()
        if key not in _NOT_RENDERED and value not in (None, "", [], {})
    }
    if kind == "message":
        del rest["type"]
    return head + text + (b"\x1c" + _stable(rest) if rest else b"")


def _parts(parts: list[Any], walk: Walk) -> bytes:
    """Texts are joined by a line break, as vLLM does for templates which want a string."""
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
            out.append(_stable(part))
    return b"\n".join(out)


def _part(part: dict[str, Any], walk: Walk) -> bytes:
    kind = part.get("type")
    if kind not in _MEDIA if type(kind) is str else True:
        return b"\x1d" + _stable(_squeezed(part, walk))
    uuid = part.get("uuid")  # vLLM's own name for a medium, which may then not be sent again
    digest = xxhash.xxh3_128(_stable([kind, uuid] if uuid else _squeezed(part, walk))).digest()
    walk.media += 1
    weight = MEDIUM_BYTES // len(digest) if walk.media <= MEDIA_WEIGHED else 1
    return b"\x1d" + digest * weight


def _squeezed(value: Any, walk: Walk, depth: int = 0) -> Any:
    """The same with each medium's data as its hash, and without what is not rendered."""
    kind = type(value)
    if kind is not list and kind is not dict:
        return value
    walk.objects += 1
    if depth > _DEPTH or walk.objects > _WALKED:
        return value
    if kind is list:
        return [_squeezed(item, walk, depth + 1) for item in value]
    out: dict[str, Any] = {}
    for key, item in value.items():
        if key == "cache_control":
            continue
        if type(item) is str:
            out[key] = _hashed(item) if len(item) > _BULK and key in _BULKY else item
        else:
            out[key] = _squeezed(item, walk, depth + 1)
    return out


def _hashed(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def _stable(value: Any) -> bytes:
    return orjson.dumps(value, option=_SORTED)
