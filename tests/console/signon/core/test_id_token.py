"""ID tokens with unusual keys; test_single_signon.py covers the rest over HTTP."""

from __future__ import annotations

import base64
import time
from typing import Any

import jwt
import pytest

from console.signon.core import id_token

SECRET = b"a symmetric key which everybody can read in the JWKS"
SHOWN = {
    "keys": [
        {"kty": "oct", "kid": "odd", "k": base64.urlsafe_b64encode(SECRET).rstrip(b"=").decode()}
    ]
}


def token(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    return {"iss": "i", "sub": "s", "aud": "c", "iat": now, "exp": now + 60, "nonce": "n", **more}


def test_symmetric_key_is_rejected() -> None:
    """Any reader of the provider's public keys could sign with it."""
    signed = jwt.encode(token(), SECRET, algorithm="HS256", headers={"kid": "odd"})
    with pytest.raises(id_token.Rejected, match="unaccepted signature algorithm"):
        id_token.verify_token(signed, SHOWN, issuer="i", client_id="c", nonce="n")


@pytest.mark.parametrize("keys", [{}, {"keys": []}, {"keys": "x"}, {"keys": [{"kty": "new"}]}])
def test_malformed_keys_are_rejected(keys: dict[str, Any]) -> None:
    signed = jwt.encode(token(), SECRET, algorithm="HS512", headers={"kid": "odd"})
    forged = signed.replace(signed.split(".")[0], _header("RS256"), 1)
    with pytest.raises(id_token.Rejected):
        id_token.verify_token(forged, keys, issuer="i", client_id="c", nonce="n")


def _header(algorithm: str) -> str:
    text = f'{{"alg":"{algorithm}","kid":"odd","typ":"JWT"}}'
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
