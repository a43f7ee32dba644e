"""Detect whether a chat template expects message content as a string or as parts.

Implements vLLM's `--chat-template-content-format auto`: a template that loops over content wants
parts. Names are followed exactly as far as vLLM does.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes

STRING = "string"
PARTS = "openai"


def content_format(tree: nodes.Template) -> str:
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
    found = [name]
    for known in found:  # grows during iteration
        for assign in tree.find_all(nodes.Assign):
            if _is_reference(assign.node, known):
                alias = _assigned_name(assign.target)
                if alias != known and alias not in found:
                    found.append(alias)
    return found


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
    found: set[str] = set()
    for call in tree.find_all(nodes.Call):
        if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
            continue
        given = list(zip(names, call.args, strict=False))
        given += [(word.key, word.value) for word in call.kwargs if word.key in names]
        for name, value in given:
            if any(_is_reference(value, message, "content") for message in messages):
                found.add(name)
    return found


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
        wanted = any(_is_reference(over, message, "content") for message in messages)
        if not wanted and isinstance(over, nodes.Name):
            parameters = inside.get(id(loop), set())
            wanted = over.name in parameters or (id(loop) not in inside and over.name == "content")
        if wanted:
            _assigned_name(loop.target)
            yield True
