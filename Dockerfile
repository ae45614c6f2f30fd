# The ticket server. The first stage has pip and the build backend; the second has neither, nor the source tree. The base
# image is named by its tag: a digest belongs here as soon as a pull has shown it, and whoever releases puts it here.

FROM python:3.13-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/ticketd
WORKDIR /build
# The requirements in a layer of their own: a change to the code does not install them again.
COPY requirements-image.txt ./
RUN /opt/ticketd/bin/pip install --require-hashes -r requirements-image.txt
COPY pyproject.toml README.md ./
COPY app ./app
# No build isolation: it would fetch a build backend that no hash vouches for. Both tools go when they have done their work.
COPY deploy/sbom.py /build/
RUN /opt/ticketd/bin/pip install --no-deps --no-build-isolation . \
 && /opt/ticketd/bin/python sbom.py requirements-image.txt > /opt/ticketd/sbom.cdx.json \
 && /opt/ticketd/bin/pip uninstall --yes setuptools pip


FROM python:3.13-slim
# The base image's own pip goes too, and what would bring it back: whoever gets in finds nothing to install with.
RUN find / -xdev -depth \( -name pip -o -name 'pip-*' -o -name 'pip3*' -o -name ensurepip \) -exec rm -rf {} +
COPY --from=build /opt/ticketd /opt/ticketd
# TICKETS_HOST: nothing outside a container reaches its loopback; the orchestrator decides what is published. The server
# therefore stops at once unless TICKETS_DATABASES names the ticket databases.
# TICKETS_DATA_DIR is for TICKETS_DATABASES=embedded alone. Mount a volume there: without one, the tickets go with the
# container, and a new one begins again at 1. A new named volume takes this folder's owner; any other has to be writable for
# 10001.
ENV PATH=/opt/ticketd/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TICKETS_HOST=0.0.0.0 \
    TICKETS_DATA_DIR=/ticket-data
RUN install --directory --owner=10001 --group=10001 --mode=0700 /ticket-data
# Numeric, so that an orchestrator can see that it is not root.
USER 10001:10001
EXPOSE 8000
# Alive, not ready: a server without databases is not cured by a restart. No proxy is asked about the own process.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(f\"http://127.0.0.1:{os.environ.get('TICKETS_PORT', '8000')}/livez\", timeout=2)"]
# Exec form: the process gets its SIGTERM itself, and drains.
CMD ["ticketd", "serve"]
