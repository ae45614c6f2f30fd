"""Models with tickets for keys: referred to, inherited from, and beside another key."""

from __future__ import annotations

from django.db import models

from ticketd_client.django import TicketField


class Album(models.Model):
    id = TicketField(sequence="groups")
    title = models.CharField(max_length=100)


class Photo(models.Model):
    number = TicketField(sequence="photos")
    title = models.CharField(max_length=100)
    album = models.ForeignKey(Album, on_delete=models.CASCADE, null=True, blank=True, related_name="photos")


class Panorama(Photo):
    degrees = models.IntegerField(null=True)


class Sphere(Panorama):
    poles = models.IntegerField(null=True)


class Invoice(models.Model):
    """The ticket is not its key."""

    code = models.CharField(max_length=20, primary_key=True)
    number = TicketField(sequence="offline_tasks", primary_key=False, unique=True)
