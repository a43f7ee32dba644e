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
        tuple(f"{difference.probe}: {difference.what}" for difference in found),
    )


@doctor_check("TokenizerMismatch", "Router and workers use the same tokenizer")
def tokenizer_mismatch(facts: FleetFacts) -> Iterator[DoctorFinding]:
    plain = [
        difference for difference in _differences(facts) if difference.probe.startswith(_PLAIN)
    ]
    if plain:
        yield _finding(
            plain,
            "The router's tokenizer differs from the workers', so a worker tokenizes each prompt, "
            "which adds latency.",
        )


@doctor_check("TemplateMismatch", "Router and workers use the same chat template")
def template_mismatch(facts: FleetFacts) -> Iterator[DoctorFinding]:
    chats = [
        difference for difference in _differences(facts) if not difference.probe.startswith(_PLAIN)
    ]
    if chats and len(chats) == len(_differences(facts)):
        yield _finding(
            chats,
            "The router's chat template differs from the workers', so a worker tokenizes each "
            "prompt, which adds latency.",
        )


@doctor_check("TokenizerUnusable", "The router's tokenizer is usable")
def tokenizer_unusable(facts: FleetFacts) -> Iterator[DoctorFinding]:
    kv = facts.router.kv
    if kv is not None and kv.problem and kv.tokenizer:
        yield DoctorFinding(
            Severity.ERROR,
            "The router cannot load its configured tokenizer, so a worker tokenizes each prompt, "
            "which adds latency.",
            "Set --tokenizer (kv.tokenizer) to a folder with the model's tokenizer.json and "
            "tokenizer_config.json.",
            (kv.problem,),
        )


@doctor_check("TokenizerMissing", "The router has a tokenizer")
def tokenizer_missing(facts: FleetFacts) -> Iterator[DoctorFinding]:
    kv = facts.router.kv
    if kv is not None and not kv.tokenizer:
        yield DoctorFinding(
            Severity.INFO,
            "The router has no tokenizer: a worker tokenizes each prompt, which adds some "
            "milliseconds and load on the worker.",
            "Set --tokenizer to the model folder. Not needed for simulated workers, which have "
            "their own tokenizer.",
        )


@doctor_check("TokensNotCompared", "Router tokens are verified")
def not_compared(facts: FleetFacts) -> Iterator[DoctorFinding]:
    kv = facts.router.kv
    if kv is not None and _expects_comparison(kv) and kv.compared not in (SAME, DIFFERENT):
        yield DoctorFinding(
            Severity.WARNING,
            "The router has not verified its tokens against a worker's yet, so it does not use "
            "them.",
            "Check that a worker is up and serves POST /tokenize; the router retries every 10 s.",
            (f"compared: {kv.compared or 'not yet'}", f"trust: {kv.trust or 'none'}"),
        )


def _expects_comparison(kv: KvIndex) -> bool:
    return bool(kv.tokenizer) and not kv.problem


@doctor_check("TokenizeRefused", "All workers serve /tokenize", require_workers)
def check_tokenize_rejected(facts: FleetFacts) -> Iterator[DoctorFinding]:
    bad = {
        worker.name: worker.tokens.error
        for worker in facts.workers
        if worker.answers and worker.tokens.error
    }
    return worker_finding(
        Severity.WARNING,
        "Workers do not serve POST /tokenize: the router can neither verify its tokens nor have "
        "prompts tokenized.",
        "Allow the path in any proxy in front of the worker. vLLM always serves it.",
        bad,
    )
