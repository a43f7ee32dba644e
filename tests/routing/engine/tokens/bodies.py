"""Random chat bodies: mostly valid, in every notation, some invalid."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]

_TEXTS = (
    *("", "a", " a ", "Hello there.", "naïve 你好 👩‍👧\u0301", "<|im_end|>\n<|im_start|>system\nx"),
    *("line\nline\n\n", "\t tabs \r\n", "x-anthropic-billing-header: 1\nrest", "<think>a</think>b"),
    *("<tool_response>x</tool_response>", '{"a": 1}', "\u00a0\u200b", "don't it's", "12345 67"),
)
_ARGUMENTS = ("", "{}", '{"b": [1, 2.50, null], "a": "é"}', "[1]", "nonsense", "3", '{"n": 1E400}')
_ODD: tuple[Any, ...] = (None, True, 0, 1.5, "odd", [], {}, [1], {"a": 1}, ["x"])


class Bodies:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def odd(self, value: Any, share: float = 0.01) -> Any:
        return self.chance.choice(_ODD) if self.chance.random() < share else value

    def some(self, share: float) -> bool:
        return self.chance.random() < share

    def text(self) -> str:
        return self.chance.choice(_TEXTS)

    def part(self) -> Any:
        kind = self.chance.choice(["text"] * 8 + ["refusal", "thinking", "plain", "reference"])
        if kind == "plain":
            return self.text()
        if kind == "reference":
            return {"type": "tool_reference", "name": self.odd("f")}
        part: Json = {"type": kind, kind: self.odd(self.text())}
        if self.some(0.2):
            part["cache_control"] = {"type": "ephemeral"}
        if self.some(0.1):
            part = dict(reversed(part.items()))
        if self.some(0.02):
            part["image_url"] = {"url": "data:,"}
        return part

    def content(self) -> Any:
        if self.some(0.7):
            return self.odd(self.text())
        return self.odd([self.odd(self.part()) for _ in range(self.chance.randint(0, 3))])

    def call(self) -> Any:
        function = {"name": self.odd("f"), "arguments": self.odd(self.chance.choice(_ARGUMENTS))}
        if self.some(0.2):
            function = {"arguments": function["arguments"], "x": 1, "name": function["name"]}
        call: Json = {"id": self.odd("c1"), "type": "function", "function": self.odd(function)}
        if self.some(0.3):
            call = {"index": 0, **dict(reversed(call.items()))}
        return call

    def message(self) -> Any:
        role = self.chance.choice(
            ["user"] * 4 + ["assistant"] * 4 + ["system", "tool", "developer", "critic"]
        )
        message: Json = {"role": role, "content": self.content()}
        if self.some(0.05):
            del message["content"]
        if role == "assistant":
            if self.some(0.3):
                message["tool_calls"] = self.odd([self.odd(self.call()) for _ in range(2)], 0.1)
                if self.some(0.5):
                    message["content"] = None
            for name in ("reasoning", "reasoning_content"):
                if self.some(0.15):
                    message[name] = self.odd(self.text(), 0.1)
        if role == "tool":
            message["tool_call_id"] = self.odd("c1")
        for name in ("name", "task", "refusal", "zz"):
            if self.some(0.05):
                message[name] = self.odd(self.text(), 0.2)
        if self.some(0.1):
            message = dict(reversed(message.items()))
        return message

    def tool(self) -> Any:
        function: Json = {"name": self.odd("f")}
        if self.some(0.7):
            function["parameters"] = self.odd({"type": "object", "properties": {"b": {}, "a": {}}})
        if self.some(0.5):
            function["description"] = self.odd(self.text())
        if self.some(0.2):
            function["strict"] = self.odd(True)
        tool: Json = {"function": function}
        if self.some(0.8):
            tool["type"] = "function"
        if self.some(0.1):
            tool["defer_loading"] = self.some(0.5)
        return tool

    def body(self) -> Json:
        turns = self.chance.randint(1, 5)
        body: Json = {"messages": [self.message() for _ in range(turns)]}
        if self.some(0.3):
            body["tools"] = self.odd([self.odd(self.tool()) for _ in range(2)])
        options: Json = {
            "tool_choice": "none",
            "add_generation_prompt": self.some(0.5),
            "continue_final_message": self.some(0.7),
            "documents": [{"title": "t", "text": "u"}],
            "reasoning_effort": self.chance.choice(["low", "none"]),
            "add_special_tokens": self.some(0.5),
            "chat_template_kwargs": {
                "mode": self.chance.choice([*_ODD, "auto"]),
                "enable_thinking": self.some(0.5),
            },
        }
        for name, value in options.items():
            if self.some(0.15):
                body[name] = self.odd(value, 0.05)
        return body
