"""A real Prometheus with deploy/prometheus/, scraping the servers of a test, at a test's pace."""

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.harness.processes import ChildProcess, free_port, new_directory, remove_directory, wait_until

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy/prometheus"
PACE = "1s"
"""How often targets are scraped and rules are evaluated here."""
PATIENCE = "4s"
"""What stands for every `for:`, so that a late scrape or two are no alert."""


class Prometheus:
    """Prometheus on a free port, started when all its targets are up.

    Its rules are a copy of ours whose `for:` are short; the expressions are ours.
    """

    def __init__(self, targets: Mapping[str, Sequence[str]], token: str, minute: float | None = None) -> None:
        """`targets`: host:port by job; `token`: what /metrics of the ticket servers is asked with.

        `minute`: the seconds that stand for each minute of a `for:`. Without it each is as short as PATIENCE.
        """
        self._base = new_directory("tickets-prometheus-")
        self._target_count = sum(map(len, targets.values()))
        self._began = 0.0
        self.log = self._base / "log"
        self.port = free_port()
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=10, trust_env=False, verify=False)
        self.change_token(token)
        self._write("prometheus.yml", self._configuration(targets))
        self._write("rules.yml", faster((DEPLOYED / "rules.yml").read_text(encoding="utf-8"), minute))

    def __enter__(self) -> "Prometheus":
        program = shutil.which("prometheus")
        assert program, "prometheus is missing: make test installs it, or apt-get install prometheus"
        command = [
            program,
            f"--config.file={self._base / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._base / 'data'}",
        ]
        command += [f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"]
        self._process = ChildProcess(command, stdout=self.log, stderr=self.log, cwd=self._base)
        try:
            wait_until(self._is_ready, 60, "Prometheus to be ready")
            # until it has found its targets, seconds after its start, it misses what they would say
            self.wait_series(f"count(up == 1) == {self._target_count}")
            self.wait_firing()
            self._began = time.monotonic()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._client.close()
        remove_directory(self._base)

    def change_token(self, token: str) -> None:
        """Have it scrape with this token from now on: it reads the file at each scrape."""
        (self._base / "token").write_text(token, encoding="utf-8")

    def query(self, expression: str) -> list[dict[str, str]]:
        """The labels of each series of an instant query."""
        answer = self._client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", answer
        return [each["metric"] for each in answer["data"]["result"]]

    def wait_series(self, expression: str, timeout: float = 30, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until an instant query has a result; `meanwhile` is called each time before it is asked."""

        def has_result() -> bool:
            meanwhile()
            return bool(self.query(expression))

        wait_until(has_result, timeout, expression, 0.1)

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self._client.get("/api/v1/alerts").json()["data"]["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def has_fired(self) -> set[str]:
        """The names of the alerts that have fired since all was well first, for however short a time."""
        return {each["alertname"] for each in self.all_that_fired()}

    def all_that_fired(self) -> list[dict[str, str]]:
        """The labels of the alerts that have fired since all was well first."""
        seconds = int(time.monotonic() - self._began)
        return self.query(f'max_over_time(ALERTS{{alertstate="firing"}}[{seconds}s])')

    def wait_firing(self, *alerts: str, timeout: float = 60, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until exactly these fire; `meanwhile` is called each time before it is looked."""

        def as_expected() -> bool:
            meanwhile()
            return self.firing() == set(alerts)

        try:
            wait_until(as_expected, timeout, f"{set(alerts) or 'no alert'} to fire", 0.1)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.firing()} fire; targets: {self._targets()}") from error

    def _targets(self) -> list[tuple[str, str, str]]:
        active = self._client.get("/api/v1/targets").json()["data"]["activeTargets"]
        return [(each["labels"]["job"], each["labels"]["instance"], each["lastError"]) for each in active]

    def _is_ready(self) -> bool:
        assert self._process.running, self.log.read_text(encoding="utf-8")
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def _configuration(self, targets: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        deployed: dict[str, Any] = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text(encoding="utf-8"))
        deployed["global"] = {"scrape_interval": PACE, "scrape_timeout": PACE, "evaluation_interval": PACE}
        jobs = {each["job_name"]: each for each in deployed["scrape_configs"]}
        for name, addresses in targets.items():
            jobs[name]["static_configs"] = [{"targets": list(addresses)}]
        jobs["tickets"]["authorization"] = {"credentials_file": str(self._base / "token")}
        deployed["scrape_configs"] = [jobs[name] for name in targets]
        return deployed

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        (self._base / name).write_text(json.dumps(value), encoding="utf-8")  # which is YAML


def faster(rules: str, minute: float | None = None) -> dict[str, Any]:
    """These rules with a short `for:` wherever there is one: PATIENCE, or `minute` seconds for each of its minutes."""

    def shorter(found: re.Match[str]) -> str:
        if minute is None:
            return f"{found[1]}{PATIENCE}"
        seconds = int(found[2]) * {"s": 1, "m": 60}[found[3]]
        return f"{found[1]}{round(seconds * minute / 60 * 1000)}ms"

    read: dict[str, Any] = yaml.safe_load(re.sub(r"(?m)^( +for: )(\d+)([sm])$", shorter, rules))
    return read
