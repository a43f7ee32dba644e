from __future__ import annotations

from django.urls import path

from console.catalogue.api import views

app_name = "catalogue-api"
urlpatterns = [
    path("instance-types/", views.InstanceTypes.as_view(), name="instance-types"),
    path("instance-types/<str:name>/", views.InstanceTypeView.as_view(), name="instance-type"),
    path("instance-types/<str:name>/prices/", views.InstancePrices.as_view(), name="prices"),
]
