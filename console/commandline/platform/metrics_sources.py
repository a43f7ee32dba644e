"""`emberline metrics-source ...`: Prometheus servers with endpoint metrics.

`test` queries the source; exit codes: 0 complete, 1 warnings, 2 failed or not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.client import NotFound
from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import NOT_FOUND, CommandContext, CommandError, CommandResult
from console.commandline.verbs import add_group, add_verb

AUTHS = ("none", "bearer", "basic", "sigv4", "mtls")
_HEAD = ("NAME", "NUMBERS OF", "AUTH", "URL", "FOUND")
_VERDICTS = {"ok": 0, "warning": 1}
_NO = 2
# Option -> purpose; secrets are read from files here, so none appears in argv.
_PLAIN = {
    "url": "without /api/v1",
    "cluster": 'whose endpoints\' numbers it has; "": all whose cluster has no source',
    "username": "or AWS' access key id",
    "tenant": "sent in the tenant's header",
    "tenant_header": "default: X-Scope-OrgID",
    "region": "of AWS",
    "service": "of AWS; default: aps",
    "alertmanager_url": "alerts and silences go through it then",
    "secret_file": "the name of a file in the console's own folder of secrets",
    "key_file": "the name of a file in the console's own folder of secrets",
}
_FILES = {
    "secret": "file with the token, password or AWS' secret key",
    "ca": "file with the authority, in PEM",
    "certificate": "file with a client's certificate, in PEM",
    "key": "file with its key, in PEM",
}


def add_to(rooms: Any) -> None:
    text = "where numbers of endpoints are kept"
    verbs = add_group(rooms, "metrics-source", text)
    add_verb(verbs, "list", list_all, "every source beside the console's own", listing=True)
    add_verb(
        verbs,
        "get",
        get,
        "a source, and what it had when it was last tested",
        "name",
        listing=False,
    )
    adding = add_verb(verbs, "add", add, "let the console ask a Prometheus", "name")
    _add_facts(adding)
    changing = add_verb(verbs, "update", update, "what is left out stays as it is", "name")
    _add_facts(changing)
    add_verb(verbs, "test", test, "ask a source now what it has", "name", listing=False)
    add_verb(verbs, "remove", remove, "forget a source and its secrets", "name")


def _add_facts(parser: Any) -> None:
    parser.add_argument("--auth", choices=AUTHS, help="how it lets the console in")
    for name, text in _PLAIN.items():
        parser.add_argument(f"--{name.replace('_', '-')}", help=text)
    for name, text in _FILES.items():
        where = f"{name}_from"
        option = f"--{name}-from"
        parser.add_argument(
            option, dest=where, metavar="FILE", help=f'{text}; "-" reads standard input'
        )
    turned = parser.add_mutually_exclusive_group()
    turned.add_argument("--enable", action="store_true", help="let charts ask it")
    turned.add_argument("--disable", action="store_true", help="keep it, but ask it nothing")


def _facts(asked: CommandContext) -> dict[str, Any]:
    options = asked.options
    facts = {name: options[name] for name in ("auth", *_PLAIN) if options[name] is not None}
    for name in _FILES:
        if options[f"{name}_from"]:
            facts[name] = commandline_input.read_text(options[f"{name}_from"]).strip()
    if options["enable"] or options["disable"]:
        facts["enabled"] = bool(options["enable"])
    return facts


def list_all(asked: CommandContext) -> str:
    none = "There is no source beside the console's own. Add one: emberline metrics-source add NAME"
    found = asked.client.metrics_sources.list()
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none)


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    whose = one["cluster"] or "the rest"
    verdict = one["found"].get("verdict", "not tested yet")
    return (
        one["name"],
        whose if one["enabled"] else "nothing (disabled)",
        *(one["auth"], one["url"], verdict),
    )


def get(asked: CommandContext) -> str:
    return _format_source(asked, _get_or_fail(asked))


def add(asked: CommandContext) -> str:
    made = asked.client.metrics_sources.add(asked.name, _facts(asked))
    name = made["name"]
    return f"Source {name} is added. See what it has: emberline metrics-source test {name}"


def update(asked: CommandContext) -> str:
    _get_or_fail(asked)
    changed = asked.client.metrics_sources.change(asked.name, _facts(asked))
    return f"Source {changed['name']} is changed."


def test(asked: CommandContext) -> CommandResult:
    try:
        found = asked.client.metrics_sources.test(asked.name)
    except NotFound:
        raise CommandError(_not_found_text(asked), _NO) from None
    return CommandResult(
        _format_source(asked, found), _VERDICTS.get(found["found"]["verdict"], _NO)
    )


def remove(asked: CommandContext) -> str:
    _get_or_fail(asked)
    asked.client.metrics_sources.remove(asked.name)
    return f"Source {asked.name} is forgotten, with its secrets."


def _format_source(asked: CommandContext, one: Mapping[str, Any]) -> str:
    form = asked.options["output"]
    return "\n".join(_format_test(one)) if form == output.TABLE else output.format_data(one, form)


def _format_test(one: Mapping[str, Any]) -> Iterator[str]:
    whose = f"endpoints on {one['cluster']}" if one["cluster"] else "all without their own"
    used = "" if one["enabled"] else ", disabled"
    yield f"{one['name']}: {one['url']} ({one['auth']}), {whose}{used}"
    found = one["found"]
    if not found:
        yield f"Not tested yet: emberline metrics-source test {one['name']}"
        return
    yield f"  {found['software'] or 'It does not say what it is.'}"
    for finding in found["findings"]:
        yield f"  ! {finding['title']}: {finding['text']}"
        yield from (f"    {line}" for line in finding["fix"].splitlines())
    for job in found["jobs"]:
        yield f"  {job['up']}/{job['targets']} answer of job {job['name']}"
    for family in found["families"]:
        yield f"  {'+' if family['series'] else '-'} {family['name']}"


def _get_or_fail(asked: CommandContext) -> dict[str, Any]:
    try:
        return asked.client.metrics_sources.get(asked.name)
    except NotFound:
        raise CommandError(_not_found_text(asked), NOT_FOUND) from None


def _not_found_text(asked: CommandContext) -> str:
    known = ", ".join(one["name"] for one in asked.client.metrics_sources.list()) or "none yet"
    return f"There is no metrics source {asked.name}. There are: {known}."
