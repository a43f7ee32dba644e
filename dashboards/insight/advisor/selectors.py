"""Read advice for pages and the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse

from console.core.errors import Problem, Refused
from dashboards.insight.advisor.formulas import gains, outcome
from dashboards.insight.advisor.formulas.cache_sizes import CacheSizes, build_sizes
from dashboards.insight.advisor.formulas.gains import AdviceRow, Prices
from dashboards.insight.advisor.formulas.prompts import list_prompt_rows, price_tokens
from dashboards.insight.advisor.models import Advice
from endpoints.pages.editor.prefill import prefilled_edit_url

EARLIER = 10  # advice whose applied rows are shown
_INTERNAL = frozenset(("before", "prefixes", "use"))


@dataclass(frozen=True, slots=True)
class ApplyLink:
    label: str
    url: str


@dataclass(frozen=True, slots=True)
class AdviceReport:
    """Advice of a survey for pages and REST. `refusal`: why the recording gives no answer; the
    ledger's rows may still be there. `notes`: what is left out, with its remedy. `stated`: causes
    that are in the notes.
    """

    advice: Advice
    refusal: str
    advised: Sequence[AdviceRow]
    trade_offs: Sequence[AdviceRow]
    unclear: Sequence[AdviceRow]
    sizes: CacheSizes | None
    notes: Sequence[str]
    stated: Sequence[str] = ()


def list_advice(name: str) -> QuerySet[Advice]:
    """Return the endpoint's advice, latest first; the gate has checked access."""
    rows = Advice.objects.filter(endpoint__name=name)
    related = ("endpoint", "endpoint__status", "endpoint__team", "run", "run__started_by")
    return rows.select_related(*related, "run__endpoint").order_by("-created_at", "-id")


def get_latest(name: str) -> Advice | None:
    return list_advice(name).first()


def no_advice(name: str) -> Refused:
    remedy = f"Start one: POST to this URL, or emberline endpoint advice {name} --new."
    return Refused(Problem("name", name, "No advice yet.", remedy, "not_found"), status_code=404)


def list_applied(name: str) -> list[dict[str, Any]]:
    """Return the applied rows of the latest advice and of those before it, the latest first. Of
    layouts that are not applied, those of the latest advice.
    """
    rows = Advice.objects.filter(endpoint__name=name).order_by("-created_at", "-id")
    applied = [
        entry
        for place, advice in enumerate(rows.only("applied")[:EARLIER])
        for entry in list_outcomes(advice)
        if place == 0 or entry["verdict"] != outcome.NOT_APPLIED
    ]
    return sorted(applied, key=lambda one: one["at"] or "", reverse=True)


def list_outcomes(advice: Advice) -> list[dict[str, Any]]:
    return [
        {
            **{name: entry[name] for name in entry.keys() - _INTERNAL},
            "label": outcome.LABELS[entry["verdict"]],
            "by": _applied_by(entry),
        }
        for entry in advice.applied.values()
    ]


def _applied_by(one: Mapping[str, Any]) -> str:
    if "use" in one:
        return "callers" if one["at"] else ""
    return f"cache tier {one['tier']}" if one.get("tier") else f"revision {one['revision']}"


def build_report(advice: Advice) -> AdviceReport:
    run, inputs = advice.run, advice.facts
    result = run.result
    refusal = result.get("backtest", {}).get("refusal", "") if result else run.message
    l2 = inputs["l2"] or {}
    prices = Prices(l2.get("usd_gib_hour"), inputs["worker_why"] or l2.get("why", ""))
    rows: list[AdviceRow] = []
    sizes = None
    if result and not refusal:
        rows = list_replayed(advice)
        sizes = build_sizes(run.present, run.candidates, result, rows, prices)
    prompts = [] if run.live else list_prompt_changes(advice)
    listed = sorted([*gains.choose_rows(rows), *prompts], key=gains.sort_key)

    def of(*verdicts: str) -> list[AdviceRow]:
        return [row for row in listed if row.verdict in verdicts]

    return AdviceReport(
        advice,
        refusal,
        of(gains.ADVISED),
        of(gains.TRADE_OFF),
        of(gains.UNCLEAR, gains.WORSE),
        sizes,
        _notes(advice) if result else [],
        _stated(advice) if result else [],
    )


def list_replayed(advice: Advice) -> list[AdviceRow]:
    """Return the row of each candidate, in their order."""
    run, inputs = advice.run, advice.facts
    l2 = inputs["l2"] or {}
    prices = Prices(l2.get("usd_gib_hour"), inputs["worker_why"] or l2.get("why", ""))
    return [
        gains.evaluate(run.present, values, figures, run.result, prices)
        for values, figures in zip(run.candidates, run.result.get("candidates", ()), strict=False)
    ]


def list_prompt_changes(advice: Advice) -> list[AdviceRow]:
    """Return the rows of the miss ledger."""
    inputs, run = advice.facts, advice.run
    price = price_tokens(inputs["misses"], run.result or {}, run.present["price_usd_hour"])
    return list_prompt_rows(inputs, price)


def _stated(advice: Advice) -> list[str]:
    inputs, l2 = advice.facts, advice.facts["l2"]
    sentences = [inputs["worker_why"]] if advice.run.present["price_usd_hour"] is None else []
    return [*sentences, l2["why"]] if l2 and l2["why"] and not inputs["l2_redis"] else sentences


