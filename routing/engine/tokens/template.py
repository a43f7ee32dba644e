"""Chat template rendering identical to transformers' `apply_chat_template` in vLLM.

The sandbox does not limit CPU time: templates come from the model folder or the operator, never
from requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.parser
import jinja2.sandbox
from jinja2 import nodes

from routing.engine.tokens import messages
from routing.engine.tokens.outcomes import TEMPLATE_ERROR, NoTokens
from routing.engine.tokens.requests import ChatPrompt, Json, ServerDefaults

STRING = "string"
PARTS = "openai"
# Exceptions that template code can raise, except resource exhaustion.
_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "


def content_format(tree: nodes.Template) -> str:
    """Return whether the template expects message content as a string or as parts.

    As vLLM's `--chat-template-content-format auto`: a template that loops over content needs parts.
    Names are followed exactly as far as vLLM does.
    """
    try:
        return PARTS if any(_content_loops(tree)) else STRING
    except _NoName:  # as in vLLM
        return STRING


class _NoName(Exception):
    """A loop or assignment with more than one plain name."""


def _is_name(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name


def _is_key(node: nodes.Node, name: str, key: str) -> bool:
    """Match `name["key"]` or `name.key`."""
    if isinstance(node, nodes.Getitem):
        return (
            _is_name(node.node, name)
            and isinstance(node.arg, nodes.Const)
            and node.arg.value == key
        )
    return isinstance(node, nodes.Getattr) and _is_name(node.node, name) and node.attr == key


def _is_reference(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Return True for the variable (or its key), possibly filtered, tested or sliced."""
    while node is not None:
        if isinstance(node, (nodes.Filter, nodes.Test)) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            node = node.node
            continue
        return _is_key(node, name, key) if key else _is_name(node, name)
    return False


def _assigned_name(node: nodes.Node) -> str:
    if not isinstance(node, nodes.Name):
        raise _NoName
    return node.name


def _aliases(tree: nodes.Template, name: str) -> list[str]:
    aliases = [name]
    for known_alias in aliases:  # grows during iteration
        for assign in tree.find_all(nodes.Assign):
            if _is_reference(assign.node, known_alias):
                alias = _assigned_name(assign.target)
                if alias != known_alias and alias not in aliases:
                    aliases.append(alias)
    return aliases


def _message_names(tree: nodes.Template) -> list[str]:
    aliases = _aliases(tree, "messages")
    return [
        _assigned_name(loop.target)
        for loop in tree.find_all(nodes.For)
        if any(_is_reference(loop.iter, alias) for alias in aliases)
    ]


def _macro_parameters(tree: nodes.Template, macro: nodes.Macro, messages: list[str]) -> set[str]:
    """Return macro parameters that receive a message's content."""
    names = [argument.name for argument in macro.args]
    macro_parameters: set[str] = set()
    for call in tree.find_all(nodes.Call):
        if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
            continue
        arguments = list(zip(names, call.args, strict=False))
        arguments += [(word.key, word.value) for word in call.kwargs if word.key in names]
        for name, value in arguments:
            if any(_is_reference(value, message, "content") for message in messages):
                macro_parameters.add(name)
    return macro_parameters


def _content_loops(tree: nodes.Template) -> Iterator[bool]:
    """Yield True for each loop over content."""
    messages = _message_names(tree)
    inside: dict[int, set[str]] = {}  # macro -> parameters with content
    for macro in tree.find_all(nodes.Macro):
        parameters = _macro_parameters(tree, macro, messages)
        for loop in macro.find_all(nodes.For):
            inside[id(loop)] = inside.get(id(loop), set()) | parameters
    for loop in tree.find_all(nodes.For):
        over = loop.iter
        is_wanted = any(_is_reference(over, message, "content") for message in messages)
        if not is_wanted and isinstance(over, nodes.Name):
            parameters = inside.get(id(loop), set())
            is_wanted = over.name in parameters or (
                id(loop) not in inside and over.name == "content"
            )
        if is_wanted:
            _assigned_name(loop.target)
            yield True


