"""Settings for trying it out on this machine, not for production."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

TICKETD = {
    "urls": os.environ.get("ID_SERVERS", "http://127.0.0.1:8000").split(","),
    "prefetch": 1000,
}

DEBUG = True
SECRET_KEY = "for development alone"  # noqa: S105
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "gallery.urls"
WSGI_APPLICATION = "gallery.wsgi.application"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "photos",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE_FILE", BASE_DIR / "photos.sqlite3"),
        "OPTIONS": {"timeout": 30},
    }
}

# a folder is broker enough on one machine
_QUEUE = Path(os.environ.get("CELERY_FOLDER", BASE_DIR / "queue"))
CELERY_BROKER_URL = "filesystem://"
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "data_folder_in": str(_QUEUE / "messages"),
    "data_folder_out": str(_QUEUE / "messages"),
    "control_folder": str(_QUEUE / "control"),
}
