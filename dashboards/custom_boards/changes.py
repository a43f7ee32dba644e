"""Forms that create and change custom boards, as pages and as dialogs of a board."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from console.accounts.permissions import actor_of
from console.core.errors import Refused
from console.web import responses
from console.web.forms import ActionForm, submit
from dashboards.custom_boards import actions, selectors
from dashboards.custom_boards.documents import FORMAT, HIDDEN, PROMQL, VERSION, BoardPanel
from dashboards.custom_boards.forms import BoardForm, ImportForm, PanelForm, PinForm
from dashboards.custom_boards.models import CustomBoard
from dashboards.custom_boards.views import find_board

_GET_OR_POST = ["GET", "HEAD", "POST"]
_NEW = {"format": FORMAT, "version": VERSION}


@require_http_methods(_GET_OR_POST)
def new(request: HttpRequest) -> HttpResponseBase:
    form = BoardForm(request.user, _posted(request), {"title": "My board"})

    def create() -> CustomBoard:
        data = {**_NEW, "title": form.text_of("title")}
        board: CustomBoard = actions.create(actor_of(request), data, **form.given())
        return board

    words = ("New board", "Create board")
    return _answer(request, form, create, words, lambda board: (_created(board), _edit_url(board)))


@require_http_methods(_GET_OR_POST)
def import_board(request: HttpRequest) -> HttpResponseBase:
    form = ImportForm(request.user, _posted(request), request.FILES)

    def create() -> CustomBoard:
        board: CustomBoard = actions.create(actor_of(request), form.read(), **form.given())
        return board

    words = ("Import board", "Import")
    return _answer(request, form, create, words, lambda board: (_created(board), _url(board)))


@require_http_methods(_GET_OR_POST)
def pin(request: HttpRequest) -> HttpResponseBase:
    """Add the panel named by the query to a board of the viewer, or to a new one."""
    source = {name: request.GET.get(name, "") for name in ("board", "panel", "endpoint", "worker")}
    form = PinForm(selectors.list_editable(request.user), _posted(request), source)
    source_shown = BoardPanel("pin", "panel", **source).source if request.method != "POST" else None

    def add() -> CustomBoard:
        to = form.text_of("to")
        if to:
            try:
                return actions.add_panel(actor_of(request), UUID(to), form.panel())
            except ValueError:
                raise Http404(to) from None
        data = {**_NEW, "title": form.text_of("title"), "panels": [form.panel()]}
        board: CustomBoard = actions.create(actor_of(request), data)
        return board

    title = f"Pin {source_shown.title}" if source_shown is not None else "Pin panel"
    return _answer(
        request,
        form,
        add,
        (title, "Pin"),
        lambda board: (f"Pinned to {board.title}.", _url(board)),
        stay=True,
    )


@require_http_methods(_GET_OR_POST)
def settings(request: HttpRequest, board_id: UUID) -> HttpResponseBase:
    board = _find_editable(request, board_id)
    initial = {"title": board.title, "owner": board.owner, "shared": board.shared}
    form = BoardForm(request.user, _posted(request), initial)

    def save() -> CustomBoard:
        return actions.change_settings(
            actor_of(request), board_id, form.text_of("title"), **form.given()
        )

    return _answer(
        request,
        form,
        save,
        ("Board settings", "Save"),
        lambda found: (f"{found.title} saved.", _url(found)),
        delete_url=reverse("custom_boards:delete", args=[board.pk]),
        custom=board,
    )


@require_POST
def delete(request: HttpRequest, board_id: UUID) -> HttpResponseBase:
    board = find_board(request, board_id)
    actions.delete(actor_of(request), board_id)
    messages.success(request, f"Board {board.title} deleted.")
    return redirect("custom_boards:list")


@require_http_methods(_GET_OR_POST)
def new_query(request: HttpRequest, board_id: UUID) -> HttpResponseBase:
    board = _find_editable(request, board_id)
    form = PanelForm(PROMQL, _posted(request))

    def add() -> CustomBoard:
        return actions.add_panel(actor_of(request), board_id, {"type": PROMQL, **form.panel()})

    words = ("New PromQL panel", "Add panel")
    back = _edit_url(board)
    return _answer(request, form, add, words, lambda _: ("Panel added.", back), custom=board)


@require_http_methods(_GET_OR_POST)
def edit_panel(request: HttpRequest, board_id: UUID, panel: str) -> HttpResponseBase:
    board = _find_editable(request, board_id)
    panels = {panel.id: panel for panel in selectors.read_panels(request.user, board)}
    if panel not in panels or panels[panel].type == HIDDEN:
        raise Http404(panel)
    form = PanelForm(panels[panel].type, _posted(request), panels[panel].document())

    def save() -> CustomBoard:
        return actions.change_panel(actor_of(request), board_id, panel, form.panel())

    words = ("Panel", "Save")
    back = _edit_url(board)
    return _answer(request, form, save, words, lambda _: ("Panel saved.", back), custom=board)


@require_POST
def arrange(request: HttpRequest, board_id: UUID) -> HttpResponseBase:
    """Move, resize or remove one panel."""
    board = _find_editable(request, board_id)
    actor, panel, posted = actor_of(request), request.POST.get("panel", ""), request.POST
    try:
        if "remove" in posted:
            actions.remove_panel(actor, board_id, panel)
        elif "move" in posted:
            ids = [panel["id"] for panel in board.panels]
            index = ids.index(panel) if panel in ids else 0
            to = {"earlier": index - 1, "later": index + 1}.get(posted["move"])
            actions.move_panel(actor, board_id, panel, to if to is not None else _number(posted))
        else:
            actions.resize_panel(actor, board_id, panel, posted.get("width", ""))
    except Refused as refused:
        if not responses.wants_partial(request):
            messages.error(request, str(refused))
            return redirect(_edit_url(board))
        return JsonResponse({"message": str(refused)}, status=refused.status_code)
    if responses.wants_partial(request):
        return HttpResponse(status=204)
    return redirect(f"{_edit_url(board)}#panel-{panel}")


def _answer(
    request: HttpRequest,
    form: ActionForm,
    act: Callable[[], CustomBoard],
    words: tuple[str, str],
    done: Callable[[CustomBoard], tuple[str, str]],
    *,
    stay: bool = False,
    **context: Any,
) -> HttpResponseBase:
    """Show the form as a page or dialog, and run `act` on a POST. `words`: title and button;
    `done`: message and next page; `stay`: a dialog leaves its page as it is.
    """
    answer_context: Mapping[str, Any] = {
        "form": form,
        "form_title": words[0],
        "submit": words[1],
        "action": request.get_full_path(),
        **context,
    }

    def show(status: int) -> HttpResponse:
        templates = ("dashboards/custom/form.html", "dashboards/custom/htmx/form.html")
        return responses.render(request, *templates, dict(answer_context), status)

    def finish(board: CustomBoard) -> HttpResponse:
        message, url = done(board)
        if responses.wants_partial(request):
            target = {"link": url} if stay else {"url": url}
            return JsonResponse({"message": message, **target})
        messages.success(request, message)
        return redirect(url)

    return submit(request, form, act, show, finish)


def _find_editable(request: HttpRequest, board_id: UUID) -> CustomBoard:
    """Return the board; the action reports the missing right of a reader on a POST."""
    board = find_board(request, board_id)
    if request.method != "POST" and not selectors.may_edit(request.user, board):
        raise Http404(str(board_id))
    return board


def _posted(request: HttpRequest) -> Any:
    return request.POST if request.method == "POST" else None


def _number(posted: Mapping[str, Any]) -> int:
    text = str(posted.get("move", ""))
    return int(text) if text.isdecimal() and len(text) < 4 else 0


def _created(board: CustomBoard) -> str:
    return f"Board {board.title} created."


def _url(board: CustomBoard) -> str:
    return reverse("custom_boards:board", args=[board.pk])


def _edit_url(board: CustomBoard) -> str:
    return f"{_url(board)}?edit=1"
