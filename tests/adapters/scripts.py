"""Examples of `examples/`, run as a reader runs them, with the provider as their model."""

import os
import subprocess
import sys

from adapters.tables import EXAMPLES, ROOT

SECONDS = 240.0
"""Long enough for a machine that is several times slower than an idle one."""
LINES = 30
"""Longest example of an adapter."""


def run_example(name: str, base_url: str) -> str:
    """Return what an example prints; it finds the model by the usual variables."""
    keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
    root = base_url.removesuffix("/v1")
    urls = {"OPENAI_BASE_URL": base_url, "ANTHROPIC_BASE_URL": root}
    urls |= {"OPENAI_API_BASE": base_url, "GOOGLE_GEMINI_BASE_URL": root}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env={**os.environ, **urls, **dict.fromkeys(keys, "none")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stderr}"
    return done.stdout


def is_on_page(name: str, page: str) -> bool:
    """Tell whether a page of `docs/adapters` has a short example word for word."""
    code = (EXAMPLES / name).read_text(encoding="utf-8")
    text = (ROOT / "docs" / "adapters" / page).read_text(encoding="utf-8")
    return len(code.splitlines()) <= LINES and f"```python\n{code}```" in text
