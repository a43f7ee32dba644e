"""Convert a request's messages and tools to vLLM's chat template input.

Reproduces objects and key order of vLLM 0.32's request models and `parse_chat_messages` (templates
print them as JSON), or raises NoTokens. BAD_REQUEST: vLLM certainly rejects the input.
"""

from __future__ import annotations

import json
from typing import Any

from routing.engine.tokens.outcomes import BAD_REQUEST, MULTIMODAL, UNSUPPORTED_FIELD, NoTokens

Json = dict[str, Any]

# Keys that mark a part as media, independently of its type.
_MEDIA = frozenset(
    (
        *("audio_embeds", "audio_url", "image_embeds", "image_pil", "image_url", "input_audio"),
        *("input_image", "prompt_embeds", "video_embeds", "video_url", "file"),
    )
)
# Text key of a part by type.
_TEXT_KEYS = {"text": "text", "refusal": "refusal", "thinking": "thinking"}
_RESPONSES_TEXT_KEYS = {"input_text": "text", "output_text": "text", **_TEXT_KEYS}
# Known part keys; only unknown ones are kept beside the text.
_KNOWN_PART_KEYS = _MEDIA | {
    *("closed", "data", "name", "prompt_cache_breakpoint", "refusal", "text", "thinking"),
    *("type", "uuid"),
}
# The first line of Claude Code's system prompt changes per request; vLLM drops it.
BILLING_HEADER = "x-anthropic-billing-header"
_NULL_CONTENT_ROLES = ("assistant", "function")
_EXACT_INT = float(2**63)  # above this orjson returns a float where vLLM has an int


def _bad_request(what: str) -> NoTokens:
    return NoTokens(BAD_REQUEST, what)


def check_exact(value: Any) -> None:
    """Reject numbers that would print differently from the worker."""
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is dict:
            stack.extend(item.values())
        elif kind is list:
            stack.extend(item)
        elif kind is float and abs(item) >= _EXACT_INT:
            raise NoTokens(UNSUPPORTED_FIELD, "a number of more than 64 bits")


def read_tools(value: Any) -> list[Json] | None:
    """Return the tools as printed by vLLM's models: known keys in model order."""
    if value is None:
        return None
    if type(value) is not list or not value:
        raise _bad_request("tools")
    check_exact(value)
    return [_tool(item) for item in value]


def _tool(item: Any) -> Json:
    function = item.get("function") if type(item) is dict else None
    if type(function) is not dict or item.get("type", "function") != "function":
        raise _bad_request("tools")
    name, description = function.get("name"), function.get("description")
    parameters, strict = function.get("parameters"), function.get("strict")
    defer = item.get("defer_loading")
    inner_defer = function.get("defer_loading")
    well_formed = (
        type(name) is str
        and (description is None or type(description) is str)
        and (parameters is None or type(parameters) is dict)
        and (strict is None or type(strict) is bool)
        and (defer is None or type(defer) is bool)
        and (inner_defer is None or type(inner_defer) is bool)
    )
    if not well_formed:
        raise _bad_request("tools")
    inner: Json = {"name": name, "description": description, "parameters": parameters}
    if strict is not None:
        inner["strict"] = strict
    if inner_defer is None:
        inner_defer = defer
    if inner_defer is not None:
        inner["defer_loading"] = inner_defer
    out: Json = {"type": "function", "function": inner}
    if defer is not None:
        out["defer_loading"] = defer
    return out


def read_conversation(messages: list[Any], as_parts: bool, responses: bool = False) -> list[Json]:
    """Return messages for the template; `responses`: allow the part types of /v1/responses."""
    if not messages:
        raise _bad_request("messages")
    text_keys = _RESPONSES_TEXT_KEYS if responses else _TEXT_KEYS
    return [_message(message, as_parts, text_keys) for message in messages]


def _message(message: Any, as_parts: bool, text_keys: dict[str, str]) -> Json:
    if type(message) is not dict:
        raise _bad_request("messages")
    role = message.get("role")
    if type(role) is not str:
        raise _bad_request("role")
    content = message.get("content")
    if type(content) is str and role != "system":
        parts: list[Any] = [{"type": "text", "text": content}] if as_parts else [content]
    else:
        parts = _parts(role, message, text_keys, as_parts)
    # vLLM drops empty texts before joining.
    out: Json = {
        "role": role,
        "content": parts if as_parts else "\n".join([part for part in parts if part]),
    }
    plain = len(message) == 2 and "content" in message
    if not plain or role in ("assistant", "tool", "developer"):
        _add_extras(out, role, message)
    return out


def _parts(role: str, message: Json, text_keys: dict[str, str], as_parts: bool) -> list[Any]:
    content = message.get("content")
    if content is None:
        if "content" in message and role not in _NULL_CONTENT_ROLES:
            raise _bad_request("content")
        return []
    if type(content) is str:
        content = [content]
    if type(content) is not list:
        raise NoTokens(UNSUPPORTED_FIELD, "content")
    out: list[Any] = []
    for part in content:
        kind, text, extras = _part(part, text_keys)
        if role == "system" and kind == "text" and text.startswith(BILLING_HEADER):
            text = text.partition("\n")[2]
            if not text:
                continue
        if not as_parts:
            out.append(text)
        elif kind == _REFERENCE:
            out.append({"type": kind, "name": text})
        else:
            out.append({"type": "text", "text": text, **extras})
    return out


