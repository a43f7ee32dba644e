"""Kinds of names in URLs. Importing registers them.

`<endpoint:name>` is the name of an endpoint: whoever guards pages by whose endpoint it is knows
by this word which part of the address to look at, and no view has to remember to ask.
"""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import SlugConverter

ENDPOINT = "endpoint"


class EndpointName(SlugConverter):
    """As forgiving as a slug: a name nobody could give answers 404 as an unknown one does."""


register_converter(EndpointName, ENDPOINT)
