"""The software bill of materials of an installed ticket server, as CycloneDX JSON, on standard output.

    sbom.py requirements-image.txt

Lists each distribution of the lock file that is installed in this Python's environment: the lock serves every platform,
and an image holds those of one. Fails where something is installed that the lock does not name, or in another version.
The same environment gives the same bytes.
"""

import importlib.metadata
import json
import platform
import re
import sys
import uuid
from pathlib import Path

OWN = "ticket-server"
TOOLS = {"pip", "setuptools"}
"""They have done their work by the time that the image is made, and go."""


def normal(name: str) -> str:
    """A distribution's name as the package index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(text: str) -> dict[str, str]:
    """Names and versions of a lock file."""
    return {normal(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)}


def installed() -> dict[str, str]:
    found = {normal(each.metadata["Name"]): each.version for each in importlib.metadata.distributions()}
    return {name: version for name, version in found.items() if name not in TOOLS}


def component(kind: str, name: str, version: str, purl: str) -> dict[str, str]:
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}


def bill(lock: dict[str, str], here: dict[str, str]) -> dict[str, object]:
    """The bill of what is `here`; ValueError where that contradicts the `lock`."""
    libraries = {name: version for name, version in here.items() if name != OWN}
    for name, version in libraries.items():
        if lock.get(name) != version:
            raise ValueError(f"{name} {version} is installed, and the lock file says {lock.get(name, 'nothing of it')}")
    components = [
        component("library", name, version, f"pkg:pypi/{name}@{version}") for name, version in sorted(libraries.items())
    ]
    python = platform.python_version()
    components.append(component("platform", "python", python, f"pkg:generic/python@{python}"))
    content = json.dumps(components)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {"component": component("application", OWN, here[OWN], f"pkg:pypi/{OWN}@{here[OWN]}")},
        "components": components,
    }


if __name__ == "__main__":
    try:
        made = bill(locked(Path(sys.argv[1]).read_text(encoding="utf-8")), installed())
    except ValueError as error:
        sys.exit(f"sbom: {error}")
    json.dump(made, sys.stdout, indent=1)
    print()
