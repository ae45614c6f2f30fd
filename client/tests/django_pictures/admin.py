"""An album with its photos in line."""

from __future__ import annotations

from django.contrib import admin

from django_pictures.models import Album, Photo


class Photos(admin.TabularInline):
    model = Photo
    extra = 2


@admin.register(Album)
class AlbumAdmin(admin.ModelAdmin):
    list_display = ("id", "title")
    inlines = (Photos,)
