"""What input tokens cost."""

from datetime import date

import pytest

from toolscout.errors import InvalidConfig
from toolscout.prices import AS_OF, PRICES, Price, price_of


def test_a_model_is_found_in_any_case_and_prices_tokens():
    price = price_of(" GPT-4o ")

    assert price == Price(model="gpt-4o", per_million=2.5)
    assert price.of(2_000_000) == 5.0
    assert price.of(0) == 0.0


def test_an_unknown_model_is_told_with_near_ones_and_the_way_out():
    with pytest.raises(InvalidConfig, match=r"names 'gpt-4x'.*Near: gpt-4.*--price"):
        price_of("gpt-4x")


def test_every_price_is_one_and_the_table_has_a_date():
    assert all(0 < dollars < 100 for dollars in PRICES.values())
    assert all(model == model.casefold().strip() for model in PRICES)
    assert date.fromisoformat(AS_OF) > date(2026, 1, 1)
