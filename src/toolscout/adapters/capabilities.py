"""Which loading mode fits an endpoint or framework, decided from what it can do.

Takes `Capabilities`, or a base URL to read them from; gives a `Mode`. Nothing is asked over a
network: what is not known for sure counts as missing, because a proxy that drops or refuses the
blocks of a provider breaks the whole conversation.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import urlsplit

from toolscout.errors import InvalidConfig
from toolscout.settings import Mode, Settings

FIRST_PARTY = "anthropic.com"
OPENAI_HOSTS = ("openai.com", "openai.azure.com", "services.ai.azure.com")
SEARCHING_SINCE = [5, 4]
"""The first GPT that has its client search for tools."""
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?![\w.])")


class Addition(StrEnum):
    """How an endpoint learns in mid-conversation that a tool was found."""

    NONE = "none"
    BY_REFERENCE = "by_reference"
    """By its name; the definition was declared before, and hidden by the provider."""
    WITH_DEFINITIONS = "with_definitions"
    """By its definition in the output of a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an endpoint or framework can do with tools."""

    addition: Addition = Addition.NONE
    may_change: bool = True
    """Whether the tools of a conversation may be others from one request to the next."""
    caches_prefix: bool = False
    """Whether a cache is lost, and dear, when the tools change."""


ANTHROPIC = Capabilities(addition=Addition.BY_REFERENCE, caches_prefix=True)
ANTHROPIC_ELSEWHERE = Capabilities(caches_prefix=True)
"""Anthropic's format at a host that is not known to take references: clouds, proxies, gateways."""
OPENAI_SEARCHING = Capabilities(addition=Addition.WITH_DEFINITIONS, caches_prefix=True)
"""OpenAI's Responses API with a model that knows tool search."""
GROWING = Capabilities()
"""A framework that asks for its tools before every request."""
FIXED = Capabilities(may_change=False)
"""A framework that asks for its tools once."""


def choose_mode(capabilities: Capabilities, override: Mode | str | None = None) -> Mode:
    """Return how found tools become callable; an override always wins."""
    if override is not None:
        return _mode(override)
    if capabilities.addition is Addition.BY_REFERENCE:
        return Mode.REFERENCE
    if capabilities.addition is Addition.WITH_DEFINITIONS:
        return Mode.DEFINITIONS
    if not capabilities.may_change or capabilities.caches_prefix:
        return Mode.BRIDGE
    return Mode.NATIVE


def anthropic_capabilities(base_url: str) -> Capabilities:
    """Return what the Messages API can do at an address; only Anthropic's own hosts are known."""
    return ANTHROPIC if _is_at(base_url, FIRST_PARTY) else ANTHROPIC_ELSEWHERE


def openai_capabilities(model: str, base_url: str = "") -> Capabilities:
    """Return what the Responses API can do with a model; without an address it is OpenAI's own.

    Models before GPT-5.4, those of the nano size and all others are told tools with the request.
    """
    version = _GPT.match(model)
    number = [int(part or 0) for part in version.groups()] if version is not None else []
    is_known_host = not base_url or any(_is_at(base_url, host) for host in OPENAI_HOSTS)
    searches = is_known_host and number >= SEARCHING_SINCE and "nano" not in model
    return OPENAI_SEARCHING if searches else GROWING


def _is_at(base_url: str, domain: str) -> bool:
    host = (urlsplit(base_url).hostname or "").rstrip(".")
    return host == domain or host.endswith(f".{domain}")


def settings_for(
    capabilities: Capabilities, settings: Settings | None = None, mode: Mode | str | None = None
) -> Settings:
    """Return settings with the mode that fits; settings that are given have chosen theirs."""
    if settings is not None and mode is None:
        return settings
    return replace(settings or Settings(), mode=choose_mode(capabilities, mode))


def _mode(name: Mode | str) -> Mode:
    try:
        return Mode(str(name))
    except ValueError:
        raise InvalidConfig(
            "mode", f"is {name!r}", remedy=f"Use one of {', '.join(Mode)}."
        ) from None
