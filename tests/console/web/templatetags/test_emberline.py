"""Template filters."""

from __future__ import annotations

import pytest

from console.web.templatetags import emberline


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "–"), (0.0, "0 %"), (0.0001, "<1 %"), (0.0051, "1 %"), (1.0, "100 %")],
)
def test_a_small_share_is_not_zero(share: float | None, text: str) -> None:
    assert emberline.percent(share) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(None, "–"), (0.0, "$0.00"), (0.0000087, "<$0.01"), (0.021, "$0.02"), (1234.5, "$1,234.50")],
)
def test_a_sum_has_whole_cents(amount: float | None, text: str) -> None:
    assert emberline.usd_total(amount) == text


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Wait.", "Wait."),
        (
            "Run `make up` or `make <x>`.",
            "Run <code>make up</code> or <code>make &lt;x&gt;</code>.",
        ),
        ("`a`", "<code>a</code>"),
        ("a ` <b>", "a ` &lt;b&gt;"),
    ],
)
def test_commands_in_a_message_are_code(text: str, html: str) -> None:
    assert emberline.inline_code(text) == html
