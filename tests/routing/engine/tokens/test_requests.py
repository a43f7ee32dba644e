"""Arbitrary bodies give an outcome and are not modified."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.engine.tokens.service import TokenOutcome, TokensConfig, TokenService, TokenTicket
from tests.routing.engine.tokens.bodies import Bodies
from tests.routing.engine.tokens.test_service import CHAT, TEXT, local

_NAMES = """
messages prompt input instructions system tools tool_choice role content type text function name
arguments parameters tool_calls id documents chat_template_kwargs add_generation_prompt reasoning
continue_final_message reasoning_effort add_special_tokens truncation thinking image_url strict
tool_call_id reasoning_content description defer_loading cache_control kv_transfer_params uuid
"""
KEYS = st.sampled_from(_NAMES.split())
_WORDS = """
user system assistant tool developer text function image_url refusal tool_reference {} auto none
low message input_text
"""
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(_WORDS.split()),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=20,
)
BODIES = st.one_of(
    st.dictionaries(KEYS, JSON, max_size=6),
    st.integers(0, 2**32).map(lambda seed: Bodies(seed).body()),
    st.integers(0, 2**32).map(lambda seed: Bodies(seed).body()),
    st.integers(0, 2**32).map(lambda seed: {"input": Bodies(seed).body()["messages"]}),
    st.fixed_dictionaries({"prompt": JSON}),
)
PATHS = st.sampled_from([CHAT, CHAT, TEXT, b"/v1/responses", b"/v1/messages"])


@pytest.mark.parametrize("name", ["everything", "parts"])
async def test_arbitrary_bodies_give_an_outcome(name: str) -> None:
    async def ask(path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        return 200, b'{"tokens": [1]}'

    here, there = (
        TokenService(TokensConfig(), local(chat_template=name)),
        TokenService(TokensConfig(), None, ask),
    )

    @settings(max_examples=150, deadline=None)
    @given(path=PATHS, body=BODIES)
    def submit(path: bytes, body: dict[str, Any]) -> None:
        before = orjson.dumps(body)
        for service in (here, there):
            result = service.submit(path, body, "m", lambda outcome: None)
            assert isinstance(result, TokenOutcome | TokenTicket)
        assert orjson.dumps(body) == before

    try:
        submit()
        assert here.counts["short"]
    finally:
        await here.close()
        await there.close()
