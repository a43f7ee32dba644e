"""Command table: the name, help, arguments, call and printed form of every verb."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from string import Formatter
from typing import Any

from console.commandline import output
from console.commandline.context import CommandContext, CommandResult
from console.commandline.input import confirm, known_name, parse_facts, read_text

_FORMS = (output.TABLE, output.JSON, output.YAML)
OUTPUT: dict[str, Any] = {
    "type": lambda word: output.TABLE if word == "text" else word,  # former name
    "choices": _FORMS,
    "default": output.TABLE,
    "help": "output format",
}
OUTPUT_NAMES = OUTPUT | {
    "choices": (*_FORMS, output.NAME),
    "help": "output format; name: names only",
}
OUTPUT_DATA = {
    "choices": (output.YAML, output.JSON),
    "default": output.YAML,
    "help": "output format (yaml)",
}


_SCOPES = {
    *("--before", "--begin", "--cluster", "--end", "--endpoint", "--namespace", "--tag", "--team"),
    *("--trace", "--user"),
}


class _Scope(argparse.Action):
    """Option without which a verb applies to everything: "", as of an unset variable, is not it."""

    def __call__(self, _parser: Any, namespace: Any, value: Any, _flag: str | None = None) -> None:
        if not value:
            raise argparse.ArgumentError(self, "is empty. Omit the option for all.")
        setattr(namespace, self.dest, value)


class Table:
    """Printed form of a list. `cells` maps a row to its columns, of which the first is its name.
    `none` is the text for an empty list and may refer to options, as in "{name}"; `names`: the
    names alone can be printed.
    """

    def __init__(
        self,
        head: Sequence[str],
        cells: Callable[[Any], Sequence[str]],
        none: str = "",
        *,
        names: bool = True,
    ) -> None:
        self.head, self.cells, self.none = head, cells, none
        self.form = OUTPUT_NAMES if names else OUTPUT

    def format(self, found: Iterable[Any], options: Mapping[str, Any]) -> str:
        listed, form = list(found), options["output"]
        if form == output.NAME:
            key = self.head[0].lower()
            return "\n".join(str(row[key]) if key in row else self.cells(row)[0] for row in listed)
        if form != output.TABLE:
            return output.format_data(listed, form)
        return self.text(listed) if listed or not self.none else self.none.format_map(options)

    def text(self, rows: Iterable[Any]) -> str:
        return output.table(self.head, map(self.cells, rows))


class ArgumentText:
    """Printed form of a document that also depends on the command's arguments."""

    def __init__(self, lines: Callable[[Any, Mapping[str, Any]], Iterable[str]]) -> None:
        self.lines = lines


Call = Callable[[CommandContext], Any]
Show = Table | ArgumentText | str | Callable[[Any], str | Iterable[str]] | None


