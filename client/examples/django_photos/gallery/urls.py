"""Where the pages are."""

from django.contrib import admin
from django.urls import path
from photos.views import upload

urlpatterns = [path("admin/", admin.site.urls), path("upload", upload)]
