"""Send what schemathesis makes of the console's OpenAPI document to a gateway; see `make fuzz`."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from serving import MISSING, TIME, served

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


def main() -> int:
    """Fuzz the console, and return schemathesis' exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=100, help="for each operation and phase")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with served(TIME, MISSING, console=True) as gateway, tempfile.TemporaryDirectory() as folder:
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "run"),
            f"{gateway.url}/api/openapi.json",
            f"--checks={','.join(CHECKS)}",
            f"--max-examples={options.inputs}",
            f"--seed={options.seed}",
            "--exclude-path=/api/events",  # an answer without end
            "--generation-database=none",
            "--no-color",
        ]
        return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
