"""Page of one rule: meaning, settings platform-wide and of endpoints, history, and dry runs.

A dry run takes unsaved form values and returns a fragment, or without scripts the whole page.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web import responses
from console.web.serializer_form import SerializerForm
from dashboards import selectors as dashboards_selectors
from dashboards.alerts.alertmanager.timeline import read_timeline
from dashboards.alerts.evaluation.history import RANGES, query_history
from dashboards.alerts.evaluation.intervals import MOST_SHOWN
from dashboards.alerts.page_forms import GET_OR_POST, done, posted
from dashboards.alerts.rules.rule import Rule
from dashboards.alerts.rules.rule_file import BY_NAME
from dashboards.alerts.rules.runbooks import STEPS
from dashboards.alerts.settings import actions, documents, selectors, trials
from dashboards.alerts.settings.forms import SettingForm
from dashboards.alerts.settings.pages.timeline import interval_rows
from dashboards.alerts.settings.validation import UserRuleFields
from dashboards.boards import queries
from dashboards.boards.panels import BOARDS
from dashboards.boards.queries import Scope, Times
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoints
from endpoints.refusals import NotFoundError

_MOST_INTERVALS = 50
PANEL_WINDOW_S = 300
"""Window of rates in a condition taken from a panel."""
Page = Callable[..., HttpResponse]
"""Renders a page for a status and more context."""


@require_http_methods(GET_OR_POST)
def rule(request: HttpRequest, rule: str) -> HttpResponseBase:
    """Show the rule; POST changes the platform-wide setting or the user-written rule."""
    context = rule_facts(request, rule)
    endpoint = request.GET.get("endpoint", "")
    if endpoint and endpoint in selectors.changeable_endpoints(request.user):
        return redirect("alerting:of_endpoint", rule, endpoint)
    form = build_form(rule, "", request)
    page = partial(rule_page, request, context, form)
    return _save_or_show(request, form, lambda: _save(request, rule, form), page)


def _save(request: HttpRequest, name: str, form: Any) -> HttpResponse:
    if name in BY_NAME:
        actions.set_rule(request.user, name, "", form.typed())
    else:
        actions.change_user_rule(request.user, name, form.typed())
    return done(
        request, f"{name} saved. Prometheus loads it within seconds.", "alerting:rule", name
    )


def build_form(name: str, endpoint: str, request: HttpRequest) -> Any:
    data = posted(request)
    if name not in BY_NAME:
        fields = UserRuleFields(selectors.user_rule(name))
        # Alerts and silences refer to a rule by its name.
        changeable = [str(field) for field in fields.fields if field != "name"]
        return SerializerForm(fields, data, fields.data, changeable)
    built_in = BY_NAME[name]
    mine = selectors.as_setting(selectors.row(name, endpoint))
    wide = selectors.settings().of(built_in) if endpoint else built_in.defaults
    return SettingForm(built_in, mine, wide, data)


def rule_page(
    request: HttpRequest, facts: dict[str, Any], form: Any, status: int = 200, **more: Any
) -> HttpResponse:
    built_in = BY_NAME.get(facts["name"])
    rows = selectors.endpoint_settings_of_rule(facts["name"], request.user) if built_in else []
    settings = documents.settings_for(request.user)
    own = [
        {
            "endpoint": row.endpoint.name if row.endpoint else "",
            "row": row,
            "brief": documents.brief_settings(_of_endpoint(built_in, settings, row)),
        }
        for row in rows
        if built_in and selectors.as_setting(row) != selectors.as_setting(None)
    ]
    names = selectors.changeable_endpoints(request.user) if facts["per_endpoint"] else []
    context = {
        "rule": facts,
        "brief": documents.brief_settings(facts),
        "title": documents.TITLES[facts["group"]],
        "form": form,
        "own": own,
        "names": names,
        "steps": STEPS.get(facts["name"], ()),
        **more,
    }
    return render(request, "alerts/rule.html", context, status=status)


def _of_endpoint(built_in: Rule, settings: Any, row: Any) -> dict[str, Any]:
    return documents.endpoint_rule_document(built_in, settings, row.endpoint.name, row)


@never_cache
@require_safe
def rule_history(request: HttpRequest, rule: str) -> HttpResponse:
    """Show values and firing intervals as a fragment, loaded separately since it queries
    Prometheus.
    """
    rule_context = rule_facts(request, rule)
    scope = dashboards_selectors.get_fleet_scope(request.user)
    endpoint = request.GET.get("endpoint", "")
    if endpoint and endpoints.endpoints(request.user).filter(name=endpoint).exists():
        scope = Scope(endpoint)
    settings = documents.settings_for(request.user)
    key = request.GET.get("range", "")
    which = BY_NAME.get(rule) or selectors.as_user_rule(selectors.user_rule(rule))
    history = query_history(connections.fleet(), which, scope, settings, key)
    intervals = [
        interval
        for interval in read_timeline(request.user, key, rule).intervals
        if scope.endpoint in ("", interval.endpoint)
    ]
    context = {
        "past": history,
        "rule": rule_context,
        "ranges": RANGES,
        "wanted": scope.endpoint,
        "rows": interval_rows(intervals[:_MOST_INTERVALS], {"range": history.key, "rule": rule}),
    }
    return responses.render(request, "alerts/past.html", "alerts/htmx/past.html", context)


@require_http_methods(GET_OR_POST)
@role_required("operator")
def of_endpoint(request: HttpRequest, rule: str, name: str) -> HttpResponseBase:
    _expect_per_endpoint(rule)
    try:
        endpoints.get(name)
    except NotFoundError as error:
        raise Http404(name) from error
    form = build_form(rule, name, request)
    page = partial(endpoint_page, request, rule, name, form)
    return _save_or_show(request, form, lambda: _save_mine(request, rule, name, form), page)


def _expect_per_endpoint(rule: str) -> None:
    if rule not in BY_NAME or not BY_NAME[rule].per_endpoint:
        raise Http404(rule)


def endpoint_page(
    request: HttpRequest, rule: str, name: str, form: Any, status: int = 200, **more: Any
) -> HttpResponse:
    settings = documents.settings_for(request.user)
    context = {
        "rule": rule_facts(request, rule),
        "form": form,
        "endpoint": name,
        "mine": documents.endpoint_rule_document(
            BY_NAME[rule], settings, name, selectors.row(rule, name)
        ),
        **more,
    }
    return render(request, "alerts/of_endpoint.html", context, status=status)


def _save_mine(request: HttpRequest, rule: str, name: str, form: SettingForm) -> HttpResponse:
    actions.set_rule(request.user, rule, name, form.typed())
    return done(request, f"{rule} saved for {name}.", "alerting:rule", rule)


@require_POST
@role_required("operator")
def reset(request: HttpRequest, rule: str, name: str = "") -> HttpResponseBase:
    """Reset the platform-wide setting, or that of the endpoint `name`."""
    if rule not in BY_NAME:
        raise Http404(rule)
    actions.reset_rule(request.user, rule, name)
    alone = f"{rule} of {name} reset to the platform-wide settings."
    return done(request, alone if name else f"{rule} reset to its defaults.", "alerting:rule", rule)


@require_http_methods(GET_OR_POST)
@role_required("operator")
def new(request: HttpRequest) -> HttpResponseBase:
    form = SerializerForm(UserRuleFields(), posted(request), _from_panel(request))
    return _save_or_show(
        request, form, lambda: _create(request, form), partial(new_page, request, form)
    )


def _from_panel(request: HttpRequest) -> dict[str, str]:
    """Return the condition on the first query of the panel named by `?board=&panel=&endpoint=`.

    Its threshold, 0, is to be replaced by the user.
    """
    named = {name: request.GET.get(name, "")[:80] for name in ("board", "panel", "endpoint")}
    board = BOARDS.get(named["board"])
    if board is None:
        return {}
    endpoint = named["endpoint"]
    if endpoint and not endpoints.endpoints(request.user).filter(name=endpoint).exists():
        raise Http404(endpoint)
    panels = board.panels(one=bool(endpoint))
    panel = next((panel for panel in panels if panel.id == named["panel"]), None)
    if panel is None:
        raise Http404(named["panel"])
    scope = Scope(endpoint, endpoints.NAMESPACE) if endpoint else Scope()
    query = queries.render_plain(panel.lines[0].query, scope, Times(PANEL_WINDOW_S, PANEL_WINDOW_S))
    return {"expr": f"{query} > 0", "summary": f"{panel.title} is above 0"}


def new_page(
    request: HttpRequest, form: SerializerForm, status: int = 200, **more: Any
) -> HttpResponse:
    return render(request, "alerts/new.html", {"form": form, **more}, status=status)


def _create(request: HttpRequest, form: SerializerForm) -> HttpResponse:
    made = actions.create_user_rule(request.user, form.typed())
    return done(
        request,
        f"{made.name} created. Prometheus loads it within seconds.",
        "alerting:rule",
        made.name,
    )


@require_POST
@role_required("operator")
def delete(request: HttpRequest, rule: str) -> HttpResponseBase:
    if rule in BY_NAME:
        raise Http404(rule)
    rule_facts(request, rule)
    actions.delete_user_rule(request.user, rule)
    return done(request, f"{rule} deleted.", "alerting:rules")


def _save_or_show(
    request: HttpRequest, form: Any, save: Callable[[], HttpResponse], page: Page
) -> HttpResponse:
    """Return the redirect of `save` if the form was submitted and accepted, else the page."""
    if request.method != "POST":
        return page()
    try:
        return save()
    except Refused as refused:
        form.refuse(refused.errors)
        return page(400)


def rule_facts(request: HttpRequest, name: str) -> dict[str, Any]:
    try:
        return documents.rule_document(name, request.user)
    except Refused as refused:
        raise Http404(name) from refused


@never_cache
@require_POST
@role_required("operator")
def try_rule(request: HttpRequest, rule: str) -> HttpResponse:
    context = rule_facts(request, rule)
    form = build_form(rule, "", request)
    return _tried(request, rule, "", form, partial(rule_page, request, context, form))


@never_cache
@require_POST
@role_required("operator")
def try_of_endpoint(request: HttpRequest, rule: str, name: str) -> HttpResponse:
    _expect_per_endpoint(rule)
    form = build_form(rule, name, request)
    page = partial(endpoint_page, request, rule, name, form)
    return _tried(request, rule, name, form, page)


@never_cache
@require_POST
@role_required("operator")
def try_new(request: HttpRequest) -> HttpResponse:
    form = SerializerForm(UserRuleFields(), request.POST)
    return _tried(request, "", "", form, partial(new_page, request, form))


def _tried(request: HttpRequest, name: str, endpoint: str, form: Any, page: Page) -> HttpResponse:
    """Render the result; a rejection is shown as text with its remedy."""
    trial_fields = {**form.typed(), "range": request.GET.get("range", "")}
    try:
        trial = trials.run_trial(request.user, name, endpoint, trial_fields)
    except Refused as refused:
        status = refused.status_code
        labels = {name: str(field.label) for name, field in form.fields.items()}
        errors = [(labels.get(error.field, ""), error) for error in refused.errors]
        context: dict[str, Any] = {"refused": errors}
    else:
        status = 200
        context = {
            "run": trial,
            "fired": trial.new.fired[:MOST_SHOWN],
            "more": max(0, len(trial.new.fired) - MOST_SHOWN),
            "needs": BY_NAME[name].needs if name in BY_NAME else "",
        }
    if responses.wants_partial(request):
        return render(request, "alerts/htmx/dry_run.html", context)
    return page(status, **context)
