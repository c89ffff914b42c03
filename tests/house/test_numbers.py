"""Numbers on the pages are those of the code.

A number in prose that repeats a constant has a row in `ROWS`: the sentence with `{}` in place of
the number, and the constant. Any other number with a unit is a figure that somebody measured or
that another project decides; those are listed in `NOT_OURS`.
"""

import re
from importlib import resources
from inspect import signature
from pathlib import Path

import pytest

from security.fuzzing import INPUT_SECONDS, MOST_GROWTH_MB
from toolscout.adapters.anthropic.definitions import TOOLS_LIMIT as ANTHROPIC_TOOLS
from toolscout.adapters.anthropic.rounds import ROUNDS
from toolscout.adapters.openai.responses import ROUNDS_LIMIT, Memory
from toolscout.calls.shapes import FIELDS_KEPT
from toolscout.config import bundles
from toolscout.config.file import DEMO_SERVERS
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import ServerConfig, SkillsConfig, Transport
from toolscout.console.activity import EVENTS_KEPT, LATENCIES_KEPT, LINES_KEPT, SESSIONS_KEPT
from toolscout.console.audit import ENTRIES_READ
from toolscout.console.map import STEPS
from toolscout.console.servers import LOGIN_SECONDS
from toolscout.console.sessions import RUNS_KEPT
from toolscout.demo import load_demo_catalog
from toolscout.dialects import NAMESPACE_FUNCTIONS
from toolscout.encoders.encoder import GRID, TABLE_FILE, StaticEncoder
from toolscout.gateway.gateway import NEWS_SECONDS
from toolscout.gateway.http import HELLO_BYTES, HELLO_SECONDS
from toolscout.gateway.ledger import HOURS_KEPT
from toolscout.gateway.metrics import LABELLED_TOOLS
from toolscout.gateway.middleware import (
    REFUSALS_NOTED,
    REQUEST_BYTES,
    TOKEN_CHARS,
    WRONG_TOKENS_PER_SECOND,
)
from toolscout.gateway.pending import REQUESTS_KEPT
from toolscout.gateway.shims import HEAD_BYTES
from toolscout.gateway.tasks import KEPT_BYTES, LEASE_SECONDS, TASKS_KEPT
from toolscout.hints.hints import HINT_CHARS, HINT_WORDS
from toolscout.hints.writing import BATCH_TOOLS, DESCRIPTION_CHARS
from toolscout.lint.lint import MOST_PROBED
from toolscout.lint.probes import FOUND_WITHIN
from toolscout.lint.rules import LONG_DEFINITION_TOKENS
from toolscout.lint.scanner import MOST_CHARS
from toolscout.query import PATTERN_LIMIT, TEXT_LIMIT
from toolscout.search.build import APPROXIMATE_FROM
from toolscout.search.feedback import HALF_LIFE_SECONDS, MOST_LIFT, PAIRS, REQUESTS_PER_TOOL
from toolscout.search.fusion import WORTH_FLOOR, WORTH_SHARE, Signal
from toolscout.search.index import PATTERN_TEXT_LIMIT, SHORTEST_BEGINNING
from toolscout.search.rank import (
    CANDIDATES,
    FEW,
    NONSENSE_PIECES,
    ROUGH_CANDIDATES,
    SHORTEST,
    WORD_LIMIT,
)
from toolscout.search.shard import FIELD_WEIGHTS, SATURATION, TYPICAL_LENGTHS
from toolscout.search.text import (
    CLAUSE_LIMIT,
    ENCODED_DESCRIPTION,
    ENCODED_PARAMETERS,
    SEARCHED_INSTRUCTIONS,
    SHARED_BY,
    SHARED_SHARE,
    Field,
)
from toolscout.search.translate import LANGUAGES
from toolscout.servers.connection import Delays
from toolscout.servers.listings import ICONS_CHARS, ICONS_LIMIT, META_CHARS
from toolscout.servers.oauth.callback import PORT
from toolscout.servers.pool import CATCH_UP_SECONDS
from toolscout.sessions.metatools import CALLS_LIMIT, build_meta_tools
from toolscout.sessions.prompt import LISTING_SHARE
from toolscout.sessions.replies import SAID_TOKENS
from toolscout.sessions.session_state import HEARD_SECONDS
from toolscout.sessions.usage import USAGE_KEPT
from toolscout.settings import Mode, Settings
from toolscout.skills.skill import BYTES_LIMIT, FILES_LIMIT
from toolscout.stores.background import GATHER_SECONDS, PENDING_BYTES, WAIT_SECONDS
from toolscout.stores.postgres import STATEMENT_SECONDS
from toolscout.stores.postgres import WAIT_SECONDS as POOL_SECONDS
from toolscout.tokens import COUNTED_TOOLS

