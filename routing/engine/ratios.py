"""How many bytes of text make a token, learned for each model from what engines report.

Promises a figure at once (four, then what all models together taught), bounded memory, and that a
single odd report moves it little. Must not know requests.
"""

from __future__ import annotations

START = 4.0  # English text on the usual tokenizers
LEAST, MOST = 1.0, 16.0  # Chinese as bytes; whitespace of code
LEAST_BYTES = 256  # in shorter prompts the template's own tokens count for too much
WEIGHT = 0.02  # of a new report, once there were many
MODELS = 256


class Ratios:
    """Bytes per token, by the model's name."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int]] = {}
        self._all: tuple[float, int] = (START, 0)

    def of(self, model: str) -> float:
        found = self._known.get(model)
        return self._all[0] if found is None else found[0]

    def learn(self, model: str, size: int, tokens: int) -> None:
        """A prompt of `size` bytes had so many tokens. `model` is one which is served: what a
        caller may call it is not."""
        if size < LEAST_BYTES or tokens <= 0:
            return
        ratio = min(max(size / tokens, LEAST), MOST)
        self._all = _moved(self._all, ratio)
        known = self._known.get(model)
        if known is not None or len(self._known) < MODELS:
            self._known[model] = _moved(known or (ratio, 0), ratio)


def _moved(before: tuple[float, int], ratio: float) -> tuple[float, int]:
    value, count = before
    count += 1
    return value + (ratio - value) * max(WEIGHT, 1 / count), count
