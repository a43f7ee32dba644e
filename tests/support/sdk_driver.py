"""Stream answers with the vendors' SDKs: `python sdk_driver.py URL PATHS ENDINGS` (by commas).

Run by the Python of `.venv-clients`. Each ending goes to the worker in the header `x-ending`.
Prints for each one and each path, without and with diagnostics, the text received and what the SDK
raised, as a line of JSON.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

import anthropic
import openai

URL = sys.argv[1]
MESSAGES: Any = [{"role": "user", "content": "Hello"}]
OPENAI = openai.OpenAI(base_url=f"{URL}/v1", api_key="k", max_retries=0)
ANTHROPIC = anthropic.Anthropic(base_url=URL, api_key="k", max_retries=0)


def read(path: str, headers: dict[str, str]) -> Iterator[str]:
    """Yield the pieces of the answer's text."""
    more: Any = {"model": "m", "stream": True, "extra_headers": headers}
    if path == "/v1/messages":
        for event in ANTHROPIC.messages.create(max_tokens=9, messages=MESSAGES, **more):
            if event.type == "content_block_delta":
                yield event.delta.text
    elif path == "/v1/responses":
        for event in OPENAI.responses.create(input="Hello", **more):
            if event.type == "response.output_text.delta":
                yield event.delta
    elif path == "/v1/completions":
        for chunk in OPENAI.completions.create(prompt="Hello", **more):
            yield from (choice.text for choice in chunk.choices)
    else:
        for chunk in OPENAI.chat.completions.create(messages=MESSAGES, **more):
            yield from (choice.delta.content or "" for choice in chunk.choices)


def main() -> None:
    paths, endings = (word.split(",") for word in sys.argv[2:])
    asked: tuple[dict[str, str], ...] = ({}, {"x-emberline-diagnostics": "cache"})
    for ending, path, headers in itertools.product(endings, paths, asked):
        text, raised = "", ["", ""]
        try:
            for piece in read(path, {**headers, "x-ending": ending}):
                text += piece
        except Exception as error:
            raised = [type(error).__name__, str(error)]
        found = {"ending": ending, "path": path, "text": text, "raised": raised}
        print(json.dumps(found))


main()
