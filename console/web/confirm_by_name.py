"""Confirmation page on which the user types an object's name before a deletion.

Without the correct name nothing happens; errors of the action are shown on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render

from console.core.errors import Refused


def confirm_by_name(
    request: HttpRequest,
    name: str,
    act: Callable[[], object],
    *,
    page: tuple[str, Mapping[str, Any]],
    words: tuple[str, str],
    done: tuple[str, str],
) -> HttpResponseBase:
    """Run `act` once the name was typed.

    `page`: template and context. `words`: the verb as in "to delete it" and "was deleted". `done`:
    success message and redirect target.
    """
    template, context_of = page
    context: dict[str, Any] = {**context_of, "typed": "", "error": ""}
    status = 200
    if request.method == "POST":
        context["typed"] = request.POST.get("name", "").strip()
        if context["typed"] != name:
            context["error"] = f"Type {name} to confirm. Nothing was {words[1]}."
            return render(request, template, context, status=400)
        try:
            act()
        except Refused as error:
            context["error"], status = str(error), error.status_code
        else:
            messages.success(request, done[0])
            return redirect(done[1])
    return render(request, template, context, status=status)
