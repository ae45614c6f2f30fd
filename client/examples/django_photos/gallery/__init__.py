"""The project. Celery's application is made with it, so that `shared_task` finds it."""

from gallery.celery import app as celery_app

__all__ = ["celery_app"]
