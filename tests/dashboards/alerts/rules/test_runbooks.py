"""docs/reference/alert-rules.md has a section for every rule, generated from its declaration."""

from __future__ import annotations

import os
from pathlib import Path

from dashboards.alerts.rules.parameter import describe_duration
from dashboards.alerts.rules.rule import Rule
from dashboards.alerts.rules.rule_file import GROUPS
from dashboards.alerts.rules.runbooks import STEPS
from dashboards.alerts.settings.documents import TITLES, lower_label

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "alert-rules.md"
MARK = "<!-- generated: UPDATE_GOLDEN=1 pytest tests/dashboards/alerts/rules/test_runbooks.py -->\n"


def section(rule: Rule) -> str:
    lasting = rule.defaults.lasting_s or 0
    facts = [
        f"Severity {rule.severity}",
        f"for {describe_duration(lasting)}" if lasting else "fires immediately",
    ]
    facts += [f"{lower_label(one.label)} {one.shown(one.default)}" for one in rule.parameters]
    facts += [f"requires {rule.needs}"] if rule.needs else []
    facts += [] if rule.per_endpoint else ["no settings per endpoint"]
    steps = "\n".join(f"{n}. {text}" for n, text in enumerate(STEPS[rule.name], 1))
    summary = rule.summarize(rule.defaults)
    means = f"{summary[0].upper()}{summary[1:]}."
    return f"### {rule.name}\n\n{means} *{'; '.join(facts)}.*\n\n{steps}\n"


def sections() -> str:
    return "\n".join(
        f"## {TITLES[name]}\n\n" + "\n".join(section(rule) for rule in rules)
        for name, rules in GROUPS.items()
    )


def test_page_has_a_runbook_for_every_rule() -> None:
    text = PAGE.read_text()
    before = text.partition(MARK)[0]
    wanted = f"{before}{MARK}\n{sections()}"
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, "UPDATE_GOLDEN=1 regenerates it"
