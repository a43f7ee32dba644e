"""The ASGI application which uvicorn serves: `uvicorn console.asgi:application`."""

from __future__ import annotations

import gc
import os
import warnings

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.checks.urls import check_resolver
from django.urls import get_resolver

from console.telemetry import admin
from console.web.bodies import limited

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

# whitenoise hands a file over as a plain iterator, which Django reads in a thread: as intended.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")

_django = get_asgi_application()

from console.api.authentication import sender  # noqa: E402  (its models need Django set up)

application = limited(_django, sender)
check_resolver(get_resolver())  # loads every page's code now, not in the first request
# What is loaded by now stays for good: the collector need not walk it again and again, a tenth of a
# second each time, in the middle of somebody's page.
gc.collect()
gc.freeze()
admin.start(settings.EMBERLINE.admin, admin.Subject("web"))
