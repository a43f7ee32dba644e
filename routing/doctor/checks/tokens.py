"""Checks that router and workers tokenize alike. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from routing.analysis.kv_index import Difference, KvIndex
from routing.doctor.facts import FleetFacts
from routing.doctor.findings import (
    DoctorFinding,
    Severity,
    doctor_check,
    require_workers,
    worker_finding,
)

DIFFERENT, SAME = "different", "same"
# Comparison probes that do not use the chat template.
_PLAIN = "plain text"


def _differences(facts: FleetFacts) -> tuple[Difference, ...]:
    kv = facts.router.kv
    return kv.differences if kv is not None and kv.compared == DIFFERENT else ()


def _finding(found: list[Difference], what: str) -> DoctorFinding:
    return DoctorFinding(
        Severity.ERROR,
        what,
        found[0].fix,
        tuple(f"{one.probe}: {one.what}" for one in found),
    )


@doctor_check("TokenizerMismatch", "The router's tokenizer is the workers'")
def tokenizer_mismatch(facts: FleetFacts) -> Iterator[DoctorFinding]:
    plain = [one for one in _differences(facts) if one.probe.startswith(_PLAIN)]
    if plain:
        yield _finding(
            plain,
            "The router's tokenizer is not the workers': its tokens would find nothing, so it has "
            "a worker tokenize each prompt, which takes longer.",
        )


@doctor_check("TemplateMismatch", "The router's chat template is the workers'")
def template_mismatch(facts: FleetFacts) -> Iterator[DoctorFinding]:
    chats = [one for one in _differences(facts) if not one.probe.startswith(_PLAIN)]
    if chats and len(chats) == len(_differences(facts)):
        yield _finding(
            chats,
            "The router's chat template is not the workers': tokens it makes of a chat would find "
            "nothing, so it has a worker tokenize each prompt, which takes longer.",
        )


@doctor_check("TokenizerUnusable", "The router's tokenizer can be used")
def tokenizer_unusable(facts: FleetFacts) -> Iterator[DoctorFinding]:
    kv = facts.router.kv
    if kv is not None and kv.problem and kv.tokenizer:
        yield DoctorFinding(
            Severity.ERROR,
            "The router cannot use the tokenizer it was given, so a worker tokenizes each prompt, "
            "which takes longer.",
            "Give --tokenizer (kv.tokenizer) a folder with the model's tokenizer.json and "
            "tokenizer_config.json.",
            (kv.problem,),
        )


@doctor_check("TokenizerMissing", "The router has a tokenizer")
def tokenizer_missing(facts: FleetFacts) -> Iterator[DoctorFinding]:
    kv = facts.router.kv
    if kv is not None and not kv.tokenizer:
        yield DoctorFinding(
            Severity.INFO,
            "The router has no tokenizer: a worker tokenizes each prompt, which takes some "
            "milliseconds more and work of the worker.",
            "Give it the model's folder (--tokenizer). Simulated workers have a tokenizer of their "
            "own: there is nothing to give.",
        )


@doctor_check("TokensNotCompared", "The router's tokens were compared")
def not_compared(facts: FleetFacts) -> Iterator[DoctorFinding]:
    kv = facts.router.kv
    if kv is not None and _expects_comparison(kv) and kv.compared not in (SAME, DIFFERENT):
        yield DoctorFinding(
            Severity.WARNING,
            "The router has not yet been able to compare its tokens with a worker's, so it does "
            "not use them.",
            "See whether a worker is up and answers POST /tokenize; the router tries again every "
            "ten seconds.",
            (f"compared: {kv.compared or 'not yet'}", f"trust: {kv.trust or 'none'}"),
        )


def _expects_comparison(kv: KvIndex) -> bool:
    return bool(kv.tokenizer) and not kv.problem


@doctor_check("TokenizeRefused", "Every worker tokenizes when asked", require_workers)
def check_tokenize_rejected(facts: FleetFacts) -> Iterator[DoctorFinding]:
    bad = {
        worker.name: worker.tokens.error
        for worker in facts.workers
        if worker.answers and worker.tokens.error
    }
    return worker_finding(
        Severity.WARNING,
        "Workers do not answer POST /tokenize: the router cannot verify its tokens there, nor "
        "have prompts tokenized.",
        "Let the path through (a proxy in front of the worker?). vLLM answers it always.",
        bad,
    )
