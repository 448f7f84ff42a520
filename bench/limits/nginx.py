"""nginx with one worker, serving ranges of one file: the limit of raw fetch, where it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

from bench.limits.listening import listener
from bench.processes import START_SECONDS_MAX, Address, BenchError, ServerProcess

HOW_TO_INSTALL = "nginx is not on PATH; Debian and Ubuntu have it as the package nginx"
# sendfile_max_chunk lets connections take turns, as ours do.
_CONFIGURATION = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    sendfile_max_chunk 2m;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    open_file_cache max=16;
    default_type application/octet-stream;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {root};
    }}
}}
"""


def find_nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")


class NginxServer(ServerProcess):
    """Serves the files of ``root``.

    The listening socket is made here and handed over as nginx hands it to its successor, because nginx cannot be told
    which congestion control to use, and inherits that of its socket.
    """

    def __init__(self, command: str, root: Path, directory: Path, cores: frozenset[int]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._listener = listener()
        port = self._listener.getsockname()[1]
        configuration = directory / "nginx.conf"
        user = "user root;\n" if os.geteuid() == 0 else ""  # else its worker may not read our directory
        configuration.write_text(user + _CONFIGURATION.format(directory=directory, port=port, root=root))
        arguments = [command, "-p", str(directory), "-c", str(configuration), "-e", str(directory / "error.log")]
        super().__init__("nginx", arguments, directory / "nginx.log", cores)
        os.set_inheritable(self._listener.fileno(), True)
        self.inherited = (self._listener.fileno(),)
        self.environment = {**os.environ, "NGINX": f"{self._listener.fileno()};"}

    def _wait_until_ready(self, _begin: int, deadline: float) -> Address:
        address: Address = self._listener.getsockname()
        self._listener.close()
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                said = self._log.read_text("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
                raise BenchError(f"nginx ended with status {self._process.returncode}: {said[0]}")
            try:
                with socket.create_connection(address, timeout=1) as probe:
                    probe.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    if probe.recv(1):
                        return address
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise BenchError(f"nginx was not ready after {START_SECONDS_MAX:.0f} s.")
            time.sleep(0.005)
