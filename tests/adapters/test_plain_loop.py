"""The example without an SDK, against a provider on loopback."""

from adapters.moves import call
from adapters.provider import Provider
from adapters.scripts import is_on_page, run_example


def test_the_plain_loop_runs_as_it_is_written():
    script = [
        call("tool_search", queries=["refund an invoice"]),
        call("shop__refund_invoice", invoice_id="inv-7", amount=500),
        "It is refunded.",
    ]
    with Provider(script) as provider:
        said = run_example("plain_loop.py", provider.base_url)

    assert said == "It is refunded.\n"
    assert "Refunded 500 of inv-7." in provider.requests[-1].tool_results.values()
    assert is_on_page("plain_loop.py", "plain.md")
