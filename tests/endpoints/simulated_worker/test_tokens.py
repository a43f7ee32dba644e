"""Text, tokens and simulated responses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from endpoints.simulated_worker import tokens


@given(st.text())
def test_pieces_join_to_the_text(text: str) -> None:
    assert "".join(tokens.pieces(text)) == text


@given(st.text(alphabet=" abcdefgh.,\n1", max_size=60), st.integers(0, 3), st.integers(1, 400))
def test_response_in_the_next_prompt_keeps_its_tokens(text: str, seed: int, most: int) -> None:
    turn = {"role": "user", "content": text}
    prompt = tokens.encode(tokens.chat_prompt([turn]))
    answer, ended = tokens.answer(prompt, seed, 0, most)
    assert len(answer) <= most
    assert ended == (answer[-1] == ".")
    content = {"role": "assistant", "content": "".join(answer)}
    after = tokens.encode(tokens.chat_prompt([turn, content, turn]))
    whole = [*prompt, *map(tokens.number, answer)]
    assert after[: len(whole)] == whole


def test_response_text_describes_the_simulation() -> None:
    answer, _ = tokens.answer([1], 0, 0, 100)
    assert "".join(answer).startswith("[simulated] No model runs here: ")


def test_parts_tools_and_calls_are_in_the_prompt() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {}}]
    call = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    prompt = tokens.chat_prompt([{"role": "user", "content": parts}, call], tools=[{"name": "f"}])
    assert "look<image_url>" in prompt
    assert '"id": "1"' in prompt
    assert '"name": "f"' in prompt


def test_chain_covers_full_blocks_and_their_prefix() -> None:
    first = tokens.chain_hashes(range(100), 32)
    assert len(first) == 3
    assert tokens.chain_hashes(range(96), 32) == first
    changed = [*range(40), 7, *range(41, 100)]
    assert [a == b for a, b in zip(first, tokens.chain_hashes(changed, 32), strict=True)] == [
        True,
        False,
        False,
    ]
    assert set(first).isdisjoint(tokens.chain_hashes(range(100), 32, salt="x"))
    assert tokens.chain_hashes(range(31), 32) == []
