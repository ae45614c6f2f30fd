"""The pages of the admin; the keys are shown and cannot be edited."""

from django.contrib import admin

from photos.models import Album, Panorama, Photo


class Photos(admin.TabularInline):
    model = Photo
    extra = 1


@admin.register(Album)
class AlbumAdmin(admin.ModelAdmin):
    list_display = ("id", "title")
    inlines = (Photos,)


@admin.register(Photo, Panorama)
class PhotoAdmin(admin.ModelAdmin):
    list_display = ("id", "title", "album")
    readonly_fields = ("id",)