def _notes(advice: Advice) -> list[str]:
    inputs, present = advice.facts, advice.run.present
    misses, l2 = inputs["misses"], inputs["l2"]
    notes = []
    if present["kv_kib"] is None:
        notes.append(
            "Cache sizes: the KV cache per token of the model is unknown. Enter it under "
            "Assumptions."
        )
    if present["price_usd_hour"] is None:
        notes.append(
            f"Money: the price of a worker is unknown. {inputs['worker_why']} Set it under Costs, "
            "or enter it under Assumptions."
        )
    if inputs["autoscaled"]:
        notes.append("Replicas: the autoscaler sets them. Change its triggers instead.")
    if inputs["l2_redis"]:
        notes.append(
            "L2 sizes: the size of an external Redis is unknown to the console and not simulated."
        )
    elif l2 is None:
        notes.append(
            "L2 sizes: there is no cache tier at the workers' location. Create one under Cache."
        )
    elif l2["why"]:
        notes.append(f"Money of L2: {l2['why']}")
    if l2 and l2["users"] > 1:
        notes.append(
            f"L2 sizes: {l2['tier']} is shared by {l2['users']} endpoints; the replay has only "
            "this endpoint's requests in it."
        )
    if misses["error"]:
        notes.append(f"Prompt layouts and salts: {misses['error']}")
    return notes


def list_apply_links(advice: Advice, row: AdviceRow) -> list[ApplyLink]:
    """Return the forms that carry a row out, with its change filled in."""
    name = advice.endpoint.name
    if row.kind == "layout":
        decision = row.fields.get("decision")
        if not decision:
            return []
        return [ApplyLink("Decision", reverse("routing:decision", args=[name, decision]))]
    links = []
    if changes := list_spec_changes(advice, row):
        note = f"Advice {advice.created_at:%Y-%m-%d}: {describe_changes(row)}"
        links.append(ApplyLink("Apply", prefilled_edit_url(name, changes, note)))
    elif row.kind == "salts":
        links.append(ApplyLink("Keys", reverse("endpoints:access", args=[name])))
    return [*links, *_tier_links(advice, row)]


def list_spec_changes(advice: Advice, row: AdviceRow) -> dict[str, Any]:
    """Return the changed fields of the spec; none if the change is outside of it."""
    fields, l2 = row.fields, advice.facts["l2"]
    spec_changes: dict[str, Any] = {}
    if "strategy" in fields:
        spec_changes |= {"routing.strategy": fields["strategy"], "routing.enabled": True}
    if "replicas" in fields:
        spec_changes["replicas"] = fields["replicas"]
    if "l1_gib" in fields:
        spec_changes["cache.l1.enabled"] = bool(fields["l1_gib"])
        if fields["l1_gib"]:
            spec_changes["cache.l1.size_gib"] = fields["l1_gib"]
    if "l2_gib" in fields and l2:
        if not fields["l2_gib"]:
            spec_changes["cache.l2.enabled"] = False
        elif not advice.run.present["l2_gib"]:
            spec_changes |= {
                "cache.l2.enabled": True,
                "cache.l2.backend": "tieredstorage",
                "cache.l2.tier": l2["tier"],
            }
    if row.kind == "salts" and row.changes:
        spec_changes["routing.cache_isolation"] = row.changes[0][2]
    return spec_changes


def _tier_links(advice: Advice, row: AdviceRow) -> list[ApplyLink]:
    l2 = advice.facts["l2"]
    if not row.fields.get("l2_gib") or not l2 or not l2["exists"]:
        return []
    more = row.fields["l2_gib"] - advice.run.present["l2_gib"]
    present = l2["memory_gib"] if advice.run.present["l2_gib"] else 0.0
    each = max(present + more * max(l2["copies"], 1) / l2["nodes"], 0.0625)
    if not advice.run.present["l2_gib"] and each <= l2["memory_gib"]:
        return []  # the tier is large enough
    query = urlencode({"memory_bytes": f"{each:.4g}"})
    url = f"{reverse('cachetier:edit', args=[l2['tier']])}?{query}"
    return [ApplyLink(f"Size of {l2['tier']}", url)]


def describe_changes(row: AdviceRow) -> str:
    return ", ".join(f"{label} {before} → {after}" for label, before, after in row.changes)


def build_document(advice: Advice) -> dict[str, Any]:
    """Return the REST document."""
    run, report = advice.run, build_report(advice)
    return {
        "id": str(advice.pk),
        "endpoint": advice.endpoint.name,
        "generation": advice.generation,
        "begin": run.begin,
        "end": run.end,
        "state": run.state,
        "share": run.share,
        "stage": run.stage,
        "message": run.message,
        "refusal": report.refusal,
        "notes": list(report.notes),
        "backtest": run.result.get("backtest"),
        "present_values": run.present,
        "rows": [
            build_row(advice, row) for row in (*report.advised, *report.trade_offs, *report.unclear)
        ],
        "sizes": None if report.sizes is None else asdict(report.sizes),
        "applied": list_applied(advice.endpoint.name),
        "started_by": run.started_by.get_username() if run.started_by else "system",
        "created_at": advice.created_at,
        "finished_at": run.finished_at,
    }


def build_row(advice: Advice, row: AdviceRow) -> dict[str, Any]:
    fields = {**asdict(row), "text": row.text}
    fields["changes"] = [
        {"name": label, "before": before, "after": after} for label, before, after in row.changes
    ]
    fields["ttft_p90_s"] = row.seconds
    del fields["seconds"]
    fields["apply"] = [link.url for link in list_apply_links(advice, row)]
    return fields
