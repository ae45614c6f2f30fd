"""Whether containers can run on this machine: with an engine, Compose, and the images, none of which is pulled."""

import functools
import shutil
import subprocess

IMAGES = "python:3.13-slim", "mysql:9.7", "haproxy:3.2"
"""What docker-compose.yml and the Dockerfile begin with."""


@functools.cache
def why_none() -> str:
    """Return why tests in containers cannot run here; empty where they can."""
    if shutil.which("docker") is None:
        return "there is no docker"
    for arguments in (["compose", "version"], ["info"], *(["image", "inspect", image] for image in IMAGES)):
        try:
            failed = subprocess.run(["docker", *arguments], capture_output=True, check=False, timeout=30).returncode
        except subprocess.TimeoutExpired:
            failed = True
        if failed:
            return f"`docker {' '.join(arguments)}` fails, and nothing is pulled for a test"
    return ""
