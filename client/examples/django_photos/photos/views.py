"""One page: POST /upload?count=100 adds an album with so many photos."""

import os

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from photos.models import Album, Photo


@csrf_exempt
@require_POST
def upload(request: HttpRequest) -> JsonResponse:
    """Answers with the keys, and with the process that gave them."""
    album = Album.objects.create(title="Upload")
    count = int(request.GET.get("count", "1"))
    photos = Photo.objects.bulk_create([Photo(title=f"Photo {number}", album=album) for number in range(count)])
    return JsonResponse({"process": os.getpid(), "album": str(album.pk), "photos": [str(photo.pk) for photo in photos]})
