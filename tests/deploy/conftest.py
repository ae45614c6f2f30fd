"""Certificates, made by what makes those of the deployments."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.pages import REPOSITORY


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that deploy/tls/make_certificates.py makes, for `front`, also called localhost and 127.0.0.1."""
    folder: Path = tmp_path_factory.mktemp("tls") / "made"
    command = [sys.executable, str(REPOSITORY / "deploy/tls/make_certificates.py"), str(folder)]
    subprocess.run([*command, "front,localhost,127.0.0.1", "other"], check=True, timeout=60)
    return folder
