"""HTTP paths of a vLLM server, answered by a simulated worker.

Every response is marked as simulated (`system_fingerprint`, `owned_by`, a header). A draining
worker finishes its requests and rejects new ones.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

from console.processkit.metrics import CONTENT_TYPE
from endpoints.simulated_worker import openai, tokens
from endpoints.simulated_worker.engine import Engine, Job
from endpoints.simulated_worker.http import Request, Responder
from endpoints.simulated_worker.l2 import L2
from endpoints.simulated_worker.openai import ApiError
from endpoints.simulated_worker.options import Options
from endpoints.simulated_worker.telemetry import Telemetry

VERSION = "0.32.0+emberline.simulated"
_JSON = "application/json"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")  # bounds the label values
_MARK = {"x_emberline_simulated": "1"}
Answer = Callable[[Request, Responder], Awaitable[None]]


class Api:
    def __init__(
        self,
        options: Options,
        engine: Engine,
        telemetry: Telemetry,
        l2: L2 | None,
        kv_events: dict[str, object] | None = None,
    ) -> None:
        self._options = options
        self._engine = engine
        self._telemetry = telemetry
        self._l2 = l2
        self._kv_sources = {} if kv_events is None else {"0": kv_events}
        self.draining = False
        self._paths: dict[str, tuple[str, Answer]] = {
            "/health": ("GET", self._health),
            "/ping": ("GET", self._health),
            "/version": ("GET", self._version),
            "/metrics": ("GET", self._metrics),
            "/kv_event_sources": ("GET", self._kv_event_sources),
            "/v1/models": ("GET", self._models),
            "/tokenize": ("POST", self._tokenize),
            "/v1/chat/completions": ("POST", partial(self._generate, chat=True)),
            "/v1/completions": ("POST", partial(self._generate, chat=False)),
        }
        if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
            self._paths["/reset_prefix_cache"] = ("POST", self._reset_prefix_cache)

    async def handle(self, request: Request, responder: Responder) -> None:
        try:
            method, answer = self._paths.get(request.path, ("", None))
            if answer is None:
                raise ApiError(404, "Not Found")
            if request.method != method and not (request.path == "/ping"):
                raise ApiError(405, "Method Not Allowed")
            await answer(request, responder)
        except ApiError as error:
            responder.send(error.status, error.body(), _JSON, **_MARK)
        finally:
            if request.path not in ("/metrics", "/health", "/ping"):
                handler = request.path if request.path in self._paths else "none"
                method = request.method if request.method in _METHODS else "other"
                self._telemetry.http(handler, method, responder.status or 499)

    # ---- small endpoints

    async def _health(self, _: Request, responder: Responder) -> None:
        responder.send(503 if self.draining else 200, b"", "text/plain", **_MARK)

    async def _version(self, _: Request, responder: Responder) -> None:
        self._json(responder, {"version": VERSION})

    async def _metrics(self, _: Request, responder: Responder) -> None:
        responder.send(200, self._telemetry.render(self._l2).encode(), CONTENT_TYPE)

    async def _kv_event_sources(self, _: Request, responder: Responder) -> None:
        self._json(responder, self._kv_sources)

    async def _reset_prefix_cache(self, _: Request, responder: Responder) -> None:
        self._json(responder, {"success": self._engine.reset_prefix_cache()})

    async def _models(self, _: Request, responder: Responder) -> None:
        models = [
            {
                "id": name,
                "object": "model",
                "created": 0,
                "owned_by": openai.FINGERPRINT,
                "root": self._options.models[-1],
                "parent": None,
                "max_model_len": self._options.max_model_len,
            }
            for name in self._options.models
        ]
        self._json(responder, {"object": "list", "data": models})

    async def _tokenize(self, request: Request, responder: Responder) -> None:
        body = openai.load(request.body)
        openai.check_model(body, self._options.models)
        if "messages" in body:
            ids, texts = openai.chat_tokens(body), None
        elif isinstance(body.get("prompt"), str):
            ids, texts = tokens.encode(body["prompt"]), tokens.pieces(body["prompt"])
        else:
            raise ApiError(400, "prompt must be a string.", "prompt")
        self._json(
            responder,
            {
                "count": len(ids),
                "max_model_len": self._options.max_model_len,
                "tokens": ids,
                "token_strs": texts if body.get("return_token_strs") else None,
            },
        )

    # ---- generation

    async def _generate(self, request: Request, responder: Responder, chat: bool) -> None:
        if self.draining:
            responder.keep_alive = False
            raise ApiError(503, "This worker is shutting down.")
        body = openai.load(request.body)
        ask = openai.check(body, chat, self._options.models, self._options.max_model_len)
        job = self._engine.job(ask.prompt, ask.max_tokens, ask.min_tokens, ask.salt)
        job.report = ask.report
        if not self._engine.fits(job):
            raise ApiError(400, "The request needs more KV blocks than this worker has.")
        shape = openai.Shape(ask, request.headers.get("x-request-id") or uuid.uuid4().hex)
        async with aclosing(self._text(job, ask.stops)) as text:
            if ask.stream:
                await self._stream(job, shape, text, responder)
            else:
                whole = "".join([piece async for piece in text])
                answer = shape.whole(whole, job.finish, _usage(job))
                responder.send(200, answer, _JSON, **_MARK)

    async def _stream(
        self, job: Job, shape: openai.Shape, text: AsyncIterator[str], responder: Responder
    ) -> None:
        waiting = shape.chunk(None) if shape.ask.chat else b""
        async for piece in text:
            if not responder.status:  # the status is sent with the first token
                responder.start(200, "text/event-stream; charset=utf-8", **_MARK)
            await responder.write(waiting + shape.chunk(piece))
            waiting = b""
        end = shape.chunk("", job.finish)
        if shape.ask.include_usage:
            end += shape.usage_chunk(_usage(job))
        await responder.write(end + openai.DONE)
        responder.finish()

    async def _text(self, job: Job, stops: tuple[str, ...]) -> AsyncGenerator[str, None]:
        """Yield text up to a stop string; a possible prefix of one is held back."""
        held = ""
        longest = max((len(stop) for stop in stops), default=1) - 1
        async with aclosing(self._engine.run(job)) as pieces:
            async for piece in pieces:
                held += piece
                cut = min((index for stop in stops if (index := held.find(stop)) >= 0), default=-1)
                if cut >= 0:
                    job.finish = "stop"
                    held = held[:cut]
                    break
                if ready := held[: len(held) - longest]:
                    held = held[len(ready) :]
                    yield ready
        if held:
            yield held

    def _json(self, responder: Responder, value: object) -> None:
        responder.send(200, openai.dump(value), _JSON, **_MARK)


def _usage(job: Job) -> dict[str, object]:
    return openai.usage(len(job.prompt), job.generated, job.way.cached)
