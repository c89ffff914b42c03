"""What a million input tokens costs at well-known models, in US dollars.

List prices of the day below, for requests of ordinary length: without discounts for caching or
batches, without surcharges for long contexts. They change often and are not looked up anywhere,
so that a figure is for comparing, not for billing; who has a price of their own says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from toolscout.errors import InvalidConfig
from toolscout.names import find_near_names

AS_OF = "2026-10-31"

PRICES: Mapping[str, float] = {
    "claude-fable-5-1": 10.0,
    "claude-opus-5-5": 4.0,
    "claude-opus-5": 5.0,
    "claude-sonnet-5-5": 2.0,
    "claude-sonnet-4-6": 3.0,
    "claude-haiku-5-5": 0.1,
    "claude-haiku-4-5": 1.0,
    "gpt-6-astra": 10.0,
    "gpt-6.1-sol": 2.0,
    "gpt-6.1-terra": 1.0,
    "gpt-6-luna": 0.1,
    "gpt-5.2": 1.75,
    "gpt-5": 1.25,
    "gpt-5-mini": 0.25,
    "gpt-4.1": 2.0,
    "gpt-4o": 2.5,
    "gpt-4o-mini": 0.15,
    "gemini-3.8-flash": 0.75,
    "gemini-2.5-pro": 1.25,
    "gemini-2.5-flash": 0.3,
    "mistral-large-3": 0.5,
    "deepseek-v4-pro": 0.435,
    "deepseek-v4-flash": 0.14,
}
"""Dollars for a million input tokens, by the model's name at its provider."""

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What input tokens cost."""

    model: str
    """Empty for a price that the caller gave."""
    per_million: float
    """US dollars."""

    def of(self, tokens: float) -> float:
        """Return what tokens cost, in US dollars."""
        return tokens * self.per_million / MILLION


def price_of(model: str) -> Price:
    """Return the price of a model; raises `InvalidConfig` for one that is not listed."""
    wanted = model.strip().casefold()
    if wanted not in PRICES:
        near = ", ".join(find_near_names(wanted, PRICES)) or ", ".join(PRICES)
        remedy = f"Near: {near}. Or give dollars for a million input tokens with --price."
        raise InvalidConfig(
            "--model", f"names {model!r}, of which no price is known", remedy=remedy
        )
    return Price(model=wanted, per_million=PRICES[wanted])
