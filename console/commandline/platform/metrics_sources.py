"""`emberline metrics-source ...`: Prometheus servers with endpoint metrics.

`test` queries the source; exit codes: 0 complete, 1 warnings, 2 failed or not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.commandline.context import CommandContext, CommandResult
from console.commandline.input import known_name
from console.commandline.verbs import Table, Verb, Verbs

_VERDICTS = {"ok": 0, "warning": 1}
_NO = 2
# Option -> purpose; secrets are read from files here, so none appears in argv.
_PLAIN = {
    "url": "base URL, without /api/v1",
    "cluster": 'cluster of its endpoints; "": all clusters without a source',
    "username": "user name, or AWS access key ID",
    "tenant": "tenant ID, sent in the tenant header",
    "tenant_header": "header name (X-Scope-OrgID)",
    "region": "AWS region",
    "service": "AWS service (aps)",
    "alertmanager_url": "Alertmanager for alerts and silences",
    "secret_file": "file name in the console's secrets folder",
    "key_file": "file name in the console's secrets folder",
}
_KNOWN = ("metrics source", "metrics-sources")
_SWITCHES = (
    ("--enable", True, "use it for queries"),
    ("--disable", False, "keep it, but send no queries"),
)
_FILES = {
    "secret": "file with the token, password or AWS secret key",
    "ca": "CA certificate file (PEM)",
    "certificate": "client certificate file (PEM)",
    "key": "client key file (PEM)",
}


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    whose = one["cluster"] or "(others)"
    verdict = one["found"].get("verdict", "not tested")
    return (
        one["name"],
        whose if one["enabled"] else f"{whose}, disabled",
        *(one["auth"], one["url"], verdict),
    )


def test(context: CommandContext) -> CommandResult:
    with known_name(context, "metrics source", "metrics-sources", _NO):
        outcome = context.client.post("metrics-sources", context.name, "test")
    return CommandResult(outcome, _VERDICTS.get(outcome["found"]["verdict"], _NO))


def _format_source(one: Mapping[str, Any]) -> Iterator[str]:
    whose = f"endpoints on {one['cluster']}" if one["cluster"] else "all clusters without a source"
    used = "" if one["enabled"] else ", disabled"
    yield f"{one['name']}: {one['url']} ({one['auth']}), {whose}{used}"
    survey = one["found"]
    if not survey:
        yield f"Not tested. Test it: emberline metrics-source test {one['name']}"
        return
    yield f"  {survey['software'] or 'Unknown software'}"
    for finding in survey["findings"]:
        yield f"  ! {finding['title']}: {finding['text']}"
        yield from (f"    {line}" for line in finding["fix"].splitlines())
    for job in survey["jobs"]:
        yield f"  {job['up']}/{job['targets']} targets up in job {job['name']}"
    for family in survey["families"]:
        yield f"  {'+' if family['series'] else '-'} {family['name']}"


def _add_facts(verb: Verb) -> None:
    switch = verb.one_of()
    verb.add("--auth", choices=("none", "bearer", "basic", "sigv4", "mtls"), help="authentication")
    for name, text in _PLAIN.items():
        verb.add(f"--{name.replace('_', '-')}", help=text)
    for name, text in _FILES.items():
        verb.file(f"--{name}-from", name, text)
    for flag, enabled, text in _SWITCHES:
        either = {"dest": "enabled", "action": "store_const", "const": enabled, "help": text}
        verb.add(flag, to=switch, **either)


_SOURCES = Table(
    ("NAME", "CLUSTER", "AUTH", "URL", "RESULT"),
    _cells,
    "No metrics sources besides the built-in one. Add one: emberline metrics-source add NAME",
)


def add_metrics_sources(rooms: Verbs) -> None:
    verbs = rooms.group("metrics-source", "manage Prometheus metrics sources")
    verbs.verb("list", "list metrics sources", call="GET metrics-sources/", show=_SOURCES)
    path, text = "metrics-sources/{name}/", "show a metrics source with its last test"
    verbs.verb("get", text, "name", call=f"GET {path}", show=_format_source, known=_KNOWN)
    verb = verbs.verb(
        "add",
        "add a metrics source",
        "name",
        call="CREATE metrics-sources/",
        form={},
        show="Metrics source {name} added. Test it: emberline metrics-source test {name}",
    )
    _add_facts(verb)
    verb = verbs.verb(
        "update",
        "change the given fields",
        "name",
        call=f"PATCH {path}",
        known=_KNOWN,
        form={},
        show="Metrics source {name} changed.",
    )
    _add_facts(verb)
    verbs.verb("test", "test a metrics source now", "name", call=test, show=_format_source)
    verb = verbs.verb(
        "remove",
        "remove a metrics source and its secrets",
        "name",
        call=f"DELETE {path}",
        known=_KNOWN,
        show="Metrics source {name} and its secrets removed.",
    )
    verb.ask_first("Removing metrics source {name} deletes its secrets; boards lose its series.")