ROOT = Path(__file__).parents[2]
GENERATED = {"api.md", "cli.md", "configuration.md", "events.md", "requirements.md"}
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name not in GENERATED
}
ANY = "any page"
SETTINGS = Settings()
GATEWAY = GatewayConfig()
SERVER = ServerConfig(name="any", transport=Transport.STDIO, command="any")
DEMO = load_demo_catalog()
DIMENSIONS = StaticEncoder().encode(["mail"], kind="tool").shape[1]
TRANSLATIONS = resources.files("toolscout.search") / "translations.tsv"
CONCEPTS = [
    line
    for line in TRANSLATIONS.read_text(encoding="utf-8").splitlines()[1:]
    if not line.startswith("\t")
]
REMEMBERED_RESPONSES = signature(Memory).parameters["limit"].default
SMALL_WORDS = ["zero", "one", "two", "three", "four", "five", "six"]
WORDS = [*SMALL_WORDS, "seven", "eight", "nine", "ten", "eleven", "twelve"]
THREE = WORDS[len(build_meta_tools())]


def read_constant(module: str, name: str) -> int:
    """Return a constant of a module that cannot be imported without an SDK."""
    source = (ROOT / "src/toolscout" / module).read_text(encoding="utf-8")
    found = re.search(rf"^{name} = (\d+)$", source, re.MULTILINE)
    assert found is not None, f"{module} has no {name}"
    return int(found[1])


