"""Token accounting: reservation before dispatch, actual usage at the end.

Unreported tokens are estimated by vLLM's own counting: a prompt counts from its first token,
completion tokens until the abort.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

import orjson

from routing.engine.errors import Refusal, find_error_event
from routing.engine.http import bodies
from routing.engine.prompt import engine_request

if TYPE_CHECKING:
    from routing.engine.access.key_usage import KeyUse
    from routing.engine.config import Config, Key
    from routing.engine.http.http1 import RequestHead
    from routing.engine.observe.metrics import Metrics
    from routing.engine.prompt.identity import Identifier, Identity
    from routing.engine.request import RoutedRequest
    from routing.engine.tokens.usage import BytesPerToken, TokenUsage

NOT_REPORTED: Final = "not_reported"
# Client hang-up or timeout before the answer: the engine was computing.
_ABORT_REASONS: Final = ("client_cancelled", "upstream_timeout")
_COUNTED_STATUSES: Final = (200, 499, 504)  # other statuses: no worker computed anything
_INITIAL_ITL_S: Final = 0.05
_ITL_WEIGHT: Final = 1 / 32
_BODY_TOKEN_BYTES: Final = 4
_FORM_TOKENS: Final = 512  # per audio or other file, whose size does not determine its tokens


class TokenLedger:
    def __init__(self, use: KeyUse, metrics: Metrics, ratios: BytesPerToken) -> None:
        self._use = use
        self._ratios = ratios
        self._metrics = metrics
        self._identifier: Identifier
        self._most_values = 0
        self._isolation = ""  # "": shared caches
        self._groups: dict[str, str] = {}
        self._context = 0  # longest context reported by workers, in tokens; 0: unknown
        self._token_s = _INITIAL_ITL_S

    def configure(self, config: Config, identifier: Identifier) -> None:
        shared = config.keys is None or config.cache_isolation == "shared"
        self._isolation = "" if shared else config.cache_isolation
        self._groups = {key.id: key.group for key in config.keys or ()}
        self._identifier = identifier
        self._most_values = config.limits.json_values

    def learn_context(self, tokens: object) -> None:
        if type(tokens) is int:
            self._context = max(self._context, tokens)

    def scope(self, key_id: str, group: str) -> str:
        """Return the isolation scope of a key's KV cache; "": shared."""
        if not self._isolation:
            return ""
        return f"group {group}" if self._isolation == "group" and group else f"key {key_id}"

    async def as_sent(self, body: bytes, key_id: str) -> bytes:
        """Return the body as a worker would receive it with this key. Raise Refusal."""
        if not self._isolation or not key_id:
            return body
        data = await bodies.parse_large(body, self._most_values, bodies.ReadPace())
        if data is None:
            return body
        if key_id not in self._groups:
            message = "key: unknown id. Use the id of an active key."
            raise Refusal("bad_request", message, "key")
        salt = self._identifier.salt(self.scope(key_id, self._groups[key_id]), data)
        return engine_request.with_fields(body, data, {"cache_salt": salt})

    def reads(self, key: Key, scope: str, body: bytes) -> bool:
        """Return True if the body must be parsed for this key, independently of the strategy."""
        return bool(scope or key.budget_tokens) or engine_request.must_read(body)

    def scope_there(self, key: Key, path: bytes) -> str:
        if not self._isolation or not engine_request.can_isolate(path):
            return ""
        return self.scope(key.id, key.group)

    def prepare(self, exchange: RoutedRequest, identity: Identity, key: Key) -> bytes | None:
        """Return the body with the router's fields. Fills in `exchange.ask`."""
        ask, head, body = exchange.ask, exchange.head, exchange.body
        if head.method != b"POST":
            return body
        data = identity.data
        if (
            data is None
            and engine_request.takes_json(ask.path)
            and (identity.parsed or body == b"")
        ):
            ask.isolated = True  # empty, or JSON but no object: every engine refuses it
            return body
        if body is None or data is None:
            return self._open(ask, head, body, key)
        engine_request.read_parameters(ask, data)
        exchange.decision.choices = ask.choices
        ask.isolated = bool(identity.fields)
        fields = identity.fields | engine_request.usage_fields(ask, data)
        return engine_request.with_fields(body, data, fields) if fields else body

    def _open(
        self, ask: engine_request.EngineRequest, head: RequestHead, body: bytes | None, key: Key
    ) -> bytes | None:
        """Insert the salt at the start of an unparsed body. A caller's own salt further back wins,
        but matches no other key's.
        """
        scope = self.scope_there(key, ask.path)
        if not scope:
            return body
        opening = b'"cache_salt":%b,' % orjson.dumps(self._identifier.salt(scope, {}))
        ask.isolated = True
        if body is None:
            ask.opening = opening
            head.length += len(opening) if head.length >= 0 else 0
            return None
        try:
            return engine_request.insert_opening(body, opening)
        except ValueError:
            ask.isolated = False
            return body

    def admit(self, exchange: RoutedRequest, key: Key, free: bool) -> None:
        """Reserve the expected tokens; `free`: no inference. Raise Refusal."""
        ask = exchange.ask
        if free or exchange.head.method != b"POST" or not engine_request.path_uses_model(ask.path):
            return
        if self._isolation and not ask.isolated and engine_request.needs_isolation(ask.path):
            message = (
                f"This endpoint isolates the KV cache of each {self._isolation}: the body must be "
                "a JSON object in UTF-8, sent to a path which takes a cache_salt."
            )
            raise Refusal("cache_isolation", message)
        if key.budget_tokens:
            prompt = self._clamped(exchange.facts.tokens) * ask.choices
            self._use.reserve(key, exchange.decision, prompt + ask.completion)

    def _clamped(self, prompt_tokens: int) -> int:
        return min(prompt_tokens, self._context) if self._context else prompt_tokens

    def account(self, exchange: RoutedRequest, error: str) -> None:
        """Count an ended request's tokens, as reported by the engine if complete."""
        answer, decision = exchange.answer, exchange.decision
        if exchange.head.method != b"POST" or decision.status not in _COUNTED_STATUSES:
            return
        reported = answer.usage()
        if reported is None or reported.prompt is None or (error and not answer.final):
            self._estimate(exchange, error, reported if answer.streams else None)
        elif decision.status == 200:
            self._reported(exchange, reported, reported.prompt)

    def _reported(self, exchange: RoutedRequest, found: TokenUsage, prompt: int) -> None:
        decision, model = exchange.decision, exchange.model
        if decision.prompt_tokens:
            # The prediction is in estimated tokens: apply its share to the reported count.
            share = min(decision.predicted / decision.prompt_tokens, 1.0)
            decision.predicted = round(share * prompt)
        decision.prompt_tokens = prompt
        decision.cached_tokens = found.cached
        decision.completion_tokens = found.completion
        decision.estimated = False
        decision.counted = True
        charged, completion = decision.charged()
        model.prompt.value += charged
        model.predicted.value += decision.predicted
        model.cached.value += found.cached or 0
        model.completion.value += completion
        self._ratios.learn(model.name, exchange.facts.size, prompt)
        if completion:
            seconds = (perf_counter() - exchange.sent_at) * exchange.ask.answers / completion
            self._token_s += (seconds - self._token_s) * _ITL_WEIGHT

    def _estimate(self, exchange: RoutedRequest, error: str, found: TokenUsage | None) -> None:
        """Count unreported tokens as far as work was done. `found`: partial usage of an unfinished
        stream.
        """
        ask, decision = exchange.ask, exchange.decision
        if not engine_request.path_uses_model(ask.path):
            return
        completion = self._completion(exchange, error)
        if completion is None:
            return
        if found is not None:
            decision.prompt_tokens = found.prompt or decision.prompt_tokens
            decision.cached_tokens = found.cached
            completion = max(completion, found.completion or 0)
        else:
            form = (exchange.head.get(b"content-type") or b"").startswith(b"multipart/")
            prompt = _FORM_TOKENS if form else self._clamped(decision.prompt_tokens)
            decision.prompt_tokens = prompt
        decision.completion_tokens = completion
        decision.counted = True
        decision.estimate_reason = error or NOT_REPORTED
        self._metrics.estimated(decision.estimate_reason, *decision.charged())

    def _completion(self, exchange: RoutedRequest, error: str) -> int | None:
        """Estimate unreported completion tokens; None: the engine counted nothing."""
        ask, answer = exchange.ask, exchange.answer
        most = ask.most * ask.answers or engine_request.DEFAULT_COMPLETION * 1024
        if exchange.answered and exchange.decision.status == 200:
            if not engine_request.path_generates(ask.path):
                return 0
            if answer.streams:
                events = answer.events - engine_request.opening_events(ask.path, ask.choices)
                if reported := find_error_event(answer.tail):  # no token, nor what follows it
                    events -= answer.tail.partition(reported)[2].count(b"\n\n")
                return max(min(events, most), 0) if answer.events else None
            if ask.background:
                return ask.completion
            return min(answer.size // _BODY_TOKEN_BYTES, most)
        if error not in _ABORT_REASONS or ask.stream or not exchange.sent_at:
            return None
        seconds = perf_counter() - exchange.sent_at
        return min(int(seconds / max(self._token_s, 1e-4)) * ask.answers, most)
