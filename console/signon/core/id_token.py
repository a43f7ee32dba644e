"""ID token verification: signature, issuer, audience, nonce and lifetime.

Only asymmetric algorithms and the provider's current keys are accepted.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import jwt

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
_LEEWAY_S = 60
_REQUIRED = ["iss", "sub", "aud", "exp", "iat", "nonce"]


class Rejected(Exception):
    """Invalid token; the text is for logs and never contains the token."""


def verify_token(
    token: str, keys: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str
) -> dict[str, Any]:
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise Rejected("the ID token has an unaccepted signature algorithm")
        claims: dict[str, Any] = jwt.decode(
            token,
            _key(keys, header),
            algorithms=[header["alg"]],
            issuer=issuer,
            audience=client_id,
            leeway=_LEEWAY_S,
            options={"require": _REQUIRED},
        )
    except (jwt.PyJWTError, TypeError, ValueError) as error:
        raise Rejected(f"the ID token is not valid ({type(error).__name__})") from None
    audience = claims["aud"]
    if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != client_id:
        raise Rejected("the ID token has another audience")
    if not hmac.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
        raise Rejected("the ID token belongs to another login attempt (nonce)")
    if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= 255:
        raise Rejected("the ID token has no subject")
    return claims


def _key(keys: Mapping[str, Any], header: Mapping[str, Any]) -> Any:
    key_set = jwt.PyJWKSet.from_dict(dict(keys)).keys
    usable = [key for key in key_set if key.public_key_use in (None, "sig")]
    kid = header.get("kid")
    for key in usable:
        if key.key_id == kid or (kid is None and len(usable) == 1):
            return key.key
    raise Rejected("the ID token is signed with a key that the provider does not publish")
