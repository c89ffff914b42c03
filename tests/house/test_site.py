"""The documentation site: complete, without broken links, and without a network."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from playwright.sync_api import expect

import toolscout
from console.windows import SCREENS, browsing, window
from documents import load_script
from toolscout import errors
from toolscout.gateway import events as gateway_events
from toolscout.options import list_options
from toolscout.sessions import events as session_events
from toolscout.sessions.events import Event

ROOT = Path(__file__).parents[2]
PACKAGE = Path(toolscout.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}
"""Attributes whose address a browser loads without being asked."""
COLOURS = {"light": "default", "dark": "slate"}
"""How the theme calls the colours of a system."""
NAMED_ONLY = {"canonical", "next", "prev"}
"""Kinds of `<link>` that nothing is loaded from."""


@dataclass
class Page(HTMLParser):
    """What a built page says, links to and loads."""

    text: str = ""
    links: list[str] = field(default_factory=list[str])
    loads: list[str] = field(default_factory=list[str])
    anchors: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.anchors |= {named[key] for key in ("id", "name") if key in named}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        if named.get("rel") not in NAMED_ONLY:
            self.loads += [named[name] for name in named if (tag, name) in LOADED]

    def handle_data(self, data: str) -> None:
        self.text += data


@dataclass(frozen=True)
class Site:
    folder: Path
    code: int
    pages: dict[str, Page]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    code = load_script("build").build_site(folder)
    pages = dict[str, Page]()
    for path in sorted((folder / "site").rglob("*.html")):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        pages[path.relative_to(folder / "site").as_posix()] = page
    return Site(folder / "site", code, pages)


def list_navigation(entries: Iterable[Any]) -> Iterator[str]:
    """Yield the pages of the navigation, in their order."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from list_navigation(value)


