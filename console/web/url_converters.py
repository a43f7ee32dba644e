"""URL converters; importing registers them.

accounts.gate identifies the object of a request by its converter (`<endpoint:name>`), so that views
need no access check of their own.
"""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import SlugConverter

ENDPOINT = "endpoint"


class EndpointName(SlugConverter):
    """Accepts any slug: invalid names answer 404 like unknown ones."""


register_converter(EndpointName, ENDPOINT)
