"""`emberline metrics-source ...`: Prometheus servers with endpoint metrics.

`test` queries the source; exit codes: 0 complete, 1 warnings, 2 failed or not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.commandline.context import CommandContext, CommandResult
from console.commandline.input import known_name, read_text
from console.commandline.verbs import Table, Verb, Verbs

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


def _facts(asked: CommandContext) -> dict[str, Any]:
    facts = asked.given("auth", *_PLAIN)
    for name in _FILES:
        if asked.options[f"{name}_from"]:
            facts[name] = read_text(asked.options[f"{name}_from"]).strip()
    if asked.options["enable"] or asked.options["disable"]:
        facts["enabled"] = bool(asked.options["enable"])
    return facts


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    whose = one["cluster"] or "the rest"
    verdict = one["found"].get("verdict", "not tested yet")
    return (
        one["name"],
        whose if one["enabled"] else "nothing (disabled)",
        *(one["auth"], one["url"], verdict),
    )


def get(asked: CommandContext) -> dict[str, Any]:
    with known_name(asked, "metrics source", asked.client.metrics_sources):
        return asked.client.metrics_sources.get(asked.name)


def update(asked: CommandContext) -> dict[str, Any]:
    get(asked)
    return asked.client.metrics_sources.change(asked.name, _facts(asked))


def test(asked: CommandContext) -> CommandResult:
    with known_name(asked, "metrics source", asked.client.metrics_sources, _NO):
        found = asked.client.metrics_sources.test(asked.name)
    return CommandResult(found, _VERDICTS.get(found["found"]["verdict"], _NO))


def remove(asked: CommandContext) -> None:
    get(asked)
    asked.client.metrics_sources.remove(asked.name)


def _format_source(one: Mapping[str, Any]) -> Iterator[str]:
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


def _add_facts(verb: Verb) -> None:
    verb.add(
        "--auth",
        choices=("none", "bearer", "basic", "sigv4", "mtls"),
        help="how it lets the console in",
    )
    for name, text in _PLAIN.items():
        verb.add(f"--{name.replace('_', '-')}", help=text)
    for name, text in _FILES.items():
        verb.add(f"--{name}-from", metavar="FILE", help=f'{text}; "-" reads standard input')
    either = verb.one_of()
    either.add_argument("--enable", action="store_true", help="let charts ask it")
    either.add_argument("--disable", action="store_true", help="keep it, but ask it nothing")


_SOURCES = Table(
    ("NAME", "NUMBERS OF", "AUTH", "URL", "FOUND"),
    _cells,
    "There is no source beside the console's own. Add one: emberline metrics-source add NAME",
)


def add_metrics_sources(rooms: Verbs) -> None:
    verbs = rooms.group(
        "metrics-source", "where numbers of endpoints are kept", client="metrics_sources"
    )
    verbs.verb("list", "every source beside the console's own", show=_SOURCES)
    verbs.verb(
        "get",
        "a source, and what it had when it was last tested",
        "name",
        call=get,
        show=_format_source,
    )
    verb = verbs.verb(
        "add",
        "let the console ask a Prometheus",
        "name",
        call=lambda asked: asked.client.metrics_sources.add(asked.name, _facts(asked)),
        show="Source {name} is added. See what it has: emberline metrics-source test {name}",
    )
    _add_facts(verb)
    verb = verbs.verb(
        "update",
        "what is left out stays as it is",
        "name",
        call=update,
        show="Source {name} is changed.",
    )
    _add_facts(verb)
    verbs.verb("test", "ask a source now what it has", "name", call=test, show=_format_source)
    verbs.verb(
        "remove",
        "forget a source and its secrets",
        "name",
        call=remove,
        show="Source {name} is forgotten, with its secrets.",
    )
