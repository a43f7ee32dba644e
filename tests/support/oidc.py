"""OpenID provider over HTTP: a packaged mock behind our proxy.

The proxy enforces PKCE (the mock does not), signs ID tokens with its own key so that tests can
forge them, and records requests.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client
from oidc_provider_mock import app as mock_app
from werkzeug.serving import make_server
from werkzeug.test import run_wsgi_app
from werkzeug.wrappers import Request, Response

Claims = dict[str, Any]


class OpenIdProvider:
    def __init__(self) -> None:
        os.environ.setdefault("AUTHLIB_INSECURE_TRANSPORT", "1")
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.inner = mock_app()
        self.url = ""
        self.token_requests: list[dict[str, str]] = []
        self.challenges: dict[str, str] = {}
        self.calm()

    def calm(self) -> None:
        """Reset all forgeries."""
        self.forge: Callable[[Claims], Claims] = lambda claims: claims
        self.signed: Callable[[Claims], str | None] = lambda claims: jwt.encode(
            claims, self.key, algorithm="RS256", headers={"kid": "front"}
        )
        self.documents: dict[str, Callable[[Any], Any]] = {}
        self.broken: dict[str, Response] = {}

    def person(self, subject: str, **claims: Any) -> None:
        httpx.put(f"{self.url}/users/{subject}", json=claims).raise_for_status()

    def authorize(self, url: str, subject: str) -> str:
        """Return the redirect after the user's consent."""
        answer = httpx.post(url, data={"sub": subject})
        assert answer.status_code == 302, answer.text
        return answer.headers["Location"]

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        # The mock reads the body too.
        environ["wsgi.input"] = BytesIO(Request(environ).get_data())
        request = Request({**environ})
        path = request.path
        if path in self.broken:
            return self.broken[path](environ, start_response)
        if path == "/jwks":
            body: Any = {"keys": [self.public()]}
        elif path == "/oauth2/token" and not self._proven(request):
            response = Response('{"error": "invalid_grant"}', 400, mimetype="application/json")
            return response(environ, start_response)
        else:
            if path == "/oauth2/authorize":
                self.token_requests.append(dict(parse_qsl(request.query_string.decode())))
            answer = Response(*run_wsgi_app(self.inner, environ))
            if path == "/oauth2/authorize" and answer.status_code == 302:
                code = parse_qs(urlsplit(answer.headers["Location"]).query).get("code", [""])[0]
                self.challenges[code] = self.token_requests[-1].get("code_challenge", "")
            if answer.mimetype == "text/html":  # the mock's page loads styles from another host
                answer.set_data(
                    re.sub(rb"<link\b[^>]*>", b"<link rel=icon href=data:,>", answer.get_data())
                )
            if not answer.is_json or answer.status_code != 200:
                return answer(environ, start_response)
            body = json.loads(answer.get_data())
        if path == "/oauth2/token":
            honest = jwt.decode(body["id_token"], options={"verify_signature": False})
            body["id_token"] = self.signed(self.forge(honest))
        body = self.documents.get(path, lambda same: same)(body)
        return Response(json.dumps(body), mimetype="application/json")(environ, start_response)

    def public(self) -> Claims:
        found = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {**found, "kid": "front", "use": "sig", "alg": "RS256"}

    def _proven(self, request: Request) -> bool:
        verifier = request.form.get("code_verifier", "")
        digest = hashlib.sha256(verifier.encode()).digest()
        request.environ["wsgi.input"].seek(0)
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return self.challenges.get(request.form.get("code", "")) == challenge


@contextmanager
def running() -> Iterator[OpenIdProvider]:
    provider = OpenIdProvider()
    server = make_server("localhost", 0, provider, threaded=True)
    provider.url = f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def begin(client: Client, path: str = "/login/with/acme/", **form: str) -> str:
    """Return the URL the browser is redirected to."""
    page = client.post(path, form)
    assert page.status_code == 200, page.content.decode()
    found = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', page.content.decode())
    assert found is not None
    return html.unescape(found[1])


def sign_on(client: Client, provider: OpenIdProvider, subject: str, **form: str) -> Any:
    """Perform the whole sign-on; return the last response."""
    return client.get(provider.authorize(begin(client, **form), subject))
