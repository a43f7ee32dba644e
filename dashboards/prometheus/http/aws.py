"""AWS Signature Version 4 by botocore, with the AWS credentials of the console's machine or pod.

Credentials are searched in the order of the AWS SDKs: environment, web identity (IRSA), shared
credentials file, container agent (EKS Pod Identity, ECS). The EC2 metadata service is not used: in
a cluster it would provide the node's role, shared by all pods. botocore is the extra `aws`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

_DEADLINE_S = 3.0
_OWN = ("X-Amz-Date", "X-Amz-Security-Token", "Authorization")
_NO_CREDENTIALS = (
    "No AWS credentials: enter an access key, or give the console's pod a role (IRSA or Pod "
    "Identity)."
)
_lock = threading.Lock()


class SigningError(Exception):
    """Reason why a request cannot be signed, for users, without secrets."""


def sign(
    key: tuple[str, str] | None,
    region: str,
    service: str,
    method: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
) -> dict[str, str]:
    """Return the authentication headers. `key`: access key ID and secret key, None for the
    credentials of the machine or pod; `headers` are signed, too. Raises SigningError.
    """
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
    except ImportError:
        raise SigningError("botocore is not installed: pip install 'emberline[aws]'.") from None
    credentials = Credentials(*key) if key is not None else _own_credentials(region)
    request: Any = AWSRequest(method, _canonical(url), headers=dict(headers), data=body)
    SigV4Auth(credentials, service, region).add_auth(request)
    return {name: request.headers[name] for name in _OWN if name in request.headers}


def _canonical(url: str) -> str:
    """Return the URL with its query encoded as it is signed: a space as %20."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    return parts._replace(query=urlencode(pairs, quote_via=quote, safe="-_.~")).geturl()


def _own_credentials(region: str) -> Any:
    """Return the current credentials; temporary ones are renewed shortly before they expire."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        with _lock:
            credentials = _session(region).get_credentials()
            if credentials is None:
                raise SigningError(_NO_CREDENTIALS)
            return credentials.get_frozen_credentials()
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown error")
        raise SigningError(f"AWS denied access: {code}.") from None
    except (BotoCoreError, ValueError, OSError) as error:
        text = f"AWS credentials cannot be read ({type(error).__name__})."
        raise SigningError(f"{text} {_NO_CREDENTIALS}") from None


@cache
def _session(region: str) -> Any:
    from botocore.config import Config
    from botocore.session import Session

    session = Session()
    session.set_config_variable("region", region)
    limits = {"connect_timeout": _DEADLINE_S, "read_timeout": _DEADLINE_S}
    session.set_default_client_config(Config(**limits, retries={"max_attempts": 1}))
    session.get_component("credential_provider").remove("iam-role")
    return session
