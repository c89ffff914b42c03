"""Five hundred skills: how well they are found, and that no prompt grows with them."""

import pytest

from benchmarks.skills import measure_prompts, measure_skills, write_skills
from toolscout import Settings

pytestmark = pytest.mark.timeout(300)


def test_skills_are_found_as_well_as_before(tmp_path_factory: pytest.TempPathFactory):
    folder = write_skills(tmp_path_factory.mktemp("skills"))
    assert folder.problems == ()

    users, agents, users_hinted, agents_hinted = measure_skills(folder.tools)

    assert agents.ndcg >= 0.85
    # What users say about their situation often has no word of the skill that helps.
    assert users.ndcg >= 0.38
    assert users_hinted.ndcg >= 0.8
    assert agents_hinted.ndcg >= 0.95


@pytest.mark.slow
def test_with_hints_the_transformer_finds_skills_by_what_users_say(
    tmp_path_factory: pytest.TempPathFactory,
):
    folder = write_skills(tmp_path_factory.mktemp("skills"))

    _, _, users, _ = measure_skills(folder.tools, encoder="onnx")

    assert users.ndcg >= 0.85


def test_a_prompt_does_not_grow_with_the_number_of_skills():
    # With fewer of them, the list of names in the description of `tool_search` is not full yet.
    few, many = measure_prompts((250, 500))

    assert many.skills == 500
    assert many.announced > 1.8 * few.announced
    assert abs(many.toolscout - few.toolscout) < 100
    assert many.toolscout < 1_000 + Settings().listing_tokens
