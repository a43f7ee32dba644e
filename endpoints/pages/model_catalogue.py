"""Page of known models, with size, licence and what fits here, mounted under "/models/"."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.http import require_safe

from console.clusters import selectors as clusters
from console.web import responses
from endpoints.placement import model_list

ROWS_A_PAGE = 50


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """`?search=`: words of the name, licence or size; `?cluster=`: compared with its nodes;
    `?fits=1`: without models that do not fit.
    """
    search, cluster = request.GET.get("search", "")[:200], request.GET.get("cluster", "")
    names = clusters.names()
    cluster = cluster if cluster in names else ""
    fits = request.GET.get("fits") == "1"
    models = model_list.list_models(search, cluster)
    context = {
        "page": Paginator(
            [model for model in models if model.fits or not fits], ROWS_A_PAGE
        ).get_page(request.GET.get("page")),
        "search": search,
        "cluster": cluster,
        "clusters": names,
        "fits": fits,
    }
    return responses.render(request, "endpoints/models.html", "endpoints/inc/models.html", context)


app_name = "models"
urlpatterns = [path("", index, name="list")]
