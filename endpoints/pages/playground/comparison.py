"""Page that compares two pasted prompts by the code of the miss ledger. Nothing is stored."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from routing.analysis import prompt_check
from routing.analysis.label_names import get_name
from routing.analysis.prompt_check import CheckedPrompt, PromptError, PromptFinding

MAX_TEXT = 400_000


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """POST compares the texts `first` and `second`."""
    context: dict[str, Any] = {"texts": ["", ""], "max_text": MAX_TEXT}
    if request.method != "POST":
        return render(request, "playground/comparison.html", context)
    texts = [request.POST.get(name, "") for name in ("first", "second")]
    context["texts"] = texts
    try:
        old, new = (_read(text, number) for number, text in enumerate(texts, 1))
    except PromptError as error:
        context["error"] = str(error)
        return render(request, "playground/comparison.html", context, status=400)
    comparison = prompt_check.compare(old, new)
    context["common"] = prompt_check.common_tokens(old, new)
    context["tokens"] = len(new.data) // prompt_check.TOKEN_BYTES
    context["same"] = old.data == new.data and comparison is None
    if comparison is not None:
        context["found"] = _describe(comparison)
    return render(request, "playground/comparison.html", context)


def _read(text: str, number: int) -> CheckedPrompt:
    if not text.strip():
        raise PromptError(f"Prompt {number} is empty. Paste a text or a request body.")
    if len(text) > MAX_TEXT:
        size = f"{len(text)} characters, at most {MAX_TEXT} are compared"
        raise PromptError(f"Prompt {number} has {size}. Shorten it.")
    return prompt_check.read_text(text, number)


def _describe(found: PromptFinding) -> dict[str, Any]:
    remedy = found.remedy
    return {
        "label": get_name("cause", found.cause),
        "part": found.part,
        "character": found.character,
        "stable_tokens": found.stable_tokens,
        "before": found.before,
        "after": found.after,
        "remedy": remedy[:1].upper() + remedy[1:],
    }
