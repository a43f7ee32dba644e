"""Render requests with vLLM itself; run by the interpreter of .venv-vllm, never imported.

    .venv-vllm/bin/python tests/support/vllm/oracle.py FOLDER < questions.json > answers.json

A question is {"path", "body", "template"?: text, "server"?: {...}, "folder"?: another model's};
its answer {"text", "ids", "format"} or {"error"}. Request models, message parsing, template and
tokenizer are vLLM's; engine and HTTP server are left out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages
from vllm.renderers import merge_kwargs
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template
from vllm.tokenizers import get_tokenizer


def stub(folder: str) -> SimpleNamespace:
    return SimpleNamespace(
        model=folder,
        tokenizer=folder,
        revision=None,
        tokenizer_revision=None,
        code_revision=None,
        trust_remote_code=False,
        enable_prompt_embeds=False,
        multimodal_config=None,
        is_multimodal_model=False,
        max_model_len=1 << 30,
        allowed_local_media_path="",
        allowed_media_domains=None,
        hf_config=SimpleNamespace(model_type="llama"),
        encoder_config=None,
    )


class Oracle:
    def __init__(self, folder: str) -> None:
        self.tokenizer = get_tokenizer(folder)
        self.config = stub(folder)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        path, body = question["path"], question["body"]
        if path == "/v1/completions":
            request = CompletionRequest(**body)
            params = request.build_tok_params(self.config)
            return {"text": request.prompt, "ids": self.encode(request.prompt, params)}
        tools = None
        if path == "/v1/responses":
            responses = ResponsesRequest(**body)
            messages = construct_input_messages(
                request_instructions=responses.instructions, request_input=responses.input
            )
            request = responses
        else:
            if path == "/v1/messages":
                requested = AnthropicMessagesRequest(**body)
                request = AnthropicServingMessages.to_chat_completion_request(requested)
            else:
                request = ChatCompletionRequest(**body)
            messages = request.messages
            if request.tools is not None:
                tools = [tool.model_dump() for tool in request.tools]
        return self.chat(question, request, messages, tools)

    def chat(self, question: Any, request: Any, messages: Any, tools: Any) -> dict[str, Any]:
        server = question.get("server", {})
        defaults = merge_kwargs(server.get("template_kwargs"), {"tools": tools, "tokenize": False})
        params = request.build_chat_params(
            question.get("template"), server.get("content_format", "auto")
        ).with_defaults(defaults)
        kind = resolve_chat_template_content_format(
            chat_template=params.chat_template,
            tools=params.chat_template_kwargs.get("tools"),
            given_format=params.chat_template_content_format,
            tokenizer=self.tokenizer,
            model_config=self.config,
        )
        conversation, media, _ = parse_chat_messages(messages, self.config, content_format=kind)
        assert media is None
        text = safe_apply_chat_template(
            self.config, self.tokenizer, conversation, **params.get_apply_chat_template_kwargs()
        )
        ids = self.encode(text, request.build_tok_params(self.config))
        return {"text": text, "ids": ids, "format": kind}

    def encode(self, text: str, params: Any) -> list[int]:
        return list(self.tokenizer(text, **params.get_encode_kwargs())["input_ids"])


def main() -> None:
    oracles: dict[str, Oracle] = {}
    answers = []
    for question in json.load(sys.stdin):
        folder = question.get("folder", sys.argv[1])
        try:
            if folder not in oracles:
                oracles[folder] = Oracle(folder)
            answers.append(oracles[folder].answer(question))
        except Exception as error:
            first = str(error).partition("\n")[0]
            answers.append({"error": f"{type(error).__name__}: {first[:80]}"})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    asyncio.run(asyncio.to_thread(main))
