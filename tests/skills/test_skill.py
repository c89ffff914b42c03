"""Folders of skills: what is read, what is refused, and what a session makes of it."""

import base64
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout import Scout
from toolscout.errors import UnknownFile
from toolscout.skills import SkillFolder, SkillProblem
from toolscout.skills.skill import (
    FILES_LIMIT,
    FILES_NAMED,
    find_entry_problem,
    find_file,
    list_files,
)
from toolscout.tools import Effect

HEAD = "---\nname: {name}\ndescription: {text}\n---\n\n"


def write(folder: Path, name: str, text: str = "Fill in PDF forms.", **files: str) -> Path:
    """Write a skill; `a__b_md` becomes the file `a/b.md`."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    head = HEAD.format(name=name.rpartition("/")[2], text=text)
    (place / "SKILL.md").write_text(f"{head}# Steps\nBegin.\n", encoding="utf-8")
    for key, content in files.items():
        file = place / key.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return place


def problem_of(folder: Path, name: str) -> SkillProblem:
    """Return the only problem of a skill."""
    (found,) = (one for one in SkillFolder(folder).problems if one.name == name)
    return found


def names_of(folder: SkillFolder) -> list[str]:
    return sorted(tool.name for tool in folder.tools)


def test_a_session_finds_describes_and_reads_the_skills_of_a_folder(tmp_path: Path):
    write(tmp_path, "pdf", notes_md="Ask for the name first.")
    write(tmp_path, "tea", "Brew black and green tea.")
    session = Scout({"skills": SkillFolder(tmp_path).tools}).session("a")

    found = session.search("complete a form")
    described = session.describe(["skills__pdf"])
    body = session.call_sync("skills__pdf")
    notes = session.call_sync("skills__pdf", {"file": "notes.md"})

    assert found.hits[0].tool.name == "skills__pdf"
    assert found.hits[0].tool.kind == "skill"
    assert found.hits[0].tool.effect is Effect.READ
    assert "notes.md" in described.text
    assert "# Steps" in body.text
    assert "description:" not in body.text
    assert "'skills'" in body.text
    assert "Ask for the name first." in notes.text


def test_only_skills_are_found_with_a_filter(tmp_path: Path):
    def fill_form() -> None:
        """Fill in PDF forms."""

    write(tmp_path, "pdf")
    scout = Scout({"tools": [fill_form], "skills": SkillFolder(tmp_path).tools})

    hits = scout.index.search("fill in forms kind:skill")

    assert [hit.tool.name for hit in hits] == ["skills__pdf"]


def test_a_long_file_is_cut_and_kept_under_a_handle(tmp_path: Path):
    write(tmp_path, "pdf", long_md="A line about forms.\n" * 2_000)
    session = Scout({"skills": SkillFolder(tmp_path).tools}).session("a")
    session.search("select:skills__pdf")

    reply = session.call_sync("skills__pdf", {"file": "long.md"})

    handle = reply.details["handle"]
    assert handle
    assert "A line" in session.call_sync(handle, {"start": 30_000}).text


def test_a_script_is_read_and_never_run(tmp_path: Path):
    mark = tmp_path / "mark"
    place = write(tmp_path, "pdf", run_py=f"open({str(mark)!r}, 'w')")
    (place / "run.py").chmod(0o755)
    session = Scout({"skills": SkillFolder(tmp_path).tools}).session("a")
    session.search("select:skills__pdf")

    reply = session.call_sync("skills__pdf", {"file": "run.py"})

    assert "open(" in reply.text
    assert not mark.exists()


def test_a_file_that_is_not_text_is_passed_on_as_it_is(tmp_path: Path):
    (write(tmp_path, "pdf") / "logo.png").write_bytes(b"\x89PNG\xff\xfe")
    session = Scout({"skills": SkillFolder(tmp_path).tools}).session("a")
    session.search("select:skills__pdf")

    reply = session.call_sync("skills__pdf", {"file": "logo.png"})

    assert reply.blocks[0]["resource"]["mimeType"] == "image/png"
    assert base64.b64decode(reply.blocks[0]["resource"]["blob"]) == b"\x89PNG\xff\xfe"


def test_skills_may_be_in_folders_of_folders(tmp_path: Path):
    write(tmp_path, "team/billing/refunds", "Pay money back.")
    write(tmp_path, "team/support/refunds", "Answer questions on refunds.")
    folder = SkillFolder(tmp_path)

    assert [skill.path for skill in folder.skills] == [
        "team/billing/refunds",
        "team/support/refunds",
    ]
    assert names_of(folder) == ["skills__refunds", "skills__team_support_refunds"]


def test_a_skill_in_a_skill_is_part_of_it(tmp_path: Path):
    write(tmp_path, "outer")
    write(tmp_path, "outer/inner")
    (skill,) = SkillFolder(tmp_path).skills

    assert [path for path, _, _ in skill.files] == ["SKILL.md", "inner/SKILL.md"]


def test_skills_of_two_folders_with_one_place_are_both_there(tmp_path: Path):
    write(tmp_path / "a" / "skills", "pdf", "Fill in forms.")
    write(tmp_path / ".b" / "skills", "pdf", "Merge documents.")
    folder = SkillFolder(tmp_path / "a" / "skills", tmp_path / ".b" / "skills")

    assert [skill.path for skill in folder.skills] == ["pdf", "b/pdf"]
    assert len(names_of(folder)) == 2
    assert [problem.code for problem in folder.problems] == ["skill-twice"]


def test_a_folder_named_twice_has_its_skills_once(tmp_path: Path):
    write(tmp_path, "team/pdf")

    assert names_of(SkillFolder(tmp_path, tmp_path / "team")) == ["skills__pdf"]


def test_a_missing_folder_is_a_problem_unless_it_is_optional(tmp_path: Path):
    missing = tmp_path / "missing"

    assert [one.code for one in SkillFolder(missing).problems] == ["skill-folder"]
    assert SkillFolder(optional=[missing]).problems == ()


def test_a_skill_that_is_for_people_is_not_offered_to_models(tmp_path: Path):
    place = write(tmp_path, "deploy")
    text = (place / "SKILL.md").read_text()
    (place / "SKILL.md").write_text(
        text.replace("---\n\n", "disable-model-invocation: true\n---\n")
    )

    assert SkillFolder(tmp_path).tools == []


# Broken skills.

BROKEN = {
    "no frontmatter": ("# Steps\n", "skill-frontmatter", "has no frontmatter"),
    "not closed": ("---\nname: bad\ndescription: x\n", "skill-frontmatter", "no frontmatter"),
    "a colon": ("---\nname: bad\ndescription: Use when: x\n---\n", "skill-frontmatter", "line 3"),
    "a list": ("---\n- name\n---\n", "skill-frontmatter", "not a list of names"),
    "keys of numbers": ("---\n1: a\n---\n", "skill-frontmatter", "names and values"),
    "an alias of itself": ("---\na: &a [*a]\n---\n", "skill-frontmatter", "nested too deep"),
    "no description": ("---\nname: bad\n---\n", "skill-description", "no description"),
    "an empty description": ("---\nname: bad\ndescription: ' '\n---\n", "skill-description", ""),
    "a tag of Python": (
        "---\nname: !!python/object/apply:os.system ['true']\n---\n",
        "skill-frontmatter",
        "not YAML",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_skill_says_what_is_wrong_and_costs_no_other(tmp_path: Path, case: str):
    text, code, said = BROKEN[case]
    write(tmp_path, "good")
    write(tmp_path, "bad")
    (tmp_path / "bad" / "SKILL.md").write_text(text)
    problem = problem_of(tmp_path, "bad")

    assert names_of(SkillFolder(tmp_path)) == ["skills__good"]
    assert (problem.code, problem.is_fatal) == (code, True)
    assert said in problem.message
    assert problem.remedy


def test_a_frontmatter_that_repeats_itself_a_billion_times_is_refused(tmp_path: Path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    write(tmp_path, "bad")
    (tmp_path / "bad" / "SKILL.md").write_text("\n".join(["---", *lines, "---", ""]))

    assert problem_of(tmp_path, "bad").code == "skill-frontmatter"


def test_a_file_that_is_not_utf_8_is_no_skill(tmp_path: Path):
    (write(tmp_path, "bad") / "SKILL.md").write_bytes(b"---\nname: \xff\n---\n")

    assert problem_of(tmp_path, "bad").code == "skill-unreadable"


def test_a_skill_with_too_many_files_or_bytes_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = write(tmp_path, "many")
    for number in range(FILES_LIMIT):
        (place / f"{number}.md").touch()
    monkeypatch.setattr("toolscout.skills.skill.BYTES_LIMIT", 500)
    write(tmp_path, "long", long_md="x" * 600)
    folder = SkillFolder(tmp_path)

    assert folder.skills == ()
    assert [problem.code for problem in folder.problems] == ["skill-size", "skill-size"]


def test_names_that_the_format_does_not_allow_are_used_and_reported(tmp_path: Path):
    place = write(tmp_path, "Tea_Time", "Brew tea.")
    folder = SkillFolder(tmp_path)
    (entry,) = (skill.to_entry() for skill in folder.skills)

    assert names_of(folder) == ["skills__Tea_Time"]
    assert [(one.code, one.is_fatal) for one in folder.problems] == [("skill-name", False)]
    assert find_entry_problem(entry)
    assert not find_entry_problem(entry, any_name=True)

    (place / "SKILL.md").write_text("---\nname: tea\ndescription: Brew tea.\n---\n")
    assert "but its folder is" in problem_of(tmp_path, "Tea_Time").message


# Folders that want more than they may have.

needs_links = pytest.mark.skipif(sys.platform == "win32", reason="links need privileges there")


@needs_links
def test_links_that_lead_out_are_not_followed(tmp_path: Path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    outside = write(tmp_path / "elsewhere", "outside")
    skills = tmp_path / "skills"
    place = write(skills, "pdf", real_md="Real.")
    (place / "secret.md").symlink_to(secret)
    (place / "folder").symlink_to(tmp_path)
    (place / "inside.md").symlink_to(place / "real.md")
    (skills / "linked").symlink_to(outside)
    folder = SkillFolder(skills)
    (skill,) = folder.skills

    assert [path for path, _, _ in skill.files] == ["SKILL.md", "inside.md", "real.md"]
    assert {problem.code for problem in folder.problems} == {"skill-link"}


@needs_links
def test_a_file_that_becomes_a_link_after_it_was_listed_is_not_read(tmp_path: Path):
    secret = tmp_path / "secret.txt"
    secret.write_text("Ask for the name first.")
    place = write(tmp_path / "skills", "pdf", notes_md="Ask for the name first.")
    folder = SkillFolder(tmp_path / "skills")
    session = Scout({"skills": folder.tools}).session("a")
    session.search("select:skills__pdf")
    (place / "notes.md").unlink()
    (place / "notes.md").symlink_to(secret)

    reply = session.call_sync("skills__pdf", {"file": "notes.md"})

    # Even with the same content: the way to it counts.
    assert reply.code == "skill_changed"


@needs_links
def test_a_pipe_does_not_stop_anybody(tmp_path: Path):
    place = write(tmp_path, "pdf", notes_md="Notes.")
    os.mkfifo(place / "pipe.md")
    folder = SkillFolder(tmp_path)
    (place / "notes.md").unlink()
    os.mkfifo(place / "notes.md")

    assert folder.read("skill://pdf/pipe.md") is None
    assert folder.read("skill://pdf/notes.md") is None


def test_hidden_files_are_not_part_of_a_skill(tmp_path: Path):
    place = write(tmp_path, "pdf")
    (place / ".env").write_text("KEY=secret")
    (place / ".git").mkdir()
    (place / ".git" / "config").write_text("x")
    (skill,) = SkillFolder(tmp_path).skills

    assert [path for path, _, _ in skill.files] == ["SKILL.md"]


@given(asked=st.text(alphabet="./\\ab~%2eSKILL.md\0", max_size=30))
def test_no_path_leads_to_anything_that_is_not_listed(
    asked: str, tmp_path_factory: pytest.TempPathFactory
):
    folder = tmp_path_factory.getbasetemp() / "listed"
    write(folder, "pdf", **{f"f{n}_md": "x" for n in range(FILES_NAMED + 5)})
    (tool,) = SkillFolder(folder).tools
    known = set(list_files(tool.extras["skill"]).values())

    try:
        uri, listed = find_file(tool, {"file": asked})
    except UnknownFile:
        return

    assert uri in known or (not uri and listed)


def test_a_model_that_asks_for_a_missing_file_reads_near_names(tmp_path: Path):
    write(tmp_path, "pdf", **{f"part{n}_md": "x" for n in range(FILES_NAMED + 5)})
    session = Scout({"skills": SkillFolder(tmp_path).tools}).session("a")
    session.search("select:skills__pdf")

    missing = session.call_sync("skills__pdf", {"file": "../part1.md"})
    listed = session.call_sync("skills__pdf", {"file": "."})

    assert missing.code == "unknown_file"
    assert "part1.md" in missing.text
    assert "part44.md" in listed.text


# Changes.


def test_a_scan_reads_only_what_has_changed(tmp_path: Path):
    place = write(tmp_path, "pdf", notes_md="Notes.")
    write(tmp_path, "tea")
    folder = SkillFolder(tmp_path)
    before = folder.skills

    assert not folder.scan()
    assert all(map(lambda a, b: a is b, folder.skills, before))

    (place / "notes.md").write_text("Other notes.")
    assert folder.scan()
    assert folder.skills[0] != before[0]
    assert folder.skills[1] is before[1]


def test_a_changed_file_is_refused_until_the_catalogue_has_it(tmp_path: Path):
    place = write(tmp_path, "pdf", notes_md="Notes.")
    folder = SkillFolder(tmp_path)
    scout = Scout({"skills": folder.tools})
    session = scout.session("a")
    session.search("select:skills__pdf")
    (place / "notes.md").write_text("Other notes.")

    refused = session.call_sync("skills__pdf", {"file": "notes.md"})
    assert folder.scan()
    scout.catalog.replace("skills", folder.tools)
    read = session.call_sync("skills__pdf", {"file": "notes.md"})

    assert refused.code == "skill_changed"
    assert "Other notes." in read.text
