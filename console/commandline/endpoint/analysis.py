"""`endpoint doctor | routers | kv-index | decisions | decision | explain | fit | preview`, which
change nothing, and `doctor` for the console itself.

Exit codes of `endpoint doctor`: 0 no errors or warnings, 1 warnings, 2 errors or no such endpoint;
of `doctor`: 1 if a requirement is missing; of `fit`: 1 if it does not fit.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from console.client import NotFound
from console.commandline import output
from console.commandline.context import (
    FAILED,
    OK,
    USAGE,
    CommandContext,
    CommandError,
    CommandResult,
)
from console.commandline.endpoint.keys import find_key_id
from console.commandline.input import merge, parse_settings, read_document, read_text
from console.commandline.verbs import Table, Verbs
from console.core.money import format_usd_hour

_VERDICTS = {"error": 2, "warning": 1}
_SEVERITIES = {"error": "✗", "warning": "!", "info": "·"}
_EVIDENCE = 8


def preflight(context: CommandContext) -> str:
    if context.here is None:
        text = (
            "emberline doctor runs on the console's machine only. Use kubectl exec or log in there."
        )
        raise CommandError(text, USAGE)
    text, well = context.here.doctor()
    if not well:
        raise CommandError(text, FAILED)
    return text


def examine_endpoint(context: CommandContext) -> CommandResult:
    try:
        examination = context.client.get("endpoints", context.name, "doctor")
    except NotFound as error:
        raise CommandError(str(error), _VERDICTS["error"]) from None
    return CommandResult(examination, _VERDICTS.get(examination["verdict"], 0))


def _format_examination(found: dict[str, Any]) -> str:
    lines: list[str] = []
    for finding in found["findings"]:
        lines += [*_finding(finding), ""]
    skipped = [check for check in found["checks"] if check["state"] == "skipped"]
    if skipped:
        width = max(len(check["code"]) for check in skipped)
        lines += [
            "Skipped checks:",
            *(f"  {check['code']:{width}}  {check['why']}" for check in skipped),
            "",
        ]
    return "\n".join([*lines, _summary(found, len(skipped))])


def _summary(found: dict[str, Any], skipped: int) -> str:
    severities = [finding["severity"] for finding in found["findings"]]
    counts = {severity: severities.count(severity) for severity in _SEVERITIES}
    words = [
        f"{count} {word}{'s' if count != 1 else ''}" for word, count in counts.items() if count
    ]
    passed = sum(check["state"] == "passed" for check in found["checks"])
    left = f", {skipped} skipped" if skipped else ""
    return (
        f"{found['endpoint']}: {', '.join(words) or 'no problems'}. "
        f"{passed} of {len(found['checks'])} checks passed{left}; "
        f"{output.count(len(found['workers']), 'worker')}, "
        f"strategy {found['strategy'] or 'unknown'}, {found['seconds']:.1f} s."
    )


def _finding(finding: dict[str, Any]) -> Iterator[str]:
    severity, evidence = finding["severity"], finding["evidence"]
    yield f"{_SEVERITIES.get(severity, '?')} {severity} {finding['code']}: {finding['what']}"
    for line in evidence[:_EVIDENCE]:
        yield f"    {line}"
    if len(evidence) > _EVIDENCE:
        yield f"    and {len(evidence) - _EVIDENCE} more"
    yield f"  → {finding['fix']}"


def _decision(one: dict[str, Any]) -> tuple[str, ...]:
    ttft, cached = one.get("ttft_s"), one.get("cached_tokens")
    return tuple(
        str(cell) if cell is not None else ""
        for cell in (
            one.get("id"),
            _format_time(one.get("time")),
            one.get("strategy"),
            one.get("chosen"),
            one.get("reason"),
            one.get("prompt_tokens"),
            one.get("predicted_cached_tokens") if cached is None else cached,
            f"{ttft * 1000:.0f} ms" if isinstance(ttft, (int, float)) else "",
            one.get("status"),
        )
    )


def list_decisions(context: CommandContext) -> Any:
    path = ("endpoints", context.name, "decisions")
    return context.client.get(*path, limit=context.options["limit"])["decisions"]


def format_decision(found: dict[str, Any]) -> str:
    """Format a decision record, its candidates as a table."""
    candidates = found.get("candidates") or []
    parts = [
        f"{key}: {value if isinstance(value, str) else output.truncate(value, 200)}"
        for key, value in found.items()
        if key != "candidates" and value not in (None, "", [], {})
    ]
    return "\n".join([*parts, *_candidates(candidates, found.get("chosen"))])


def _candidates(found: list[dict[str, Any]], chosen: Any) -> list[str]:
    if not found:
        return []
    columns = list(dict.fromkeys(key for candidate in found for key in candidate))
    rows = [
        [
            "→" if chosen in (candidate.get("worker"), candidate.get("id")) else "",
            *(output.cell(candidate.get(key)) for key in columns),
        ]
        for candidate in found
    ]
    return [output.table(["", *(key.upper() for key in columns)], rows)]


def _format_time(epoch: Any) -> str:
    if not isinstance(epoch, (int, float)):
        return str(epoch or "")
    return output.format_epoch(epoch)


def explain(context: CommandContext) -> dict[str, Any]:
    options = context.options
    settings = {name: options[name] for name in ("strategy", "session") if options[name]}
    if options["key"]:
        settings["key"] = find_key_id(context, options["key"])
    data = {"request": _body(options), **settings}
    return context.client.post("endpoints", context.name, "explain", data=data)


def _format_explanation(found: dict[str, Any]) -> str:
    return "\n\n".join(_routers(found["routers"]))


def _body(options: dict[str, Any]) -> dict[str, Any]:
    if options["file"] is not None:
        return read_document(options["file"])
    prompt = read_text("-") if options["prompt"] == "-" else str(options["prompt"])
    if not prompt.strip():
        raise CommandError("The prompt is empty.", USAGE)
    return {"messages": [{"role": "user", "content": prompt}]}


def _routers(routers: list[dict[str, Any]]) -> Iterator[str]:
    """Format the result of each router; raise if none returned one."""
    if routers and all(router["error"] for router in routers):
        raise CommandError("\n".join(dict.fromkeys(router["error"] for router in routers)), FAILED)
    for number, router in enumerate(routers, 1):
        head = [f"Router {number} of {len(routers)}:"] if len(routers) > 1 else []
        yield "\n".join([*head, router["error"] or format_decision(router["ranking"] or {})])


def _spec(context: CommandContext) -> dict[str, Any]:
    options = context.options
    spec: dict[str, Any] = {}
    if options["name"]:
        try:
            spec = dict(context.client.get("endpoints", context.name)["spec"])
        except NotFound:  # the endpoint does not exist yet
            if not (options["file"] or options["model"]):
                raise
            spec = {"name": options["name"]}
    file = read_document(options["file"]) if options["file"] else {}
    model = {"model": options["model"]} if options["model"] else {}
    return merge(spec, file, model, parse_settings(options["fields"]))


def fit(context: CommandContext) -> CommandResult:
    preview = context.client.post("fit", data=_spec(context))
    judged = preview["judged"]
    good = any(not any(finding["blocks"] for finding in each["findings"]) for each in judged)
    return CommandResult(preview, OK if good or not judged else FAILED)


def _format_fit(found: dict[str, Any]) -> Iterator[str]:
    for each in found["judged"]:
        price = each["price_usd_hour"]
        cost = f", {format_usd_hour(price)}" if price is not None else ""
        yield f"{each['machine'] or 'any machine'}: {each['verdict']}{cost}"
        for line in each["lines"]:
            formula = f"  ({line['formula']})" if line["formula"] else ""
            yield f"  {line['name']}: {_amount(line)}{formula}"
        for finding in each["findings"]:
            mark = "✗" if finding["blocks"] else "!"
            yield f"  {mark} {finding['field']}: {finding['message']} {finding['remedy']}".rstrip()
    routers = found["routers"]
    if routers is not None:
        price = routers["usd_hour"]
        cost = f", {format_usd_hour(price)}" if price is not None else ""
        size = output.size(routers["memory_bytes"])
        count = output.count(routers["replicas"], "router")
        yield f"{count}: {routers['cpus']:g} CPU, {size}{cost}"


def _amount(line: dict[str, Any]) -> str:
    value, unit = line["value"], line["unit"]
    amount = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    return output.size(value) if unit == "bytes" else f"{amount} {unit}".rstrip()


def _format_preview(found: dict[str, Any]) -> Iterator[str]:
    yield from (f"# {note}" for note in found["notes"])
    if found["refused"]:
        yield f"# rejected: {found['refused']}"
    yield from (f"{name}={shlex.quote(value)} \\" for name, value in found["env"].items())
    yield shlex.join(found["command"])
    for row in found["objects"]:
        yield f"---\n{output.format_yaml(row)}"


def _format_routers(found: dict[str, Any]) -> str:
    rows = []
    for router in found["routers"]:
        exchange = router["exchange"] or {}
        state = "off" if router["exchange"] is None else "connected"
        if router["error"]:
            state = f"no response: {router['error']}"
        elif exchange and not exchange["connected"]:
            state = f"away {output.format_age(exchange['away_since'])}: {exchange['error']}"
        lag = exchange.get("lag_s")
        rows.append(
            (
                router["name"],
                router["strategy"] or "-",
                state,
                "-" if lag is None else f"{lag * 1000:.1f} ms",
                output.cell(len(exchange["peers"]) if exchange else None),
                output.cell(router["in_flight"]),
                output.cell(router["kv_blocks"]),
            )
        )
    head = ("ROUTER", "STRATEGY", "EXCHANGE", "LAG", "HEARD", "IN FLIGHT", "KV BLOCKS")
    store = found["state_store"]
    used = [f"state store: {store['url']} ({store['origin']})"] if store else []
    return "\n".join([output.table(head, rows), *used, *_differences(found)])


def _differences(found: dict[str, Any]) -> list[str]:
    return [f"differs: {line}" for line in found["differences"]]


def _format_index(found: dict[str, Any]) -> str:
    lines = [f"stale: {found['stale']}"] if found["stale"] else []
    kv = found["kv"]
    if kv is None:
        return "\n".join([*lines, f"Strategy {found['strategy']} uses no KV index."])
    sources = [source for source in kv.get("sources") or [] if isinstance(source, dict)]
    rows = [
        [output.cell(source.get(key)) for key in ("worker", "rank", "state", "blocks", "lag_s")]
        for source in sources
    ]
    lines.append(output.table(("WORKER", "RANK", "KV EVENTS", "BLOCKS", "LAG (S)"), rows))
    routers = [
        (
            router["name"],
            output.cell(router["kv_blocks"]),
            output.cell(router["kv_workers_followed"]),
            router["error"],
        )
        for router in found["routers"]
    ]
    if routers:
        lines += ["", output.table(("ROUTER", "BLOCKS", "WORKERS FOLLOWED", "ERROR"), routers)]
    return "\n".join([*lines, *_differences(found)])


_DECISIONS = Table(
    ("ID", "TIME", "STRATEGY", "CHOSEN", "REASON", "PROMPT", "CACHED", "TTFT", "STATUS"),
    _decision,
    "No routing decisions of {name} since its router started.",
    names=False,
)


def add_to(verbs: Verbs) -> None:
    verbs.verb(
        "doctor",
        "check routers, workers, KV events and tokenizers",
        "name",
        call=examine_endpoint,
        show=_format_examination,
    )
    text = "list routers with their exchange of state, and where they disagree"
    call = "GET endpoints/{name}/routers/"
    verbs.verb("routers", text, "name", call=call, show=_format_routers)
    text = "show the KV index by worker, and by router where there are several"
    verbs.verb("kv-index", text, "name", call="GET endpoints/{name}/kv-index/", show=_format_index)
    text = "list routing decisions, latest first"
    verb = verbs.verb("decisions", text, "name", call=list_decisions, show=_DECISIONS)
    verb.add("--limit", type=int, default=50, help="number of decisions, 1 to 500 (50)")
    text = "show a decision with the compared workers"
    call = "GET endpoints/{name}/decisions/{id}/"
    verb = verbs.verb("decision", text, "name", call=call, show=format_decision)
    verb.add("id", help="decision ID, or the x-emberline-decision header of a response")
    text = "routing dry run: rank workers for a request, send nothing"
    verb = verbs.verb("explain", text, "name", call=explain, show=_format_explanation)
    what = verb.one_of(required=True)
    what.add_argument("--prompt", help="user message; - reads standard input")
    text = "request body as JSON or YAML; - reads standard input"
    what.add_argument("-f", "--file", help=text)
    verb.add("--strategy", default="", help="strategy to evaluate (the current one)")
    verb.add("--session", default="", help="session ID")
    verb.add("--key", default="", help="name or ID of the inference key (the console's)")
    _add_spec_verb(
        verbs,
        "fit",
        "capacity check; exit code 1 if the spec does not fit",
        call=fit,
        show=_format_fit,
    )
    _add_spec_verb(
        verbs,
        "preview",
        "show the command, environment and objects of the workers",
        call=lambda context: context.client.post("preview", data=_spec(context)),
        show=_format_preview,
    )


def _add_spec_verb(verbs: Verbs, name: str, text: str, **options: Any) -> None:
    verb = verbs.verb(name, text, **options)
    verb.add("name", nargs="?", default="", help="existing endpoint whose spec is the base")
    verb.spec("spec field by path, for example cache.l2.enabled=true", positional=False)
    verb.add("--model", default="", help="short for --set model=...")


def add_preflight(rooms: Verbs) -> None:
    text = "check the console's requirements; exit code 1 if one is missing (on its machine)"
    rooms.verb("doctor", text, call=preflight)
