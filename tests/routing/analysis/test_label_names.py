"""Every code that an engine counts has a display name; no page shows a code."""

from __future__ import annotations

import pytest

from routing.analysis import choices
from routing.analysis.label_names import NAMES, get_name, get_name_in_sentence
from routing.engine import errors
from routing.engine.kv import recovery
from routing.engine.kvaware.request_state import FALLBACKS
from routing.engine.observe.metrics import CACHE_STATES, RETRY_REASONS

COUNTED = (errors.REASONS, RETRY_REASONS, recovery.REASONS, FALLBACKS)


def test_every_counted_reason_has_a_name() -> None:
    counted = {reason for reasons in COUNTED for reason in reasons}
    assert counted - set(NAMES["reason"]) == set()
    assert set(CACHE_STATES) == set(NAMES["cache"])


def test_names_are_words_in_sentence_case() -> None:
    for label, names in NAMES.items():
        for value, name in names.items():
            assert "_" not in name, (label, value)
            assert label == "medium" or name[0].isupper(), (label, value)


@pytest.mark.parametrize(
    ("label", "value", "name"),
    [
        ("reason", "fallback_least_loaded", "Diverted by load"),
        ("strategy_reason", "prefixaware fallback_no_match", "prefixaware: No cached prefix"),
        ("pool_medium", "shared memory", "shared: memory"),
        ("reason", "of_a_later_version", "of_a_later_version"),
        ("pod", "demo-worker-0", "demo-worker-0"),
        ("endpoint_name", "demo", "demo"),
        ("tier", "gpu", "Device"),
    ],
)
def test_a_value_in_words(label: str, value: str, name: str) -> None:
    assert get_name(label, value) == name


def test_a_name_within_a_sentence() -> None:
    assert get_name_in_sentence("reason", "no_tokenizer") == "no tokenizer available"
    assert get_name_in_sentence("tier", "l1") == "L1"


def test_decision_pages_use_the_same_names() -> None:
    assert {reason: name for reason, (name, _) in choices.REASONS.items()} == {
        reason: NAMES["reason"][reason] for reason in choices.REASONS
    }
    assert choices.OUTCOMES["missed"] == NAMES["outcome"]["missed"]