ROWS: list[tuple[str, str, tuple[object, ...]]] = [
    ("docs/security.md", "more text than the scanner reads ({} characters)", (MOST_CHARS,)),
    ("docs/security.md", "takes {} seconds of the processor", (INPUT_SECONDS,)),
    ("docs/security.md", "its memory grows by {} MB", (MOST_GROWTH_MB,)),
    # What the model sees.
    (ANY, "the {} meta-tools", (THREE,)),
    ("README.md", "gives the model {} small tools instead", (THREE,)),
    ("README.md", "a search among {} tools", (len(DEMO),)),
    ("README.md", "# {} tools of {} made-up servers", (len(DEMO), len(DEMO.servers))),
    (
        "docs/comparison.md",
        "{} other languages go through a lexicon",
        (WORDS[len(LANGUAGES)].capitalize(),),
    ),
    ("docs/concepts.md", "a request carries {} small tools", (THREE,)),
    ("docs/concepts.md", "with it, {} tools and a list", (THREE,)),
    ("docs/start/gateway.md", "see {} tools instead of hundreds", (THREE,)),
    ("docs/start/library.md", "your loop sends {} small tools", (THREE,)),
    ("docs/start/library.md", "returns the same {} tools", (THREE,)),
    ("docs/gateway.md", "sees {} tools instead of hundreds", (THREE,)),
    ("docs/hints.md", "at most {} words and {} characters", (HINT_WORDS, HINT_CHARS)),
    ("docs/hints.md", "the first {} characters of the description", (DESCRIPTION_CHARS,)),
    ("docs/hints.md", "up to {} of one server in a request", (BATCH_TOOLS,)),
    ("docs/skills.md", "at most {} files, with {} bytes", (FILES_LIMIT, BYTES_LIMIT)),
    ("docs/skills.md", "looked at every {} seconds", (Delays().folder_look,)),
    ("docs/skills.md", "`listed_tokens` ({} by default)", (SkillsConfig().listed_tokens,)),
    ("docs/programs.md", "is cut at {} tokens; `batch` makes", (SETTINGS.result_tokens,)),
    ("docs/programs.md", "| memory | {} MB |", (SETTINGS.programs.memory_mb,)),
    ("docs/programs.md", "| calls and searches | {} |", (SETTINGS.programs.calls,)),
    ("docs/sessions.md", "a session as {} tools", (THREE,)),
    ("docs/adapters/gateway_clients.md", "it sends all {} with every request", (THREE,)),
    ("docs/glossary.md", "names one of {} modes", (WORDS[len(Mode)],)),
    # Sessions.
    ("docs/sessions.md", "within `max_tokens` ({} by default)", (SETTINGS.reply_tokens,)),
    ("docs/sessions.md", "A result longer than {} tokens is cut", (SETTINGS.result_tokens,)),
    ("docs/sessions.md", "at most {} tools (`auto_tools`)", (SETTINGS.auto_tools,)),
    ("docs/sessions.md", "{} % of the context window (`auto_share`)", (SETTINGS.auto_share,)),
    ("docs/sessions.md", "stay under {} tokens (`loaded_tokens`)", (SETTINGS.loaded_tokens,)),
    ("docs/sessions.md", "Keywords load at most {} tools", (WORDS[SETTINGS.routed],)),
    (
        "docs/sessions.md",
        "at most {} tokens and {} % of the context window",
        (SETTINGS.listing_tokens, round(LISTING_SHARE * 100)),
    ),
    ("docs/sessions.md", "quotes up to {} tokens of them", (SAID_TOKENS,)),
    ("docs/sessions.md", "a list of up to {} calls", (WORDS[CALLS_LIMIT],)),
    ("docs/sessions.md", "If there are more than {} calls", (WORDS[CALLS_LIMIT],)),
    ("docs/sessions.md", "at most {} for each tool", (FIELDS_KEPT,)),
    ("docs/gateway.md", "make [up to {} calls at the same time]", (WORDS[CALLS_LIMIT],)),
    ("docs/sessions.md", "also happens after {} minutes", (WORDS[int(HEARD_SECONDS / 60)],)),
    ("docs/gateway.md", "while they fit, in at most {} tokens", (SETTINGS.listing_tokens,)),
    ("docs/gateway.md", "the same as `direct` for up to {} tools", (SETTINGS.auto_tools,)),
    ("docs/adapters/openai.md", "Lists of at most {} tools", (SETTINGS.auto_tools,)),
    # The gateway.
    ("docs/gateway.md", "longer than {} tokens are cut", (GATEWAY.max_result_tokens,)),
    ("docs/gateway.md", "at most {} with web or `data:image/` addresses", (WORDS[ICONS_LIMIT],)),
    ("docs/gateway.md", "in {} characters together", (ICONS_CHARS,)),
    ("docs/gateway.md", "`_meta` of more than {} characters", (META_CHARS,)),
    ("docs/gateway.md", "`answer_seconds` ({} by default)", (GATEWAY.answer_seconds,)),
    ("docs/gateway.md", "`task_seconds` ({} by default", (GATEWAY.task_seconds,)),
    ("docs/gateway.md", "the newest {} tasks are kept, in {} MB", (TASKS_KEPT, KEPT_BYTES >> 20)),
    ("docs/gateway.md", "after {} seconds if it was killed", (LEASE_SECONDS,)),
    ("docs/gateway.md", "read each other's calls every {} seconds", (NEWS_SECONDS,)),
    ("docs/search.md", "in log-odds, of at most {}:", (MOST_LIFT,)),
    ("docs/search.md", "| {} in all; whoever", (PAIRS,)),
    ("docs/search.md", "| {}; the weakest go", (REQUESTS_PER_TOOL,)),
    ("docs/search.md", "counts half after {} days", (HALF_LIFE_SECONDS / 86_400,)),
    ("docs/gateway.md", "after {} seconds the answer is sent", (WAIT_SECONDS,)),
    ("docs/stores.md", "but at most {} seconds", (WAIT_SECONDS,)),
    ("docs/stores.md", "gathered for up to {} seconds", (GATHER_SECONDS,)),
    ("docs/stores.md", "takes more than {} seconds", (int(STATEMENT_SECONDS),)),
    ("docs/stores.md", "is free for {} seconds", (int(POOL_SECONDS),)),
    ("docs/stores.md", "in memory, up to {} MB", (PENDING_BYTES >> 20,)),
    ("docs/stores.md", "Every {} seconds they also look", (int(CATCH_UP_SECONDS),)),
    ("docs/stores.md", "waits up to {} seconds for the store", (int(HELLO_SECONDS),)),
    ("docs/stores.md", "the newest {} are kept", (USAGE_KEPT,)),
    ("docs/gateway.md", "up to {} MB", (PENDING_BYTES >> 20,)),
    ("docs/gateway.md", "a token has at least {} characters", (TOKEN_CHARS,)),
    ("docs/gateway.md", "each {} KB of a body count as one more", (REQUEST_BYTES >> 10,)),
    ("docs/gateway.md", "An `initialize` request may have {} KB", (HELLO_BYTES >> 10,)),
    ("docs/gateway.md", "the head of a request may have {} KB", (HEAD_BYTES >> 10,)),
    ("docs/gateway.md", "`read_seconds` ({} by default)", (GATEWAY.read_seconds,)),
    ("docs/gateway.md", "| `max_requests` | {} |", (GATEWAY.max_requests,)),
    ("docs/gateway.md", "| `max_calls` | {} |", (GATEWAY.max_calls,)),
    ("docs/gateway.md", "| `max_sessions` | {} |", (GATEWAY.max_sessions,)),
    ("docs/gateway.md", "| `max_stored_bytes` | {} |", (GATEWAY.max_stored_bytes,)),
    ("docs/gateway.md", "`max_unauthenticated` ({} by default)", (GATEWAY.max_unauthenticated,)),
    ("docs/gateway.md", "More than {} wrong tokens in a second", (int(WRONG_TOKENS_PER_SECOND),)),
    ("docs/gateway.md", "At most {} in a minute", (REFUSALS_NOTED,)),
    ("docs/gateway.md", "At most {} calls wait", (REQUESTS_KEPT,)),
    ("docs/operations.md", "After {} tools, further ones", (LABELLED_TOOLS,)),
    ("docs/console.md", "looks at {} entries at most", (ENTRIES_READ,)),
    ("docs/gateway.md", "in front of {} real servers", (WORDS[len(DEMO_SERVERS)],)),
    ("docs/gateway.md", "abandoned after {} minutes", (WORDS[int(LOGIN_SECONDS / 60)],)),
    ("docs/gateway.md", "http://127.0.0.1:{}/callback", (str(PORT),)),
    ("docs/gateway.md", "more than {} files", (bundles.MAX_FILES,)),
    ("docs/gateway.md", "more than {} GB are refused", (bundles.MAX_UNPACKED_BYTES >> 30,)),
    (
        "docs/console.md",
        "the last {} sessions with {} events each, and {} calls and {} log lines",
        (SESSIONS_KEPT, EVENTS_KEPT, LATENCIES_KEPT, LINES_KEPT),
    ),
    ("docs/console.md", "for the last {} runs of gateways", (RUNS_KEPT,)),
    ("docs/console.md", "keeps them for {} months", (WORDS[HOURS_KEPT // (24 * 31)],)),
    (
        "docs/console.md",
        "Above {} tools, token sums are estimated from {} counted definitions",
        (COUNTED_TOOLS, COUNTED_TOOLS),
    ),
    ("docs/console.md", "in {} steps, near neighbours", (STEPS,)),
    ("docs/metrics.md", "after {} tools, all further ones", (LABELLED_TOOLS,)),
    # Commands.
    ("docs/commands.md", "In a catalogue of more than {} tools", (MOST_PROBED,)),
    ("docs/commands.md", "more than {} tokens", (LONG_DEFINITION_TOKENS,)),
    ("docs/commands.md", "does not return it among the first {}", (WORDS[FOUND_WITHIN],)),
    # Queries.
    ("docs/query-language.md", "within its first {} characters", (PATTERN_TEXT_LIMIT,)),
    ("docs/query-language.md", "A pattern has at most {} characters", (PATTERN_LIMIT,)),
    ("docs/query-language.md", "Queries longer than {} characters are cut", (TEXT_LIMIT,)),
    (
        "docs/query-language.md",
        "A required word of {} letters or more",
        (WORDS[SHORTEST_BEGINNING],),
    ),
    # Search.
    (
        "docs/search.md",
        "at least {} tools of a server and at least {} % of them",
        (WORDS[SHARED_BY], round(SHARED_SHARE * 100)),
    ),
    (
        "docs/search.md",
        "at most {} letters each on average, and at most {} in every word",
        (NONSENSE_PIECES[0], f"{NONSENSE_PIECES[1]:g}"),
    ),
    ("docs/search.md", "a tool of their own (at most {})", (CLAUSE_LIMIT,)),
    ("docs/search.md", "At most {} distinct words are ranked", (WORD_LIMIT,)),
    (
        "docs/search.md",
        "The best {} are compared exactly (all of them in a catalogue of at most {} tools), and "
        "the best {} become candidates; if more than {} hits are wanted, all {} do.",
        (ROUGH_CANDIDATES, FEW, CANDIDATES, CANDIDATES, ROUGH_CANDIDATES),
    ),
    (
        "docs/search.md",
        "The first {} dimensions scan all tools, all {} compare the best {}, and {} candidates "
        "are judged. With at most {} tools, all dimensions",
        (StaticEncoder.leading, DIMENSIONS, ROUGH_CANDIDATES, CANDIDATES, FEW),
    ),
    ("docs/search.md", "How many tools the first {} dimensions pick", (StaticEncoder.leading,)),
    ("docs/search.md", "{} signals are computed", (len(Signal),)),
    ("docs/architecture.md", "collects {} signals for each", (len(Signal),)),
    ("docs/search.md", "{} fields are searched", (WORDS[len(Field)].capitalize(),)),
    ("docs/search.md", "saturated once (`k1` = {})", (SATURATION,)),
    (
        "docs/search.md",
        "ships with the package: {} dimensions, {} MB",
        (DIMENSIONS, round(TABLE_FILE.stat().st_size / 1e6)),
    ),
    (
        "docs/search.md",
        "the first {} characters of the description and the first {} characters of the parameter",
        (ENCODED_DESCRIPTION, ENCODED_PARAMETERS),
    ),
    ("docs/search.md", "the first {} characters are searched with", (SEARCHED_INSTRUCTIONS,)),
    ("docs/search.md", "rounded to multiples of 1/{}", (str(GRID),)),
    ("docs/search.md", "is at least {} % of the first hit's chance", (round(WORTH_SHARE * 100),)),
    ("docs/search.md", "chance and at least {}", (f"{WORTH_FLOOR:.2f}".lstrip("0"),)),
    ("docs/search.md", "one typo is allowed from {} letters on", (WORDS[SHORTEST],)),
    ("docs/search.md", "A lexicon of {} entries", (len(CONCEPTS),)),
    ("docs/glossary.md", "translates words of {} languages", (WORDS[len(LANGUAGES)],)),
    ("docs/search.md", "groups of {} or more tools", (APPROXIMATE_FROM,)),
    *(
        (
            "docs/search.md",
            f"| {name} | {{}} | {{}} |",
            (str(FIELD_WEIGHTS[field]), f"{TYPICAL_LENGTHS[field]:g}"),
        )
        for name, field in {
            "name (leaf)": Field.NAME,
            "server": Field.SERVER,
            "aliases and tags": Field.KEYWORDS,
            "title": Field.TITLE,
            "instructions of the server": Field.INSTRUCTIONS,
            "description": Field.DESCRIPTION,
            "parameter names": Field.PARAMETER,
            "parameter descriptions": Field.PARAMETER_DESCRIPTION,
            "values (enumerations)": Field.ENUM,
        }.items()
    ),
    # Adapters.
    ("docs/adapters/anthropic.md", "A request of more than {} tools", (ANTHROPIC_TOOLS,)),
    ("docs/adapters/anthropic.md", "After {} rounds (`rounds=`)", (WORDS[ROUNDS],)),
    ("docs/adapters/openai.md", "After {} rounds of nothing", (WORDS[ROUNDS_LIMIT],)),
    ("docs/adapters/openai_agents.md", "search for {} rounds of", (WORDS[ROUNDS_LIMIT],)),
    ("docs/adapters/openai.md", "the last {} responses", (REMEMBERED_RESPONSES,)),
    ("docs/adapters/openai_agents.md", "the last {} responses", (REMEMBERED_RESPONSES,)),
    (
        "docs/adapters/llama_index.md",
        "return the {} tools that fit best",
        (WORDS[read_constant("adapters/llama_index.py", "RANKED")],),
    ),
    (
        "docs/adapters/openai.md",
        "fewer than {} functions in each",
        (WORDS[NAMESPACE_FUNCTIONS + 1],),
    ),
    (
        "docs/quickstart.md",
        "toolscout waits {} minutes for that",
        (WORDS[int(SERVER.install_seconds / 60)],),
    ),
    (
        "docs/quickstart.md",
        "stops it again after {} minutes without one",
        (WORDS[int(SERVER.idle_stop / 60)],),
    ),
    ("docs/quickstart.md", "gets {} tools", (THREE,)),
]

UNITS = (
    "seconds|minutes|hours|days|months|tokens|tools|meta-tools|hits|characters|letters|bytes|KB|MB|"
    "GB|dimensions|sessions|events|calls|lines|rounds|responses|candidates|signals|fields|entries|"
    "steps|modes|languages|definitions|servers|adapters|clients|ports"
)
NUMBER = rf"(?:\d[\d,.]*\d|\d|{'|'.join(WORDS[3:])})"
WITH_UNIT = re.compile(rf"(?<![\w.,/-]){NUMBER}(?: \w+)?? (?:{UNITS})\b", re.IGNORECASE)

NOT_OURS = {
    "README.md": (
        "2,204 tokens instead of 4,065,065",
        "22,665 tools",
        "234 tokens",
        "10,000 tools",
        "8,039 such tools",
        "five clients with ten servers",
        "ten tools",
        "in five minutes",
    ),
    "docs/stores.md": ("waits for 15 seconds",),
    "docs/operations.md": (
        "about four minutes",
        "for two minutes",
        "every ten seconds",
        "20 servers",
        "300 clients",
        "1,428 loaded tools",
        "took 3.0 s (p50 12 ms, p99 0.3 s)",
        "longer than 5 seconds",
        "more than 5 seconds",
    ),
    "docs/architecture.md": ("ten minutes",),
    "docs/comparison.md": ("155 tokens against 744", "155 tokens against 990", "three languages"),
    "docs/start/adapter.md": ("in five minutes",),
    "docs/start/gateway.md": ("in five minutes", "thirteen servers"),
    "docs/start/library.md": ("in five minutes",),
    "docs/commands.md": ("22,665 tools",),
    "docs/console.md": ("22,665 tools",),
    "docs/skills.md": ("217 tokens", "about 50 skills"),
    "docs/search.md": ("384 dimensions", "22,665 tools that all have hints"),
    "docs/programs.md": (
        "read 6,000 tokens of JSON",
        "fewer than 350 tokens",
        "three or more calls",
        "60, 600 or 6,000 tokens",
        "four or more calls",
        "within 36 seconds",
        "189 MB",
        "needs one second",
        "reads 5,000 tokens",
        "10 calls that Monty",
        "10 calls of a function",
        "10 calls of a coroutine",
        "ten calls",
        "ten trivial calls",
    ),
    "docs/hints.md": (
        "22,665 tools of public MCP servers",
        "0.94 MB",
        "9,600 weakest lines",
        "38 lines",
        "22,665 lines",
        "532 tools",
        "2,792 definitions",
    ),
    "docs/security.md": (
        "44 definitions",
        "22,665 public definitions",
        "10 seconds",
        "100 MB",
    ),
    "docs/gateway.md": (
        "Five clients with ten servers",
        "2,048 characters",
        "first ten minutes",
        "180 clients of nine tokens",
        "With 20,000 servers it needs about 6 seconds of one core and 280 MB",
    ),
    "docs/quickstart.md": ("first ten minutes", "five clients"),
    "docs/sessions.md": ("100 lines", "1,024 characters"),
    "docs/adapters/crewai.md": ("0.8 GB",),
    "docs/adapters/fastmcp.md": ("1,000 local tools",),
    "docs/adapters/semantic_kernel.md": ("5 rounds",),
    "docs/support.md": ("six months",),
}
"""Measured figures, sizes of datasets and numbers that other projects decide, by page."""
MEASURED = {
    "docs/benchmarks.md": "# Benchmarks",
    "docs/scale.md": "# Scale",
    "docs/search.md": "## What we tried",
    "docs/stores.md": "## What a database costs",
}
"""Headings from which on a page has nothing but results."""


def read_prose(page: str) -> str:
    """Return the text of a page without its blocks and its results, with single blanks."""
    text = PAGES[page].read_text(encoding="utf-8")
    if page in MEASURED:
        text, heading, _ = f"\n{text}".partition(f"\n{MEASURED[page]}\n")
        assert heading, f"{page} has no heading {MEASURED[page]!r}"
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return " ".join(text.split())


def build_sentence(template: str, constants: tuple[object, ...]) -> str:
    shown = [f"{n:,g}" if isinstance(n, float) else n for n in constants]
    return template.format(*(f"{n:,}" if isinstance(n, int) else n for n in shown))


@pytest.mark.parametrize(("page", "template", "constants"), ROWS)
def test_a_number_on_a_page_is_that_of_the_code(
    page: str, template: str, constants: tuple[object, ...]
):
    sentence = build_sentence(template, constants)
    if page == ANY:
        texts = [path.read_text(encoding="utf-8") for path in PAGES.values()]
        wrong = re.compile(re.escape(template).replace(r"\{\}", rf"(?!{constants[0]}\b){NUMBER}"))
        assert any(sentence in text for text in texts)
        assert not [wrong.search(text) for text in texts if wrong.search(text)]
    else:
        assert sentence in " ".join(PAGES[page].read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_number_with_a_unit_has_a_row_or_is_known_to_be_measured(page: str):
    text = read_prose(page)
    known = [build_sentence(row[1], row[2]) for row in ROWS if row[0] in (page, ANY)]
    for sentence in (*known, *NOT_OURS.get(page, ())):
        text = text.replace(sentence, " … ")

    unknown = [match[0] for match in WITH_UNIT.finditer(text)]

    assert unknown == [], "Add a row to ROWS, or the phrase to NOT_OURS if no constant decides it."


@pytest.mark.parametrize(("page", "phrase"), [(p, x) for p, all_ in NOT_OURS.items() for x in all_])
def test_every_figure_that_is_not_ours_is_still_on_its_page(page: str, phrase: str):
    assert phrase in read_prose(page)
