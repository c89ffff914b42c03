"""The port of the gateway: free, taken by a gateway, or by something else."""

import http.client
import json
import socket
from importlib.metadata import version

from toolscout.cli.checks import Checkup, ok, warn
from toolscout.config.gateway import GatewayConfig
from toolscout.schemas import Json, is_object

ANSWER_SECONDS = 3.0
MAX_ANSWER_BYTES = 1 << 20


def port(gateway: GatewayConfig) -> Checkup:
    """Look at the port on which `toolscout serve --http` would listen."""
    place = f"{gateway.host}:{gateway.port}"
    if gateway.port == 0:
        return ok("port", "any that is free")
    if _is_free(gateway.host, gateway.port):
        return ok("port", f"{place} is free")
    if _asked(gateway, "/healthz").get("alive") is not True:
        text = f"{place} is taken by another program."
        return warn("port", text, f"toolscout serve --http --port {gateway.port + 1}")
    told = _asked(gateway, "/status").get("versions")
    running = told.get("toolscout") if is_object(told) else None
    mine = version("toolscout")
    if isinstance(running, str) and running != mine:
        text = f"The gateway at {place} is toolscout {running[:40]}; installed is {mine}."
        return warn("port", text, "Stop it and run `toolscout serve --http` again.")
    return ok("port", f"a gateway answers at {place}")


def _is_free(host: str, number: int) -> bool:
    try:
        family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, number))
    except OSError:
        return False
    return True


def _asked(gateway: GatewayConfig, path: str) -> Json:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(gateway.host, gateway.host)
    connection = http.client.HTTPConnection(host, gateway.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        told: object = json.loads(connection.getresponse().read(MAX_ANSWER_BYTES))
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
    return told if is_object(told) else {}
