"""Build the documentation site from the pages: `python docs/build.py`, or `make docs`.

Pages link to files of the repository, so that they work where people read them there. Here they
are copied to `build/pages` with links that lead to pages of the site, and zensical turns them into
`build/site`, whose pages also work as files, without a network. `mkdocs.yml` has the navigation
and the theme.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILD = ROOT / "build"
ICON = "src/toolscout/console/static/icon.svg"
ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "GOVERNANCE.md": "governance.md",
    "SECURITY.md": "security-policy.md",
    "THIRD_PARTY.md": "third-party.md",
}
"""Pages outside docs/, with their names on the site."""
COPIED = {".css", ".js", ".md", ".png", ".svg"}
WORKER = "https://unpkg.com/iframe-worker/shim"
"""A script that the theme loads from elsewhere; `assets/file-worker.js` takes its place."""

_BLOCK = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_NO_RUN = re.compile(r"^( *```python) no-run$", re.MULTILINE)


def list_pages() -> Iterator[tuple[Path, str]]:
    """Yield each file of the site, with the name that it gets there."""
    for name, page in ROOT_PAGES.items():
        yield ROOT / name, page
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in COPIED:
            yield path, path.relative_to(DOCS).as_posix()
    yield ROOT / ICON, "assets/icon.svg"


def write_pages(folder: Path, repository: str) -> None:
    """Write all pages and pictures into an empty folder, with the links of the site."""
    pages = dict(list_pages())
    shutil.rmtree(folder, ignore_errors=True)
    for source, name in pages.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = source.read_text(encoding="utf-8")
            target.write_text(convert_page(text, source, pages, repository), encoding="utf-8")
        else:
            shutil.copyfile(source, target)


def convert_page(text: str, source: Path, pages: dict[Path, str], repository: str) -> str:
    """Return the text of a page with links to the site, or to the repository where it has none."""

    def convert_link(found: re.Match[str]) -> str:
        target, mark, anchor = found[1].partition("#")
        if not target or "://" in target:
            return found[1]
        linked = (source.parent / target).resolve()
        if linked in pages:
            here = Path(pages[source]).parent
            return f"{os.path.relpath(pages[linked], here)}{mark}{anchor}"
        return f"{repository}/{linked.relative_to(ROOT).as_posix()}{mark}{anchor}"

    parts = _BLOCK.split(text)
    parts[::2] = [_LINK.sub(convert_link, _remove_escapes(part)) for part in parts[::2]]
    return _NO_RUN.sub(r"\1", "".join(parts))


def _remove_escapes(text: str) -> str:
    """Return text without the backslashes that code in tables needs on GitHub and shows here."""
    return _CODE.sub(lambda found: found[0].replace("\\|", "|"), text)


def write_config(path: Path, project: dict[str, str], version: str) -> None:
    """Write the configuration of the site with the version and the address of the package."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    lines = {
        "docs_dir": "pages",
        "site_dir": "site",
        "site_url": project["Documentation"],
        "copyright": f"toolscout {version}, Apache-2.0",
    }
    text = re.sub(r"^(?:docs_dir|site_dir): .*\n", "", text, flags=re.MULTILINE)
    head = "".join(f"{name}: {json.dumps(value)}\n" for name, value in lines.items())
    path.write_text(head + text, encoding="utf-8")


def finish_site(folder: Path) -> None:
    """Let the pages load nothing from elsewhere."""
    for path in folder.rglob("*.html"):
        depth = len(path.relative_to(folder).parents) - 1
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(WORKER, f"{'../' * depth}assets/file-worker.js"), "utf-8")


def build_site(folder: Path = BUILD) -> int:
    """Write the site into `site` of a folder; return the exit code of the generator."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    repository = f"{project['urls']['Repository']}/blob/v{version}"
    write_pages(folder / "pages", repository)
    write_config(folder / "mkdocs.yml", project["urls"], version)
    shutil.rmtree(folder / "site", ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    code = subprocess.run(
        [*command, "--config-file", "mkdocs.yml"], cwd=folder, check=False
    ).returncode
    finish_site(folder / "site")
    return code


if __name__ == "__main__":
    sys.exit(build_site())
