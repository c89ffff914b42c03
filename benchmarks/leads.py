"""How far one system is ahead of another, paired by query.

Two systems on one dataset share their resamples, so they can be compared query by query.
"""

from collections.abc import Mapping, Sequence

from toolscout.evaluate.quality import METRICS, Estimate, Quality, Resampled, estimate_means
from toolscout.schemas import Json

Leads = Mapping[str, Mapping[str, Estimate]]
"""By system: how far the first system of a run is ahead of it in each metric, macro."""


def estimate_differences(first: Sequence[Resampled], second: Sequence[Resampled]) -> list[Estimate]:
    """Return, for each metric, the macro mean of `first - second`, paired by query.

    Both must have drawn the same queries.
    """
    return estimate_means(
        [
            Resampled(one.values - other.values, one.means - other.means)
            for one, other in zip(first, second, strict=True)
        ]
    )


def compute_leads(quality: Quality) -> Leads:
    """Return how far the first system of a run is ahead of each other one."""
    first, *others = quality.macro
    found: dict[str, dict[str, Estimate]] = {}
    for other in others:
        lead = estimate_differences(quality.macro[first].resampled, quality.macro[other].resampled)
        found[other] = dict(zip(METRICS, lead, strict=True))
    return found


def json_from_leads(leads: Leads) -> Json:
    """Return the leads as JSON."""
    return {
        system: {metric: estimate.to_json() for metric, estimate in lead.items()}
        for system, lead in leads.items()
    }
