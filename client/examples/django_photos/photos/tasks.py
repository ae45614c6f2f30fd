"""What Celery's workers do."""

from celery import shared_task

from photos.models import Photo


@shared_task(ignore_result=True)
def add_photos(album: int, count: int) -> None:
    """Add so many photos to an album, whose key is given."""
    Photo.objects.bulk_create(Photo(title=f"Photo {number}", album_id=album) for number in range(count))
