"""`emberline endpoint canary`: start, get, stop and promote."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from console.commandline.endpoint import canary as verbs
from endpoints.router.models import Canary
from tests.routing.analysis.test_canary import report
from tests.support.console import make_endpoint

pytestmark = pytest.mark.django_db


def cli(*words: str) -> str:
    out = io.StringIO()
    call_command("emberline", "endpoint", "canary", *words, stdout=out)
    return out.getvalue()


def test_verbs() -> None:
    endpoint = make_endpoint()
    text = cli("get", "demo")
    assert "Start one: emberline endpoint canary start demo --strategy STRATEGY" in text
    with pytest.raises(CommandError, match="already the strategy"):
        cli("start", "demo", "--strategy", "prefixaware")
    text = cli("start", "demo", "--strategy", "session", "--share", "0.25", "--note", "try")
    assert "Canary running: session for 25% of the sessions instead of prefixaware" in text
    found = Canary.objects.get()
    found.reports = {"one": report(slower=0.5)}
    found.verdict, found.message = "better", "TTFT lower by 50%."
    found.save()
    text = cli("get", "demo")
    assert "TTFT, candidate against control: -" in text
    assert "hit rate, candidate against control: +0.0 points" in text
    command = "emberline endpoint canary promote demo"
    assert text.rstrip().endswith(command)
    assert cli("get", "demo", "-o", "json").lstrip().startswith("{")
    assert "Canary promoted" in cli(*command.split()[3:], "--yes")
    endpoint.refresh_from_db()
    assert endpoint.parsed.routing.strategy == "session"
    cli("start", "demo", "--strategy", "prefixaware")
    assert "Canary stopped" in cli("stop", "demo")


@pytest.mark.parametrize(("value", "text"), [(None, ""), (0.1234, "123 ms")])
def test_missing_values_are_empty(value: Any, text: str) -> None:
    assert verbs._ms(value) == text
