"""Albums and photos."""

from django.db import models

from ticketd_client.django import TicketField


class Album(models.Model):
    id = TicketField(sequence="groups")
    title = models.CharField(max_length=100)

    def __str__(self) -> str:
        return str(self.title)


class Photo(models.Model):
    id = TicketField(sequence="photos")
    title = models.CharField(max_length=100)
    album = models.ForeignKey(Album, on_delete=models.CASCADE, related_name="photos")

    def __str__(self) -> str:
        return str(self.title)


class Panorama(Photo):
    """A photo, with a photo's key."""

    degrees = models.PositiveSmallIntegerField()
