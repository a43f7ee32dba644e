"""Does a chat template want a message's content as one string, or as a list of parts?

Promises the answer vLLM's `--chat-template-content-format auto` comes to, by its own rule: a
template which loops over a message's content wants parts. Names are followed through assignments
and macro parameters as far as vLLM follows them, and no further: here being cleverer is being
wrong. Must not know requests.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes

STRING = "string"
PARTS = "openai"


def content_format(tree: nodes.Template) -> str:
    try:
        return PARTS if any(_content_loops(tree)) else STRING
    except _NoName:  # vLLM gives up here, too
        return STRING


class _NoName(Exception):
    """A loop or an assignment sets more than one plain name."""


def _is_name(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name


def _is_key(node: nodes.Node, name: str, key: str) -> bool:
    """`name["key"]` or `name.key`"""
    if isinstance(node, nodes.Getitem):
        return (
            _is_name(node.node, name)
            and isinstance(node.arg, nodes.Const)
            and node.arg.value == key
        )
    return isinstance(node, nodes.Getattr) and _is_name(node.node, name) and node.attr == key


def _reads(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Is it the variable (or its key), perhaps filtered, tested or sliced?"""
    while node is not None:
        if isinstance(node, (nodes.Filter, nodes.Test)) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            node = node.node
            continue
        return _is_key(node, name, key) if key else _is_name(node, name)
    return False


def _target(node: nodes.Node) -> str:
    if not isinstance(node, nodes.Name):
        raise _NoName
    return node.name


def _aliases(tree: nodes.Template, name: str) -> list[str]:
    found = [name]
    for known in found:  # grows while it is walked
        for assign in tree.find_all(nodes.Assign):
            if _reads(assign.node, known):
                alias = _target(assign.target)
                if alias != known and alias not in found:
                    found.append(alias)
    return found


def _message_names(tree: nodes.Template) -> list[str]:
    aliases = _aliases(tree, "messages")
    return [
        _target(loop.target)
        for loop in tree.find_all(nodes.For)
        if any(_reads(loop.iter, alias) for alias in aliases)
    ]


def _macro_parameters(tree: nodes.Template, macro: nodes.Macro, messages: list[str]) -> set[str]:
    """Parameters which are given a message's content somewhere."""
    names = [argument.name for argument in macro.args]
    found: set[str] = set()
    for call in tree.find_all(nodes.Call):
        if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
            continue
        given = list(zip(names, call.args, strict=False))
        given += [(word.key, word.value) for word in call.kwargs if word.key in names]
        for name, value in given:
            if any(_reads(value, message, "content") for message in messages):
                found.add(name)
    return found


def _content_loops(tree: nodes.Template) -> Iterator[bool]:
    """True for each loop over content."""
    messages = _message_names(tree)
    inside: dict[int, set[str]] = {}  # a loop in a macro: the parameters which hold content
    for macro in tree.find_all(nodes.Macro):
        parameters = _macro_parameters(tree, macro, messages)
        for loop in macro.find_all(nodes.For):
            inside[id(loop)] = inside.get(id(loop), set()) | parameters
    for loop in tree.find_all(nodes.For):
        over = loop.iter
        wanted = any(_reads(over, message, "content") for message in messages)
        if not wanted and isinstance(over, nodes.Name):
            parameters = inside.get(id(loop), set())
            wanted = over.name in parameters or (id(loop) not in inside and over.name == "content")
        if wanted:
            _target(loop.target)
            yield True