def test_every_page_is_in_the_navigation_once():
    listed = list(list_navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    pages = [name for _, name in load_script("build").list_pages() if name.endswith(".md")]

    missing = sorted(set(pages) - set(listed))
    assert not missing, f"Add to `nav` in mkdocs.yml: {', '.join(missing)}"
    gone = sorted(set(listed) - set(pages))
    assert not gone, f"Remove from `nav` in mkdocs.yml, or write the page: {', '.join(gone)}"
    assert len(listed) == len(set(listed)), "A page is in the navigation twice."


def test_the_site_builds_without_a_warning(site: Site):
    assert site.code == 0, "zensical warned or failed: run `make docs` to see of what"
    assert len(site.pages) > 40


def test_pages_load_nothing_from_elsewhere(site: Site):
    for name, page in site.pages.items():
        elsewhere = [address for address in page.loads if urlsplit(address).netloc]

        assert elsewhere == [], name


@pytest.mark.slow
def test_the_site_is_searched_without_a_network_in_light_and_dark(site: Site):
    with browsing() as browser:
        for screen in SCREENS:
            with window(browser, site.folder.as_uri(), screen) as opened:
                opened.page.context.set_offline(True)
                page = opened.open("index.html")
                scheme = COLOURS[screen.schemes[0]]
                expect(page.locator("body")).to_have_attribute("data-md-color-scheme", scheme)

                page.keyboard.press("Control+k")
                page.keyboard.type("pgvector")
                expect(page.get_by_text(re.compile(r"^\d+ results?$"))).to_be_visible()
                page.keyboard.press("Enter")

                expect(page.locator("article")).to_contain_text("pgvector")


def test_links_lead_to_pages_and_headings_that_exist(site: Site):
    for name, page in site.pages.items():
        if name == "404.html":
            continue  # its links begin at the root of the published site
        for link in page.links:
            address = urlsplit(link)
            if address.scheme:
                continue
            path = (site.folder / name).parent / unquote(address.path)
            linked = (path if address.path else site.folder / name).resolve()
            if linked.is_dir():
                linked /= "index.html"

            assert linked.is_file(), f"{name}: {link}"
            if address.fragment and linked.suffix == ".html":
                anchors = site.pages[linked.relative_to(site.folder).as_posix()].anchors
                assert unquote(address.fragment) in anchors, f"{name}: {link}"


def test_links_to_other_sites_are_whole_addresses(site: Site):
    for name, page in site.pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme:
                assert address.scheme in ("https", "mailto"), f"{name}: {link}"
                assert "." in address.netloc, f"{name}: {link}"


def test_every_page_shows_the_version_of_the_package(site: Site):
    for name, page in site.pages.items():
        assert f"toolscout {PROJECT['version']}" in page.text, name


def test_no_page_shows_the_backslashes_of_its_source(site: Site):
    for name, page in site.pages.items():
        assert "\\|" not in page.text, name


def test_every_option_is_on_the_site(site: Site):
    shown = site.pages["configuration.html"].text
    for table, group in load_script("generate").OPTIONS.items():
        for option in list_options(group):
            assert re.search(rf"\b{re.escape(option.name)}\b", shown), f"[{table}] {option.name}"


def test_every_command_and_flag_is_on_the_site(site: Site):
    generate = load_script("generate")
    context = generate.click.Context(generate.main_command, info_name="toolscout")
    shown = site.pages["cli.html"].text
    for command in generate.list_commands(context):
        assert f"{command.command_path}\n" in f"{shown}\n", command.command_path
        for parameter in command.command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert parameter.opts[-1] in shown, f"{command.command_path} {parameter.opts[-1]}"


def test_every_error_and_code_is_on_the_site(site: Site):
    shown = site.pages["errors.html"].text
    named = [found for found in vars(errors).values() if isinstance(found, type)]
    for found in named:
        if issubclass(found, errors.ToolscoutError):
            assert re.search(rf"\b{found.__name__}\b", shown), found.__name__
    codes = {code for path in PACKAGE.rglob("*.py") for code in list_codes(path)}
    assert {"ok", "no_match", "tool_error", "not_loaded", "timed_out"} <= codes
    for code in sorted(codes):
        assert re.search(rf"\b{code}\b", shown), code


def list_codes(path: Path) -> Iterator[str]:
    """Yield the codes that a module of sessions or errors gives to replies."""
    if path.parent.name not in ("sessions", "calls") and path.name != "errors.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.keyword(arg="code", value=ast.Dict()):
                continue  # a parameter of a tool that is called so
            case ast.keyword(arg="code", value=value):
                pass
            case ast.Assign(targets=[ast.Name(id="code")], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id="code"), value=ast.expr() as value):
                pass
            case ast.FunctionDef(name="choose_code") as value:
                value = value.body[-1]
            case _:
                continue
        for inner in ast.walk(value):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value


def test_every_code_of_a_finding_is_on_the_site(site: Site):
    sources = [path.read_text(encoding="utf-8") for path in (PACKAGE / "lint").glob("*.py")]
    sources.append((PACKAGE / "skills/skill.py").read_text(encoding="utf-8"))
    codes = {code for text in sources for code in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', text)}
    shown = "".join(site.pages[f"{name}.html"].text for name in ("commands", "security", "skills"))

    assert {"vague-name", "hidden-text", "skill-frontmatter"} <= codes
    assert [code for code in sorted(codes) if code not in shown] == []


def test_every_event_is_on_the_site(site: Site):
    anchors = site.pages["events.html"].anchors
    for module in (session_events, gateway_events):
        for name, found in vars(module).items():
            if isinstance(found, type) and issubclass(found, Event):
                assert name.lower() in anchors, name


def test_every_metric_is_on_the_site(site: Site):
    source = (PACKAGE / "gateway/metrics.py").read_text(encoding="utf-8")
    names = set(re.findall(r'"(toolscout_\w+)"', source))
    assert len(names) > 8
    for name in names:
        assert name in site.pages["metrics.html"].text, name


def test_every_public_name_is_on_the_site(site: Site):
    generate = load_script("generate")
    anchors = site.pages["api.html"].anchors
    names = [*toolscout.__all__]
    for module in generate.STABLE:
        names += generate.list_public(module)
    for name in names:
        assert name.lower() in anchors, name


def test_every_adapter_has_a_page(site: Site):
    folder = PACKAGE / "adapters"
    found = {path.stem for path in folder.iterdir() if not path.name.startswith("_")}
    for name in found:
        assert f"adapters/{name}.html" in site.pages, name