class TemplateUnusable(Exception):
    """The template is missing or does not compile."""


class _Generation(jinja2.ext.Extension):
    """Template tag of generated text. `{% generation %}` tag; renders its content unchanged."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> nodes.CallBlock:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_through")
        block = nodes.CallBlock(call, [], [], body)
        block.set_lineno(line)
        return block

    def _through(self, caller: Callable[[], str]) -> str:
        return caller()


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005 - the worker's local time, as there


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise_exception
    made.globals["strftime_now"] = _strftime_now
    return made


class ChatTemplate:
    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise TemplateUnusable(f"the chat template cannot be compiled: {error}") from None
        self.source = source
        self.content_format = content_format(tree)
        self.uses_clock = "strftime_now" in source
        self._knows_developer = '"developer"' in source or "'developer'" in source
        self._special_tokens = special_tokens

    def render(self, chat: ChatPrompt, defaults: ServerDefaults) -> str:
        """Raise NoTokens."""
        content_format = defaults.content_format
        as_parts = (self.content_format if content_format == "auto" else content_format) == PARTS
        conversation = messages.read_conversation(chat.messages, as_parts, chat.responses)
        if not self._knows_developer and any(item["role"] == "developer" for item in conversation):
            conversation = messages.merge_developer_messages(conversation)
        # vLLM treats unset, None and "auto" alike: the server's default applies.
        template_values = {k: v for k, v in chat.kwargs.items() if v is not None and v != "auto"}
        kwargs = {**defaults.template_kwargs, **template_values}
        try:
            return self._render(conversation, chat.tools, kwargs)
        except _ERRORS as error:
            raise NoTokens(TEMPLATE_ERROR, f"{type(error).__name__}: {error}") from None

    def _render(self, conversation: list[Json], tools: list[Json] | None, kwargs: Json) -> str:
        documents = kwargs.pop("documents", None)
        for document in documents or ():
            if not isinstance(document, dict):
                raise TypeError("documents must be objects")
        goes_on = kwargs.pop("continue_final_message", False)
        generation = kwargs.pop("add_generation_prompt", False)
        last = ""
        if goes_on:
            if generation:
                raise ValueError("continue_final_message and add_generation_prompt")
            last = self._mark_last(conversation[-1])
        text = self._template.render(
            messages=conversation,
            tools=tools,
            documents=documents,
            add_generation_prompt=generation,
            **{**self._special_tokens, **kwargs},
        )
        return _cut_at_mark(text, last) if goes_on else text

    def _mark_last(self, message: Json) -> str:
        """Append the marker to the text to be continued; return the text."""
        content = message["content"]
        if "content" not in self.source:
            raise ValueError("the template uses no content")
        if isinstance(content, str):
            message["content"] = content + _CONTINUE_TAG
            return content
        for part in reversed(content):
            if "text" in part:
                text: str = part["text"]
                part["text"] = text + _CONTINUE_TAG
                return text
        raise ValueError("the last message has no text to continue")


def _cut_at_mark(text: str, last: str) -> str:
    mark = _CONTINUE_TAG.strip()
    if last.strip() not in text or mark not in text:
        raise ValueError("the template does not show the last message")
    index = text.rindex(mark)
    if text[index : index + len(_CONTINUE_TAG)] == _CONTINUE_TAG:
        return text[:index]
    return text[:index].rstrip()  # the template stripped the message's end


class ChatTemplates:
    def __init__(self, sources: dict[str, str], special_tokens: dict[str, str]) -> None:
        if not sources:
            raise TemplateUnusable("the model has no chat template")
        self._templates = {
            name: ChatTemplate(source, special_tokens) for name, source in sources.items()
        }

    def pick(self, tools: list[Json] | None) -> ChatTemplate:
        template = self._templates.get("tool_use") if tools is not None else None
        template = template or self._templates.get("default")
        if template is None:
            raise NoTokens(TEMPLATE_ERROR, "several chat templates, and none is the default")
        return template

    @property
    def uses_clock(self) -> bool:
        return any(template.uses_clock for template in self._templates.values())
