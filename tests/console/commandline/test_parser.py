"""Output of verbs through the in-process API, and completeness of the parser."""

from __future__ import annotations

import argparse
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from console.accounts.models import Team
from console.api.schema import build_document
from console.client import Client
from console.commandline import context, output, parser
from console.commandline.endpoint import analysis, benchmarks
from console.commandline.endpoint import run as background_run
from dashboards.alerts.settings.models import OwnRule
from endpoints.models import Endpoint
from tests.support.console import make_endpoint, pretend_ready
from tests.support.http_stub import http_stub

db = pytest.mark.django_db


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("emberline", *words, stdout=out)
    return out.getvalue()


def refused(*words: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        run(*words)
    return caught.value.returncode, str(caught.value)


def verbs(
    found: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    below = [one for one in found._actions if isinstance(one, argparse._SubParsersAction)]
    if not below:
        yield path, found
    for action in below:
        reported = {choice.dest for choice in action._choices_actions}
        assert reported == set(action.choices), f"{path}: a verb without help"
        for word, child in action.choices.items():
            yield from verbs(child, (*path, word))


@pytest.mark.parametrize(
    "words",
    [
        ("--begin", "2026-11-01T00:00Z", "replicas=3", "rate=2"),
        ("replicas=3", "rate=2", "--begin", "2026-11-01T00:00Z"),
        ("replicas=3", "--begin", "2026-11-01T00:00Z", "--wait"),
        ("replicas=3", "--begin", "2026-11-01T00:00Z", "rate=2", "--wait", "cache.l1=1"),
        ("--begin", "2026-11-01T00:00Z"),
    ],
)
def test_fields_follow_options_or_precede_them(words: tuple[str, ...]) -> None:
    found = parser.build_parser().parse_args(["endpoint", "whatif", "start", "demo", *words])
    assert found.name == "demo"
    assert found.begin == "2026-11-01T00:00Z"
    assert found.fields == [word for word in words if "=" in word]


def test_unknown_option_is_no_field(capsys: Any) -> None:
    for words in (("a=1", "--begin", "x", "b=2", "--odd"), ("a=1", "--odd")):
        with pytest.raises(SystemExit):
            parser.build_parser().parse_args(["endpoint", "whatif", "start", "demo", *words])
        assert "--odd" in capsys.readouterr().err


def test_fields_of_a_spec_are_words_or_options() -> None:
    words = ("--set", "engine=vllm", "replicas=3", "cache.l2.enabled=true", "--set", "tags.a=b")
    options = parser.build_parser().parse_args(["endpoint", "update", "demo", *words])
    assert options.fields == [word for word in words if "=" in word]
    assert parser.build_parser().parse_args(["endpoint", "update", "demo"]).fields == []


def test_every_verb_has_help_and_an_action() -> None:
    found = dict(verbs(parser.build_parser()))
    assert len(found) > 60
    for path, one in found.items():
        assert one.get_default("run"), path
        silent = [one.dest for one in one._actions if one.option_strings and not one.help]
        assert not silent, f"{path}: {silent}"
        words = {action.dest for action in one._actions if not action.option_strings}
        options = {action.dest for action in one._actions if action.option_strings}
        assert words & options <= {"fields"}, f"{path}: a word and an option of one name"


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> set[str]:
    """Return the names of a body's fields; `{"*"}` if it may have any."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    parts = [part for kind in ("oneOf", "anyOf", "allOf") for part in schema.get(kind, ())]
    below = set().union(*(_fields(part, document) for part in parts))
    return set(schema.get("properties", () if parts else ("*",))) | below


def test_every_request_of_the_table_is_an_operation_of_the_api() -> None:
    document = build_document()
    operations = {
        (method.upper(), re.sub(r"{\w+}", "{}", path)): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    checked = 0
    for path, parser_of_verb in verbs(parser.build_parser()):
        verb = parser_of_verb.get_default("run").__self__
        if not isinstance(verb.call, str):
            continue
        checked += 1
        method, place = verb.call.split()
        method = method.replace("CREATE", "POST")
        operation = operations[method, re.sub(r"{\w+}", "{}", f"/api/v1/{place}")]
        arguments = set(verb._arguments) - set(re.findall(r"{(\w+)}", place)) - {"fields"}
        if method in ("GET", "DELETE"):
            accepted = {one["name"] for one in operation["parameters"] if one["in"] == "query"}
        else:
            content = operation.get("requestBody", {"content": {}})["content"]
            accepted = set().union(*(_fields(one["schema"], document) for one in content.values()))
        assert arguments <= accepted or "*" in accepted, f"{path}: {arguments - accepted}"
    assert checked > 45


def test_exit_codes_equal_those_of_the_docs() -> None:
    assert "6 conflict, 7 timeout, 8 unreachable" in parser.build_parser().format_help().replace(
        "\n", " "
    )


@db
def test_cache_tiers() -> None:
    assert "No cache tiers" in run("cache-tier", "list")
    dry = run("cache-tier", "create", "west", "--set", "memory_bytes=1073741824", "--dry-run")
    assert "memory_bytes: null -> 1073741824" in dry
    assert "No cache tiers" in run("cache-tier", "list")
    assert "created" in run("cache-tier", "create", "west", "memory_bytes=1073741824")
    assert "1 GiB" in run("cache-tier", "list")
    assert "generation 2" in run("cache-tier", "update", "west", "--set", "memory_bytes=536870912")
    assert json.loads(run("cache-tier", "get", "west", "-o", "json"))["memory_bytes"] == 1 << 29
    assert "512 MiB memory" in run("cache-tier", "get", "west")
    assert refused("cache-tier", "update", "west", "--set", "memory_bytes=1")[0] == 3
    assert refused("cache-tier", "get", "east")[0] == 4
    with pytest.raises(CommandError):
        run("cache-tier", "flush", "west", "--yes")  # everything only with --all
    assert "being deleted" in run("cache-tier", "delete", "west", "--yes")


@db
@pytest.mark.parametrize(
    "words",
    [
        ("cache-tier", "flush", "west", "--yes", "--namespace"),
        ("alert", "set", "HighTTFT", "threshold=9", "--endpoint"),
        ("alert", "reset", "HighTTFT", "--endpoint"),
        ("token", "create", "ci", "--role", "viewer", "--team"),
        ("endpoint", "traces", "delete", "demo", "--yes", "--begin"),
        ("budget", "set", "west", "--team"),
    ],
)
def test_empty_scope_does_not_mean_all(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=f"argument {words[-1]}: is empty"):
        run(*words, "")


@db
def test_models() -> None:
    listed = run("model", "list", "--search", "llama 70b")
    assert "meta-llama/Llama-3.1-70B-Instruct" in listed
    assert "Qwen" not in listed
    assert run("model", "list", "--search", "nothing").strip() == "No known model matches."
    assert run("model", "list", "--cluster", "nowhere", "-o", "name").strip() == ""
    checked = run("model", "check", "Qwen/Qwen3-8B")
    assert "8.19B" in checked
    assert "Not checked on Hugging Face: the check is off" in checked
    assert json.loads(run("model", "check", "smollm2-135m-instruct", "-o", "json"))["hub"] is None
    assert refused("model", "check", "no model")[0] == 3


@db
def test_instance_types() -> None:
    assert "x.y (added): 4 vCPUs, 16 GiB" in run(
        "instance-type", "set", "x.y", "vcpus=4", "memory_gib=16"
    )
    assert yaml.safe_load(run("instance-type", "get", "x.y"))["vcpus"] == 4
    assert "x.y" in run("instance-type", "list", "-o", "name").splitlines()
    code, reported = refused("instance-type", "set", "x.y", "vcpus=-1")
    assert (code, "vcpus: -1 was rejected" in reported) == (3, True)
    assert "removed or reset" in run("instance-type", "forget", "x.y", "--yes")
    assert refused("instance-type", "get", "x.y")[0] == 4


@db
def test_keys_with_limits() -> None:
    make_endpoint()
    clear = run("endpoint", "key", "create", "demo", "app", "requests_per_minute=60").strip()
    row = next(one for one in run("endpoint", "key", "list", "demo").splitlines() if " app " in one)
    assert "requests_per_minute=60" in row and clear not in row
    key_id = row.split()[0]
    assert "Key app changed" in run("endpoint", "key", "update", "demo", key_id, "max_in_flight=2")
    assert "max_in_flight=2" in run("endpoint", "key", "list", "demo")
    new = run("endpoint", "key", "rotate", "demo", key_id).strip()
    assert new.startswith("ebk_") and new != clear
    assert "(all)" in run("endpoint", "key", "usage", "demo")
    assert "max_in_flight=3" not in run("endpoint", "key", "list", "demo")
    run("endpoint", "key", "update", "demo", "app", "max_in_flight=3")
    assert "max_in_flight=3" in run("endpoint", "key", "list", "demo"), "addressed by its name"
    code, content = refused("endpoint", "explain", "demo", "--prompt", "hi", "--key", "nope")
    assert (code, "emberline endpoint key list demo" in content) == (4, True)
    assert "Key app revoked" in run("endpoint", "key", "revoke", "demo", "app", "--yes")
    assert refused("endpoint", "key", "create", "demo", "b", "max_in_flight=-1")[0] == 3


@db
def test_deletion_is_confirmed(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    make_endpoint()
    code, content = refused("endpoint", "delete", "demo")
    assert (code, "Add --yes" in content) == (2, True), "standard input is no terminal"
    terminal = io.StringIO("n\nother\n\ndemo\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    for _ in range(3):
        assert refused("endpoint", "delete", "demo") == (1, "Canceled. Nothing was changed.")
    assert not Endpoint.objects.get().deleting
    assert "stops its workers" in capsys.readouterr().err
    assert "being deleted" in run("endpoint", "delete", "demo")
    make_endpoint("other")
    assert "Dry run" in run("endpoint", "delete", "other", "--dry-run")
    assert "being deleted" in run("endpoint", "delete", "other", "--yes")


REMOVALS = {"delete", "remove", "revoke", "forget", "unroute", "flush", "deactivate", "reset"}


def test_every_removal_is_confirmed() -> None:
    found = {path: one for path, one in verbs(parser.build_parser()) if path[-1] in REMOVALS}
    assert len(found) >= 15
    unasked = [path for path, one in found.items() if "--yes" not in one.format_help()]
    assert unasked == []


@db
def test_an_unconfirmed_removal_changes_nothing() -> None:
    run("instance-type", "set", "x.y", "vcpus=4", "memory_gib=16")
    code, content = refused("instance-type", "forget", "x.y")
    assert (code, "instance type x.y are deleted" in content) == (2, True)
    assert "x.y" in run("instance-type", "list", "-o", "name").splitlines()


def test_counts_have_a_plural() -> None:
    assert [output.count(number, "worker") for number in (0, 1, 1200)] == [
        *("0 workers", "1 worker", "1,200 workers")
    ]


@db
def test_endpoint_is_moved() -> None:
    make_endpoint()
    Team.objects.create(name="West", slug="west")
    assert "moved to team west" in run("endpoint", "move", "demo", "west")
    assert Endpoint.objects.get().team == Team.objects.get()
    assert "demo" in run("endpoint", "list", "--team", "west")
    assert "moved to no team" in run("endpoint", "move", "demo", "--nobody")
    assert refused("endpoint", "move", "demo", "east")[0] == 3


@db
def test_spec_is_validated_and_shown() -> None:
    make_endpoint()
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        words = ("--set", "resources.memory_gib=0.25", "--set", "engine=vllm")
        call_command("emberline", "endpoint", "fit", "demo", *words, stdout=out)
    assert ended.value.code == 1
    assert "✗ resources.memory_gib" in out.getvalue()
    assert "simulated_worker" in run("endpoint", "preview", "demo")
    assert not Endpoint.objects.filter(name="other").exists()
    assert refused("endpoint", "fit", "nobody")[0] == 4


@db
def test_unknown_router_state_is_a_failure() -> None:
    pretend_ready(make_endpoint(), admin_url="http://127.0.0.1:9")
    for words in (("decisions", "demo"), ("explain", "demo", "--prompt", "hi")):
        assert refused("endpoint", *words)[0] == 1
    assert refused("endpoint", "explain", "demo", "--prompt", " ")[0] == 2


@db
def test_missing_costs_state_the_reason() -> None:
    assert "Prometheus" in run("cost")


def test_decision_is_a_table_of_its_candidates() -> None:
    found = {
        "id": "7",
        "chosen": "w1",
        "reason": "prefix_hit",
        "session": None,
        "candidates": [
            {"worker": "w0", "matched": {"device": 0}, "cost": 3, "healthy": True},
            {"worker": "w1", "matched": {"device": 96}, "cost": 1, "healthy": True},
        ],
    }
    lines = analysis.format_decision(found).splitlines()
    assert "reason: prefix_hit" in lines and not any("session" in line for line in lines)
    assert lines[-1].startswith("→") and "w1" in lines[-1] and "96" in lines[-1]


def test_foreign_text_cannot_control_the_terminal() -> None:
    shown = output.table(("A", "B"), [("x\x1b[2J\ny", "z")])
    assert "\x1b" not in shown and len(shown.splitlines()) == 2
    assert output.strip_control_characters("a\tb\r\x07\x9b") == "a\tb���"


RUN: dict[str, Any] = {
    "id": "b1", "endpoint": "demo", "title": "", "state": "queued", "stage": "", "message": "",
    "simulated": True, "job": {"workload": "chat", "mode": "rate"}, "progress": {}, "result": None,
    "started_by": "system", "created_at": "2026-11-21T08:00:00Z",
}  # fmt: skip


def test_benchmark_is_started_and_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_run, "POLL_S", 0.0)
    done = {**RUN, "state": "done", "result": {"requests": 9, "ttft": {"p50": 0.25, "p90": 1}}}
    states = iter([{**RUN, "state": "running", "stage": "Sending"}, done])
    answers: dict[str, Any] = {
        "/api/v1/endpoints/demo/benchmarks/": (201, RUN),
        "/api/v1/endpoints/demo/benchmarks/b1/": lambda *_: (200, next(states)),
    }
    words = ["endpoint", "benchmark", "start", "demo", "rate=4", "--wait"]
    with http_stub(answers) as stub:
        out, err = io.StringIO(), io.StringIO()
        options = vars(parser.build_parser().parse_args(words))
        ended = context.run(options, lambda: Client(stub.url), out, err)
    assert json.loads(stub.seen[0][2]) == {"rate": 4}
    assert ended.exit_code == 0 and "b1 of demo: done" in ended.text and "requests: 9" in ended.text
    assert "Simulated workers" in ended.text
    assert "running Sending" in err.getvalue()


def test_whatif_is_started_and_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_run, "POLL_S", 0.0)
    made: dict[str, Any] = {
        "id": "a1",
        "endpoint": "demo",
        "title": "",
        "state": "queued",
        "stage": "Queued",
        "share": 0.0,
        "message": "",
        "result": None,
        "started_by": "system",
        "present_values": {"replicas": 3, "rate": 1.0},
        "candidate_values": {"replicas": 6, "rate": 1.0},
        "created_at": "2026-11-23T08:00:00Z",
    }
    estimate = {"value": 0.25, "low": 0.2, "high": 0.3}
    row = {"name": "ttft_p50_s", "predicted": 1.0, "measured": 1.1, "error": -0.09}
    figures = {"ttft_p50_s": estimate}
    result = {
        "backtest": {"rows": [row], "refusal": ""},
        "present": figures,
        "candidate": figures,
        "change": figures,
    }
    done = {**made, "state": "done", "stage": "", "share": 1.0, "result": result}
    states = iter([{**made, "state": "running", "stage": "Backtest", "share": 0.25}, done])
    answers: dict[str, Any] = {
        "/api/v1/endpoints/demo/what-if/": (201, made),
        "/api/v1/endpoints/demo/what-if/a1/": lambda *_: (200, next(states)),
    }
    words = ["endpoint", "whatif", "start", "demo", "replicas=6", "--title", "T", "--wait"]
    with http_stub(answers) as stub:
        out, err = io.StringIO(), io.StringIO()
        options = vars(parser.build_parser().parse_args(words))
        ended = context.run(options, lambda: Client(stub.url), out, err)
    assert json.loads(stub.seen[0][2]) == {"replicas": 6, "title": "T"}
    assert ended.exit_code == 0
    assert "a1 of demo: done" in ended.text and "changes: replicas=6" in ended.text
    assert "predicted 1, measured 1.1, error -9.0%" in ended.text
    assert "+25.0 % (+20.0 to +30.0)" in ended.text
    assert "25% Backtest" in err.getvalue()


def test_cells_are_formatted() -> None:
    assert output.cell("demo-worker-0") == "demo-worker-0"
    assert output.cell({"prefix": 96, "l2": None}) == "prefix 96, l2 "
    assert output.cell(None) == ""
    assert output.cell([1, True]) == "[1, true]"


def test_benchmark_latencies_are_in_milliseconds() -> None:
    quantiles = {"count": 41, "p50": 0.2208, "p90": 1.5, "p99": None}
    assert benchmarks._format_value("ttft", quantiles) == "p50 221 ms, p90 1,500 ms"
    assert benchmarks._format_value("workers", {"w0": 41}) == "w0 41"


@db
def test_alert_rules_are_set_and_listed() -> None:
    make_endpoint("demo")
    assert "TTFT p95 is above 3 s" in run("alert", "set", "HighTTFT", "threshold=3", "for=20m")
    run("alert", "set", "HighTTFT", "threshold=9", "--endpoint", "demo")
    assert "HighTTFT" in run("alert", "rules", "-o", "name").split()
    (mine,) = [
        line
        for line in run("alert", "rules", "--endpoint", "demo").splitlines()
        if line.startswith("HighTTFT")
    ]
    assert "threshold 9 s" in mine
    assert "1200 s" in mine
    assert yaml.safe_load(run("alert", "get", "HighTTFT"))["endpoints"] == ["demo"]
    assert "reset" in run("alert", "reset", "HighTTFT", "--endpoint", "demo", "--yes")
    run("alert", "set", "HighTTFT", "threshold=null")
    assert "reset to its defaults" in run("alert", "reset", "HighTTFT", "--yes")
    OwnRule.objects.create(name="Mine", expr="up", summary="x")
    assert run("alert", "reset", "Mine", "--yes").strip() == "Rule Mine deleted."
    made = yaml.safe_load(run("alert", "file", "--object"))
    assert made["kind"] == "PrometheusRule"
    assert "demo" not in run("alert", "file")
    code, content = refused("alert", "set", "HighTTFT", "threshold=-1")
    assert (code, "1 ms to 600 s" in content) == (3, True)
    assert refused("alert", "list")[1]  # no Prometheus available
