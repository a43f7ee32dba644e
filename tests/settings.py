"""The console's settings over a folder of its own, so that tests never see a real `var/`.

The environment must be set before `console.settings` reads it, hence a module, not a fixture.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_var = tempfile.mkdtemp(prefix="emberline-test-")
atexit.register(shutil.rmtree, _var, ignore_errors=True)
for _name in ("DATABASE_URL", "REDIS_URL_FILE", "PROMETHEUS_URL", "EMBERLINE_DEBUG"):
    os.environ.pop(_name, None)
# EMBERLINE_TEST_DATABASE_URL=postgres://USER:PASSWORD@HOST/DB runs the same tests over PostgreSQL;
# the user must be allowed to create databases.
if os.environ.get("EMBERLINE_TEST_DATABASE_URL"):
    os.environ["DATABASE_URL"] = os.environ["EMBERLINE_TEST_DATABASE_URL"]
# Kind of workers of the caller, for tests which start real workers (also in xdist's children).
os.environ.setdefault("EMBERLINE_TEST_WORKERS", os.environ.get("WORKERS", "vllm"))
os.environ.update(
    EMBERLINE_VAR=_var,
    EMBERLINE_PROVISIONER="fake",
    EMBERLINE_WORKER_IMAGE="emberline-worker:test",
    EMBERLINE_ENGINE_IMAGE="emberline-engine:test",
    WORKERS="simulated",
    REDIS_URL="memory://",
    EMBERLINE_MODEL_HUB="",  # tests reach no other host
    # Stubs of webhooks, API servers and Prometheus are on this machine.
    EMBERLINE_OUTBOUND_ALLOW="127.0.0.0/8,::1",
)

# The same for every process: a kept test database has a row that is encrypted with it.
_secrets = Path(_var) / "secrets"
_secrets.mkdir(mode=0o700)
(_secrets / "encryption_key").touch(mode=0o600)
(_secrets / "encryption_key").write_text("key-of-the-tests-" * 3)

from console.settings import *  # noqa: E402, F403

STATIC_ROOT.mkdir(exist_ok=True)  # noqa: F405  (whitenoise warns about a missing one)

# Argon2 is slow on purpose; tests log in hundreds of times.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# Every client makes the middleware anew, which would read all static files. Live servers have
# Django's own handler for them.
WHITENOISE_USE_FINDERS = False