class Verb:
    """A verb on its parser. See `Verbs.verb`."""

    def __init__(self, parser: Any, call: Call | str, show: Show, sends: Mapping[str, Any]) -> None:
        self.parser, self.call, self._show, self._sends = parser, call, show, sends
        self.form: Mapping[str, Any] | None = None
        self._consequence = ""
        if isinstance(show, Table):
            self.form = show.form
        elif callable(show) or isinstance(show, ArgumentText):
            self.form = OUTPUT
        self._arguments: list[str] = []
        self._files: set[str] = set()
        self.known: tuple[str, str] | None = None
        parser.set_defaults(run=self._run)

    def add(self, *flags: str, to: Any = None, **options: Any) -> None:
        """`to`: the result of `one_of`."""
        if flags[0] in _SCOPES and options.get("default") == "":
            options["action"] = _Scope
        self._arguments.append((to or self.parser).add_argument(*flags, **options).dest)

    def file(self, flag: str, name: str, text: str) -> None:
        """Add an option whose value is the text of a file, for what other users must not see."""
        self.add(flag, dest=name, metavar="FILE", help=f"{text}; - reads standard input")
        self._files.add(name)

    def fields(self, text: str, name: str = "fields", nargs: str = "+") -> None:
        """Add positional FIELD=VALUE arguments, fields of the request's body."""
        self.add(name, nargs=nargs, metavar="FIELD=VALUE", help=text)

    def spec(self, text: str, *, positional: bool = True) -> None:
        """Add a file with fields, and FIELD=VALUE for single ones, also as `--set`."""
        self.add("-f", "--file", default="", help="JSON or YAML file; - reads standard input")
        options = {"default": [], "metavar": "FIELD=VALUE", "help": text}
        self.add("--set", dest="fields", action="append", **options)
        if positional:
            self.add("fields", nargs="*", action="extend", **options)

    def output(self) -> None:
        """Add `--output` if the verb has one; it is the last option where this is not called."""
        if self.form is not None:
            self.parser.add_argument("-o", "--output", **self.form)
        self.form = None

    def ask_first(self, consequence: str = "") -> None:
        """Add `--yes`; without it the verb prompts. `consequence` is a sentence that may refer to
        options, as in "{name}"; "" if the call confirms by itself.
        """
        self._consequence = consequence
        self.parser.add_argument("-y", "--yes", action="store_true", help="skip the confirmation")

    def one_of(self, *, required: bool = False) -> Any:
        return self.parser.add_mutually_exclusive_group(required=required)

    def _run(self, context: CommandContext) -> CommandResult:
        if self._consequence:
            named = str(context.options[self._arguments[0]])
            confirm(context, named, self._consequence.format_map(context.options))
        with known_name(context, *self.known) if self.known else nullcontext():
            answer = self._send(context) if isinstance(self.call, str) else self.call(context)
        result = answer if isinstance(answer, CommandResult) else CommandResult(answer)
        return CommandResult(self._format(result.answer, context.options), result.exit_code)

    def _send(self, context: CommandContext) -> Any:
        method, path = str(self.call).split()
        options, parts = context.options, path.strip("/").split("/")
        in_path = {name for _, name, _, _ in Formatter().parse(path)}
        rest: dict[str, Any] = {
            name: read_text(options[name]).strip() if name in self._files else options[name]
            for name in self._arguments
            if name not in in_path and self._is_given(name, options[name])
        }
        where = [part.format_map(options) for part in parts]
        if method == "GET" and isinstance(self._show, Table):
            return context.client.pages(*where, **rest)
        if method in ("GET", "DELETE"):
            return context.client.send(method, *where, query=rest).body
        data = rest | parse_facts(rest.pop("fields", [])) | dict(self._sends)
        once = method == "CREATE"
        return context.client.send(
            "POST" if once else method, *where, data=data or None, once=once
        ).body

    def _is_given(self, name: str, value: Any) -> bool:
        """Return False for an option left out; "" clears a field if it is not the default."""
        return value not in (None, []) and (value != "" or self.parser.get_default(name) is None)

    def _format(self, answer: Any, options: Mapping[str, Any]) -> str:
        form = options.get("output", output.TABLE)
        if self._show is None:
            return str(answer)
        if isinstance(self._show, str):
            return self._show.format_map(
                {**options, **(answer if isinstance(answer, Mapping) else {})}
            )
        if isinstance(self._show, Table):
            return self._show.format(answer, options)
        if form == output.NAME:
            return str(answer["name"])
        if form != output.TABLE:
            return output.format_data(answer, form)
        if isinstance(self._show, ArgumentText):
            return "\n".join(self._show.lines(answer, options))
        text = self._show(answer)
        return text if isinstance(text, str) else "\n".join(text)


class Verbs:
    """The verbs of one command."""

    def __init__(self, parsers: Any) -> None:
        self._parsers = parsers
        self._groups: list[Verbs] = []
        self._verbs: list[Verb] = []

    def group(self, name: str, text: str, dest: str = "verb") -> Verbs:
        parser = self._parsers.add_parser(name, help=text)
        parsers = parser.add_subparsers(dest=dest, required=True, metavar="VERB")
        self._groups.append(Verbs(parsers))
        return self._groups[-1]

    def verb(
        self,
        name: str,
        text: str,
        *arguments: str,
        call: Call | str,
        show: Show = None,
        form: Mapping[str, Any] | None = None,
        sends: Mapping[str, Any] | None = None,
        known: tuple[str, str] | None = None,
    ) -> Verb:
        """Add a verb. `call` returns text or a document, in a CommandResult where the exit code is
        a verdict. As a string it is a request, as in "POST endpoints/{name}/explain/": arguments
        that the path does not name are query parameters of GET and DELETE, else fields of the body,
        beside those in `sends`. CREATE is a POST that takes effect once, however often it is sent.
        `show` formats a document for people: a table, lines, or a text that may refer to fields and
        options, as in "{name} is added." `known`: noun and list of the rows that are named if the
        verb's is not found. A document has `--output`; `form` is one that differs, {}
        is none.
        """
        parser = self._parsers.add_parser(name, help=text)
        verb = Verb(parser, call, show, sends or {})
        verb.known = known
        verb.form = verb.form if form is None else form or None
        for argument in arguments:
            verb.add(argument)
        self._verbs.append(verb)
        return verb

    def finish(self) -> None:
        """Add the last option of every verb."""
        for verb in self._verbs:
            verb.output()
        for group in self._groups:
            group.finish()


def endpoint_verb(verbs: Verbs, name: str, text: str, **options: Any) -> Verb:
    """Add a verb whose first argument is an endpoint."""
    verb = verbs.verb(name, text, **options)
    verb.add("name", help="endpoint name")
    return verb
