"""Code snippets of a request in curl, Python and JavaScript. Pure.

User input is escaped per language; the API key is read from the environment, never included.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

KEY = "EMBERLINE_API_KEY"


def request_body(
    model: str, messages: list[dict[str, str]], api: str, fields: dict[str, Any], prompt: str
) -> dict[str, Any]:
    content: dict[str, Any] = {"messages": messages} if api == "chat" else {"prompt": prompt}
    return {"model": model, **content, **fields, "stream": True}


def snippets(url: str, api: str, body: dict[str, Any]) -> dict[str, str]:
    path = "/v1/chat/completions" if api == "chat" else "/v1/completions"
    address = url.rstrip("/") + path
    return {
        "curl": _curl(address, body),
        "python": _python(url.rstrip("/") + "/v1", api, body),
        "javascript": _javascript(address, body),
    }


def _curl(address: str, body: dict[str, Any]) -> str:
    text = json.dumps(body, indent=2, ensure_ascii=False)
    return (
        f"curl -N {shlex.quote(address)} \\\n"
        f'  -H "Authorization: Bearer ${KEY}" \\\n'
        f"  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(text)}\n"
    )


_OPENAI_PARAMETERS = {
    *("model", "messages", "prompt", "stream", "stop", "max_tokens", "temperature", "top_p"),
    *("seed", "presence_penalty", "frequency_penalty"),
}


def _python(base: str, api: str, body: dict[str, Any]) -> str:
    """Return Python code; parameters unknown to the openai package go in `extra_body`."""
    values = {name: value for name, value in body.items() if name in _OPENAI_PARAMETERS}
    more = {name: value for name, value in body.items() if name not in _OPENAI_PARAMETERS}
    if more:
        values["extra_body"] = more
    arguments = "".join(f"    {name}={value!r},\n" for name, value in values.items())
    kind = "chat.completions" if api == "chat" else "completions"
    piece = "choices[0].delta.content" if api == "chat" else "choices[0].text"
    return (
        "import os\n\n"
        "from openai import OpenAI\n\n"
        f'client = OpenAI(base_url={base!r}, api_key=os.environ["{KEY}"])\n'
        f"stream = client.{kind}.create(\n{arguments})\n"
        "for event in stream:\n"
        "    if event.choices:\n"
        f'        print(event.{piece} or "", end="", flush=True)\n'
    )


def _javascript(address: str, body: dict[str, Any]) -> str:
    # Escape closing script tags and line separators, so that the string is safe wherever pasted.
    text = json.dumps(body, indent=2).replace("</", "<\\/")
    return (
        f"const response = await fetch({json.dumps(address)}, {{\n"
        '  method: "POST",\n'
        "  headers: {\n"
        f"    Authorization: `Bearer ${{process.env.{KEY}}}`,\n"
        '    "Content-Type": "application/json",\n'
        "  },\n"
        f"  body: JSON.stringify({text}),\n"
        "});\n"
        "if (!response.ok) throw new Error(await response.text());\n"
        'let rest = "";\n'
        "for await (const part of response.body.pipeThrough(new TextDecoderStream())) {\n"
        '  const lines = (rest + part).split("\\n");\n'
        "  rest = lines.pop();\n"
        "  for (const line of lines) {\n"
        '    if (!line.startsWith("data: ") || line === "data: [DONE]") continue;\n'
        "    const [choice] = JSON.parse(line.slice(6)).choices;\n"
        '    process.stdout.write(choice?.delta?.content ?? choice?.text ?? "");\n'
        "  }\n"
        "}\n"
    )
