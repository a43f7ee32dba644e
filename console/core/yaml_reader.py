"""Reader of all YAML input: forms, manifests, kubeconfigs, files; and a fast writer.

Size, depth, documents and values are bounded before any value is constructed. An alias counts as
its expansion, so a short text cannot become a large object. Values are those of JSON: dates and
base-60 numbers stay text, as for `kubectl`. PyYAML's own loaders must not be used elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import yaml

MAX_CHARACTERS = 2_000_000
MAX_VALUES = 100_000
MAX_DEPTH = 60
MAX_DOCUMENTS = 1_000
_MAX_NUMBER = 400
_LONGEST_PROBLEM = 200
_TAGS = ("null", "bool", "int", "float", "str", "seq", "map")
_PREFIX = "tag:yaml.org,2002:"
T = TypeVar("T")
# libyaml's takes an eighteenth of the time; PyYAML may be built without it.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class YamlError(ValueError):
    """Rejected YAML text. `problem` contains no value of the text; `line` and `column` count from
    1, 0 if unknown.
    """

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        place = f" (line {line}, column {column})" if line else ""
        super().__init__(f"{problem}{place}")
        self.problem = problem
        self.line = line
        self.column = column


def render(value: Any, *, width: int = 1000, allow_unicode: bool = False) -> str:
    """Return the value as YAML, mappings in their own order."""
    return str(
        yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=allow_unicode)
    )


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: str | bytes) -> None:
        super().__init__(stream)
        self._values = self._depth = self._deepest = self._documents = 0
        self._sizes: dict[str, tuple[int, int]] = {}  # values and depth by anchor

    def compose_document(self) -> Any:
        self._documents += 1
        if self._documents > MAX_DOCUMENTS:
            self._refuse(f"the text contains more than {MAX_DOCUMENTS} documents")
        self._sizes = {}
        return super().compose_document()

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        anchor: str | None = event.anchor
        if isinstance(event, yaml.ScalarEvent):
            self._check_text(event.value)
        if self.check_event(yaml.AliasEvent):
            if anchor in self.anchors and anchor not in self._sizes:
                self._refuse("an alias refers to a value that contains it")
            self._count(*self._sizes.get(anchor or "", (1, 1)))
            return super().compose_node(parent, index)
        values, deepest = self._values, self._deepest
        self._count(1, 1)
        self._depth += 1
        self._deepest = self._depth
        node = super().compose_node(parent, index)
        self._depth -= 1
        if anchor is not None:
            self._sizes[anchor] = self._values - values, self._deepest - self._depth
        self._deepest = max(deepest, self._deepest)
        return node

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        tag: str = super().resolve(kind, value, implicit)
        base_60 = tag in (f"{_PREFIX}int", f"{_PREFIX}float") and ":" in value
        return f"{_PREFIX}str" if base_60 else tag

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Reject duplicate keys, like `kubectl`."""
        keys: set[str] = set()
        for key, _value in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key.value, str) or key.tag == f"{_PREFIX}merge":
                continue
            if key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is given twice", key.start_mark
                )
            keys.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        """Keep base-60 and very long numbers as text: converting them takes quadratic time."""
        text = self.construct_scalar(node)
        if ":" in text or len(text) > _MAX_NUMBER:
            raise yaml.constructor.ConstructorError(
                None, None, "a number has too many digits", node.start_mark
            )
        whole = node.tag == f"{_PREFIX}int"
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)

    def _count(self, values: int, levels: int) -> None:
        self._values += values
        self._deepest = max(self._deepest, self._depth + levels)
        if self._depth + levels > MAX_DEPTH:
            self._refuse(f"the values are nested deeper than {MAX_DEPTH} levels")
        if self._values > MAX_VALUES:
            self._refuse(f"the text contains more than {MAX_VALUES} values, aliases expanded")

    def _check_text(self, text: str) -> None:
        """Escapes can name what a database cannot store."""
        if "\0" in text:
            self._refuse("a value contains NUL")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            self._refuse("a value contains an unpaired surrogate")

    def _refuse(self, problem: str) -> None:
        raise yaml.composer.ComposerError(None, None, problem, self.peek_event().start_mark)


_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_PREFIX) in _TAGS
}
_Loader.add_constructor(f"{_PREFIX}int", _Loader.construct_number)
_Loader.add_constructor(f"{_PREFIX}float", _Loader.construct_number)
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag.removeprefix(_PREFIX) in (*_TAGS, "merge")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(text: str | bytes, max_characters: int = MAX_CHARACTERS) -> list[Any]:
    """Return the values of all documents, or raise `YamlError`."""
    return _read(text, max_characters, _values)


def read_document(text: str | bytes, max_characters: int = MAX_CHARACTERS) -> Any:
    """Return the value of a single document, None if empty."""
    documents = read_documents(text, max_characters)
    if len(documents) > 1:
        raise YamlError("the text contains more than one document")
    return documents[0] if documents else None


def key_lines(text: str, sections: Collection[str]) -> dict[str, int]:
    """Return the first line of each key of the first document below the mappings in `sections`, by
    dotted path.
    """
    lines: dict[str, int] = {}

    def walk(node: Any, prefix: str) -> None:
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            path = f"{prefix}{key.value}"
            lines.setdefault(path, key.start_mark.line + 1)
            if path in sections:
                walk(value, f"{path}.")

    walk(_read(text, MAX_CHARACTERS, _first_node), "")
    return lines


def _values(loader: _Loader) -> list[Any]:
    values = []
    while loader.check_data():
        values.append(loader.get_data())
    return values


def _first_node(loader: _Loader) -> Any:
    return loader.get_node() if loader.check_node() else None


def _read(text: str | bytes, max_characters: int, take: Callable[[_Loader], T]) -> T:
    if len(text) > max_characters:
        raise YamlError(
            f"the text has {len(text)} characters; at most {max_characters} are accepted"
        )
    try:
        return take(_Loader(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise YamlError(str(error.problem)[:_LONGEST_PROBLEM], line, column) from None
    except RecursionError:
        raise YamlError(f"the values are nested deeper than {MAX_DEPTH} levels") from None
    except (yaml.YAMLError, ValueError, UnicodeDecodeError) as error:
        raise YamlError(f"a character or value cannot be read: {type(error).__name__}") from None
