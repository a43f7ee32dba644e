"""Template filters."""

from __future__ import annotations

import pytest

from console.web.templatetags import emberline


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
