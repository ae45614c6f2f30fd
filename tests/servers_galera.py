"""A node of a Galera cluster, which is a MariaDB server whose data its peers share."""

import contextlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pymysql

from tests.servers import DatabaseServer
from tests.servers_processes import free_port
from tests.servers_programs import template
from tests.servers_shared import SharedServers

PROVIDER = "/usr/lib/galera/libgalera_smm.so"
HAND_OVER = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    --role) role=$2 ;; --address) address=$2 ;; --datadir) data=$2 ;; --gtid) gtid=$2 ;; --bypass) bypass=1 ;;
  esac
  shift
done
if [ $role = joiner ]; then
  rm -f $data/position
  echo "ready $data/position"
  until [ -f $data/position ]; do sleep 0.05; done
  cat $data/position
else
  [ "$bypass" ] || exit 22
  echo continue
  echo $gtid >$address.new
  mv $address.new $address
  echo "done $gtid"
fi
"""
"""What Galera calls for a state transfer: it only tells the joining node where it stands. A node begins with a copy of
the first one's data, and what comes after that is sent by the nodes themselves."""


class GaleraNode(DatabaseServer):
    """One node of a Galera cluster."""

    def __init__(self, shared: SharedServers) -> None:
        if not Path(PROVIDER).exists():
            raise FileNotFoundError("no Galera on this machine: apt-get install galera-4, or `make databases`")
        super().__init__("mariadb", template("mariadb", shared.templates), offset=1, increment=2)
        self.address, self.group, self._receiver = f"127.0.0.1:{self.port}", free_port(), free_port()
        script = self.home / "wsrep_sst_handover"
        script.write_text(HAND_OVER, encoding="utf-8")
        script.chmod(0o755)

    def join(self, cluster: Sequence[Self]) -> None:
        """Set the options that make this a node of the cluster."""
        provider = (
            f"base_host=127.0.0.1;base_port={self.group};gmcast.listen_addr=tcp://127.0.0.1:{self.group};"
            f"ist.recv_addr=127.0.0.1:{self._receiver};gcache.size=16M"
        )
        self.options = [
            *("--wsrep-on=ON", f"--wsrep-provider={PROVIDER}", f"--wsrep-provider-options={provider}"),
            f"--wsrep-cluster-address=gcomm://{','.join(f'127.0.0.1:{each.group}' for each in cluster)}",
            *("--wsrep-node-address=127.0.0.1", "--wsrep-sst-method=handover", "--wsrep-auto-increment-control=OFF"),
            *("--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"),
        ]

    def start(self, *options: str) -> None:
        """Start it, after a kill too, and return when it takes part in the cluster."""
        environment = os.environ | {"PATH": f"{self.home}{os.pathsep}{os.environ['PATH']}"}
        command = [*self._command(), *options]
        done = subprocess.run(
            [*command, "--wsrep-recover"], cwd=self.home, capture_output=True, text=True, check=True, timeout=110
        )
        position = re.findall(r"Recovered position: *(\S+)", done.stderr)[-1]
        self.launch([*command, f"--wsrep-start-position={position}"], environment)
        self.until(self.takes_part, "to take part in the cluster")

    def takes_part(self) -> bool:
        """Whether it has everything that the cluster has committed."""
        with contextlib.suppress(OSError, pymysql.MySQLError):
            return "Synced" in str(self.execute("SHOW STATUS LIKE 'wsrep_local_state_comment'"))
        return False