_NO_EXTRAS: Json = {}
_REFERENCE = "tool_reference"


def _part(part: Any, text_keys: dict[str, str]) -> tuple[str, str, Json]:
    """Return a part's type, text and further fields visible to the template."""
    if type(part) is str:
        return "text", part, _NO_EXTRAS
    if type(part) is not dict:
        raise _bad_request("content part")
    if not _MEDIA.isdisjoint(part):
        raise NoTokens(MULTIMODAL, "a content part is not text")
    kind = part.get("type")
    if type(kind) is not str:
        raise _bad_request("content part")
    if kind in _MEDIA:
        raise NoTokens(MULTIMODAL, "a content part is not text")
    if "uuid" in part:
        raise NoTokens(UNSUPPORTED_FIELD, "uuid")
    if kind == _REFERENCE:
        name = part.get("name")
        if type(name) is not str:
            raise NoTokens(UNSUPPORTED_FIELD, _REFERENCE)
        return _REFERENCE, name, _NO_EXTRAS
    if kind not in text_keys:
        raise _bad_request("content part")
    text = part.get(text_keys[kind])
    if type(text) is not str:
        raise NoTokens(UNSUPPORTED_FIELD, "content part")
    if len(part) == 2:
        return kind, text, _NO_EXTRAS
    extras = {key: value for key, value in part.items() if key not in _KNOWN_PART_KEYS}
    check_exact(extras)
    return kind, text, extras


def _add_extras(out: Json, role: str, message: Json) -> None:
    """Add the optional fields of a message in vLLM's order."""
    if role == "assistant":
        calls = message.get("tool_calls")
        if calls is not None:
            if type(calls) is not list:
                raise NoTokens(UNSUPPORTED_FIELD, "tool_calls")
            if calls:  # an empty list counts as absent
                out["tool_calls"] = [_tool_call(call) for call in calls]
        reasoning = message.get("reasoning")
        if reasoning is None:
            reasoning = message.get("reasoning_content")
        if reasoning is not None:
            if type(reasoning) is not str:  # valid in vLLM's models, fails in the template
                raise NoTokens(UNSUPPORTED_FIELD, "reasoning")
            out["reasoning"] = out["reasoning_content"] = reasoning
    elif role == "tool":
        if "tool_call_id" in message:
            out["tool_call_id"] = message["tool_call_id"]
        content = out["content"]
        if type(content) is list and all(item["type"] == "text" for item in content):
            out["content"] = "\n".join([item["text"] for item in content])
    if "name" in message:
        if type(message["name"]) is not str:
            raise NoTokens(UNSUPPORTED_FIELD, "name")
        out["name"] = message["name"]
    if type(message.get("task")) is str:
        out["task"] = message["task"]
    if role == "developer":
        if message.get("tools") is not None:
            raise NoTokens(UNSUPPORTED_FIELD, "tools of a developer message")
        out["tools"] = None


def _tool_call(call: Any) -> Json:
    function = call.get("function") if type(call) is dict else None
    if type(function) is not dict or call.get("type") != "function":
        raise _bad_request("tool_calls")
    identity, arguments, name = call.get("id"), function.get("arguments"), function.get("name")
    if type(identity) is not str or type(name) is not str or type(arguments) is not str:
        raise _bad_request("tool_calls")
    inner: Json = {"arguments": _parse_arguments(arguments), "name": name}
    if len(function) > 2:
        inner |= {key: value for key, value in function.items() if key not in inner}
        check_exact(function)
    out: Json = {"id": identity, "function": inner, "type": "function"}
    if len(call) > 3:
        out |= {key: value for key, value in call.items() if key not in out}
        check_exact(call)
    return out


def _parse_arguments(text: str) -> Json:
    """Parse tool call arguments; vLLM replaces non-objects by an empty object."""
    if not text:
        return {}
    try:
        parsed = json.loads(text)  # the worker uses the standard parser, NaN included
    except json.JSONDecodeError:
        return {}
    except (ValueError, RecursionError):
        raise _bad_request("arguments") from None
    return parsed if type(parsed) is dict else {}


def merge_developer_messages(messages: list[Json]) -> list[Json]:
    """Convert developer to system messages and merge them, for templates without that role."""
    turned: list[Json] = []
    for message in messages:
        if message["role"] == "developer":
            message = {key: value for key, value in message.items() if key != "tools"}
            message["role"] = "system"
        turned.append(message)
    texts: list[str] = []
    others: list[Json] = []
    scattered = False
    for index, message in enumerate(turned):
        if message["role"] != "system":
            others.append(message)
            continue
        scattered = scattered or index > 0
        content = message["content"]
        if type(content) is list:
            content = "\n".join([part["text"] for part in content if "text" in part])
        if content:
            texts.append(content)
    if not scattered:
        return turned
    return [{"role": "system", "content": "\n\n".join(texts)}, *others]
