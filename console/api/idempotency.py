"""`Idempotency-Key`: a create request that is sent twice creates one object.

    @extend_schema(...)
    @idempotent
    def post(self, request): ...

Claiming the key, creating the object and storing the response are one transaction, so that of
concurrent requests of one caller with one key exactly one creates, across processes and crashes. A
second request blocks on the unique row (SQLite: on the write lock) until the first transaction
ends, then finds the stored response or does the work itself. Repeats get the same response with
`Idempotency-Replayed: true`; a different request with the same key gets 422. A rejected create
stores nothing, so it can be corrected and retried. Responses are encrypted, since they may contain
a secret shown once, and are deleted after a day.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, cast

from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.models import GivenAnswer
from console.api.parameters import is_dry_run
from console.api.preconditions import generation_of, with_generation
from console.core.errors import Problem, Refused
from console.vault import encryption
from console.vault.key_rotation import EncryptedColumns

HEADER = "Idempotency-Key"
RETENTION = timedelta(hours=24)
KEY_LIMIT = 255
_KEPT_HEADERS = ("Cache-Control", "Location")

Handler = Callable[..., Response]


def idempotent(handler: Handler) -> Handler:
    """Decorate a creating `post`; runs after authentication, permissions and throttling."""

    @wraps(handler)
    def once(view: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = request.headers.get(HEADER)
        if key is None or is_dry_run(request):
            return handler(view, request, *args, **kwargs)
        if not 1 <= len(key) <= KEY_LIMIT or not (key.isascii() and key.isprintable()):
            raise _bad_key_error(key)
        return _create_once(request, key, lambda: handler(view, request, *args, **kwargs))

    cast(Any, once).idempotent = True  # schema.py documents the header from this
    return once


def prune() -> int:
    return GivenAnswer.objects.filter(created_at__lt=timezone.now() - RETENTION).delete()[0]


def _create_once(request: Request, key: str, create: Callable[[], Response]) -> Response:
    caller, mark = _caller_id(request), _fingerprint(request)
    record = {"caller": caller, "key": key}
    with transaction.atomic():
        GivenAnswer.objects.filter(created_at__lt=timezone.now() - RETENTION, **record).delete()
        try:
            with transaction.atomic():
                row = GivenAnswer.objects.create(fingerprint=mark, **record)
        except IntegrityError:
            return _replay(record, mark)
        response = create()
        row.status = response.status_code
        row.sealed = encryption.seal(_pack(response), _purpose(row))
        row.save(update_fields=["status", "sealed"])
    return response


def _replay(facts: dict[str, str], mark: str) -> Response:
    row = GivenAnswer.objects.filter(**facts).first()
    if row is None:  # pruned or rolled back in between
        raise _busy_error(facts["key"])
    if row.fingerprint != mark:
        raise _reused_error(facts["key"])
    try:
        document = json.loads(encryption.unseal(row.sealed, _purpose(row)))
    except encryption.Unreadable:
        raise _lost_error(facts["key"]) from None
    headers = {**document["headers"], "Idempotency-Replayed": "true"}
    response = Response(document["body"], status=row.status, headers=headers)
    generation = document["generation"]
    return response if generation is None else with_generation(response, generation)


def _pack(response: Response) -> str:
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    packed = {"body": response.data, "headers": headers, "generation": generation_of(response)}
    return str(JSONRenderer().render(packed).decode())


def _purpose(row: GivenAnswer) -> str:
    return f"answer/{row.pk}"


SEALED = EncryptedColumns(
    GivenAnswer,
    ("sealed",),
    purpose=lambda row, _column: _purpose(row),
    title=lambda _row: "answers/kept",
)


def _caller_id(request: Request) -> str:
    """Identify the caller by token: another token of the user may have more rights."""
    token = getattr(request.auth, "pk", None)
    return f"user {request.user.pk} token {token}"


def _fingerprint(request: Request) -> str:
    body = json.dumps(request.data, sort_keys=True, default=str)
    whole = "\n".join((str(request.method), request.get_full_path(), body))
    return hashlib.sha256(whole.encode()).hexdigest()


def _bad_key_error(key: str) -> Refused:
    remedy = f"Send 1 to {KEY_LIMIT} printable ASCII characters, such as a UUID."
    message = "Invalid Idempotency-Key."
    return Refused(Problem(HEADER, key[:80], message, remedy, "invalid_idempotency_key"))


def _reused_error(key: str) -> Refused:
    message = "This key was used for another request."
    problem = Problem(HEADER, key, message, "Use a new key.", "idempotency_key_reused")
    return Refused(problem, status_code=422)


def _busy_error(key: str) -> Refused:
    message = "Another request with this key has just completed."
    problem = Problem(HEADER, key, message, "Repeat the request.", "idempotency_key_busy")
    return Refused(problem, status_code=409)


def _lost_error(key: str) -> Refused:
    message = (
        "The object was created, but the stored response cannot be decrypted with the current key."
    )
    remedy = "Check the list. Use a new key to create another object."
    return Refused(
        Problem(HEADER, key, message, remedy, "idempotency_answer_lost"), status_code=409
    )
