import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.search.shard import Vocabulary
from toolscout.search.text import (
    CLAUSE_LIMIT,
    STOP_WORDS,
    Field,
    build_encoding_text,
    drop_stop_words,
    fold,
    join_name_words,
    list_fields,
    name_values,
    remove_values,
    split_clauses,
    split_words,
    stem,
)
from toolscout.tools import Tool

LONG = 100_000


@pytest.mark.requirement("R13")
@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("plain ASCII", "plain ASCII"),
        ("Ünïcödé", "Unicode"),
        ("\uff27\uff49\uff54\uff28\uff55\uff42\uff11\uff12", "GitHub12"),
        ("ﬁle", "file"),
        ("x²", "x2"),
        ("İstanbul", "Istanbul"),
        ("e\u0301", "e"),
        ("\u0301", ""),
    ],
)
def test_folding_drops_accents_and_compatibility_forms_but_keeps_case(text: str, folded: str):
    """R13"""
    assert fold(text) == folded


@pytest.mark.requirement("R13")
def test_folding_leaves_hangul_syllables_whole():
    """R13"""
    assert fold("한국어") == "한국어"


@pytest.mark.requirement("R13")
@pytest.mark.parametrize("text", ["STRASSE", "Straße", "strasse", "STRAẞE"])
def test_words_are_fully_case_folded(text: str):
    """R13"""
    assert split_words(text) == ["strasse"]


@pytest.mark.requirement("R14")
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("createIssue", ["create", "issue"]),
        ("CreateIssue", ["create", "issue"]),
        ("MCPTool", ["mcp", "tool"]),
        ("getHTTPResponse", ["get", "http", "response"]),
        ("oauth2Token", ["oauth", "2", "token"]),
        ("base64", ["base", "64"]),
        ("2fa", ["2", "fa"]),
        ("create_issue", ["create", "issue"]),
        ("__create__issue__", ["create", "issue"]),
        ("create-issue", ["create", "issue"]),
        ("repos.create", ["repos", "create"]),
        ("repos/create", ["repos", "create"]),
        ("github__createPullRequest", ["github", "create", "pull", "request"]),
        ("ALLCAPS", ["allcaps"]),
    ],
)
def test_names_split_where_their_words_meet(name: str, parts: list[str]):
    """R14"""
    assert split_words(name) == parts


@pytest.mark.requirement("R14")
def test_neighbouring_words_of_a_name_are_also_kept_as_one():
    """R14"""
    assert join_name_words("create_issue") == ["create" + stem("issue")]
    assert join_name_words("list_pull_requests") == [
        "listpull",
        "pull" + stem("requests"),
        "listpull" + stem("requests"),
    ]


def test_a_name_of_one_word_has_nothing_to_join():
    assert join_name_words("search") == []
    assert join_name_words("") == []


@pytest.mark.requirement("R15")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("issue", "issues"),
        ("file", "files"),
        ("repository", "repositories"),
        ("message", "messages"),
        ("search", "searching"),
        ("branch", "branches"),
    ],
)
def test_forms_of_one_word_have_one_stem(one: str, other: str):
    """R15"""
    assert stem(one) == stem(other)


def test_words_of_other_scripts_are_their_own_stems():
    assert [stem(word) for word in ("文件", "файл", "c++")] == ["文件", "файл", "c++"]


@pytest.mark.requirement("R20")
def test_stop_words_among_other_words_are_left_out():
    """R20"""
    assert drop_stop_words(split_words("please send it to the channel")) == ["send", "channel"]


@pytest.mark.requirement("R20")
@pytest.mark.parametrize("text", ["do it", "who am I", "The", "about"])
def test_stop_words_are_kept_when_nothing_else_remains(text: str):
    """R20"""
    assert drop_stop_words(split_words(text)) == split_words(text) != []


def test_stop_words_are_written_as_words_come_out():
    assert [word for word in STOP_WORDS if split_words(word) != [word]] == []


@pytest.mark.requirement("R16")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("文件", ["文件"]),
        ("搜索文件", ["搜索", "索文", "文件"]),
        ("查", ["查"]),
        ("ファイル", ["ファ", "ァイ", "イル"]),
        ("ﾌｧｲﾙ", ["ファ", "ァイ", "イル"]),
        ("けす", ["けす"]),
        ("파일검색", ["파일", "일검", "검색"]),
        ("파일 검색", ["파일", "검색"]),
        ("GitHub搜索", ["git", "hub", "搜索"]),
        ("搜索GitHub", ["搜索", "git", "hub"]),
        ("用GitHub搜索", ["用", "git", "hub", "搜索"]),
        ("文件\uff0c搜索", ["文件", "搜索"]),
    ],
)
def test_scripts_without_blanks_give_bigrams(text: str, found: list[str]):
    """R16"""
    assert split_words(text) == found


@pytest.mark.requirement("R17")
@pytest.mark.parametrize("text", ["x", "é", "я", "査", "7"])
def test_a_single_character_is_a_word(text: str):
    """R17"""
    assert len(split_words(text)) == 1


@pytest.mark.requirement("R18")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("c++", ["c++"]),
        ("C#", ["c#"]),
        (".NET", [".net"]),
        ("add 17.5 and 24.30.", ["add", "17.5", "and", "24.30"]),
        ("version 1.2.3 of v2.0", ["version", "1", "2", "3", "of", "v", "2", "0"]),
        ("run C++, C# and .net code", ["run", "c++", "c#", "and", ".net", "code"]),
        ("compile_c++", ["compile", "c++"]),
        ("(c++)", ["c++"]),
        ("1+2", ["1", "2"]),
        ("#tag", ["tag"]),
        ("example.net", ["example", "net"]),
    ],
)
def test_names_that_hold_symbols_survive(text: str, found: list[str]):
    """R18"""
    assert split_words(text) == found


@pytest.mark.parametrize("text", ["", "   ", "!?…", "🙂", "\u0000", "___", "\ud800"])
def test_text_without_letters_or_digits_has_no_words(text: str):
    assert split_words(text) == []


@pytest.mark.requirement("R12")
@given(st.text())
def test_any_text_has_words_that_are_case_folded_and_not_empty(text: str):
    """R12"""
    assert all(word and word == word.casefold() for word in split_words(text))


@pytest.mark.requirement("R19")
@given(st.text())
def test_queries_and_documents_are_analysed_alike(text: str):
    """R19"""
    vocabulary = Vocabulary()
    document = [vocabulary.terms[number] for number in vocabulary.number_text(text)]

    assert document == [stem(word) for word in drop_stop_words(split_words(text))]


@pytest.mark.requirement("R19")
@given(st.text(), st.text())
def test_words_do_not_depend_on_the_words_around_them(one: str, other: str):
    """R19"""
    assert split_words(f"{one} {other}") == split_words(one) + split_words(other)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Open the file. Read its lines!", ["Open the file", "Read its lines!"]),
        ("find the user; send a mail", ["find the user", "send a mail"]),
        ("find the user and then send a mail", ["find the user", "send a mail"]),
        ("find the user, then send a mail", ["find the user", "send a mail"]),
        ("find the user AND send a mail", ["find the user", "send a mail"]),
        ("find the user\n\n send a mail", ["find the user", "send a mail"]),
        ("查找文件。发送邮件\uff01完成\uff1b", ["查找文件", "发送邮件", "完成"]),
        ("查找文件。发送邮件", ["查找文件", "发送邮件"]),
    ],
)
def test_a_request_is_taken_apart_where_its_parts_end(text: str, parts: list[str]):
    assert split_clauses(text) == parts


@pytest.mark.parametrize(
    "text",
    ["list pull requests", "open the file.", "Look up v1.2 docs", "one; two", "查找文件。", ""],
)
def test_a_request_of_one_part_is_given_as_it_is(text: str):
    assert split_clauses(text) == [text]


def test_a_long_request_has_no_more_parts_than_the_limit():
    text = ". ".join(f"do thing {number}" for number in range(40))

    assert split_clauses(text) == [f"do thing {number}" for number in range(CLAUSE_LIMIT)]
    assert CLAUSE_LIMIT == 8


@given(st.text())
def test_every_request_has_between_one_and_eight_parts(text: str):
    assert 1 <= len(split_clauses(text)) <= 8


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('post "good morning" to the channel', "post to the channel"),
        ("post “good morning” to the channel", "post to the channel"),
        ("post 'good morning' to the channel", "post to the channel"),
        ("don't post the users' names", "don't post the users' names"),
        ("pay 300.50 dollars", "pay dollars"),
        ("close issue #42 now", "close issue now"),
        ("open https://example.org/a?b=c now", "open now"),
        ("mail ann@example.org the report", "mail the report"),
        ("list pull requests", "list pull requests"),
    ],
)
def test_values_are_left_out_of_a_request(text: str, rest: str):
    assert remove_values(text) == rest


@pytest.mark.parametrize("text", ['"all of it"', "42", "ann@example.org", " 1 2 "])
def test_a_request_of_values_alone_stays(text: str):
    assert remove_values(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("summarise https://example.org/a.html?x=1 for me", "URL"),
        ("rename report.txt to report-final.PDF", "file"),
        ("open notes.md", "file"),
    ],
)
def test_addresses_and_file_names_say_what_they_are(text: str, words: str):
    assert words in name_values(text).split()
    assert [word for word in name_values(text).split() if word != words] == text.split()


@pytest.mark.parametrize(
    "text", ["what is new in Node.js", "ann@example.txt", "add 17.5 and 24.3", "e.g. this", "a.b"]
)
def test_other_text_with_dots_stays_as_it_is(text: str):
    assert name_values(text) == text


@given(st.text(min_size=1))
def test_leaving_values_out_never_leaves_nothing(text: str):
    assert remove_values(text)


@pytest.mark.requirement("R36")
@pytest.mark.timeout(60)  # linear work takes milliseconds, quadratic work a minute or more
@pytest.mark.parametrize(
    "unit", ["a", "A", "1", ".", "a-", "a.", "x://", " ", "'a", '"', "“", "a@", "and ", "搜", "c+"]
)
def test_hostile_text_takes_time_in_step_with_its_length(unit: str):
    """R36"""
    text = (unit * LONG)[:LONG]

    assert split_words(text) or unit in '. "“'
    assert split_clauses(text)
    assert remove_values(text)
    assert name_values(text)


@pytest.mark.requirement("R21")
@pytest.mark.requirement("R23")
@pytest.mark.requirement("R24")
def test_every_part_of_a_tool_has_its_own_field():
    """R21, R23, R24"""
    schema = {
        "type": "object",
        "properties": {
            "state": {"type": "string", "description": "Which ones", "enum": ["open", "closed"]}
        },
    }
    tool = Tool.define(
        "list_issues",
        server="github",
        title="Browse tickets",
        description="List issues.",
        input_schema=schema,
        hint="bugs",
        aliases=("issues",),
        tags=("tracker",),
    )

    assert dict(zip(Field, list_fields(tool), strict=True)) == {
        Field.NAME: "list_issues",
        Field.SERVER: "github",
        Field.DESCRIPTION: "List issues.",
        Field.PARAMETER: "state",
        Field.PARAMETER_DESCRIPTION: "Which ones",
        Field.ENUM: "open closed",
        Field.KEYWORDS: "issues tracker",
        Field.TITLE: "Browse tickets",
        Field.INSTRUCTIONS: "",
        Field.HINT: "bugs",
    }


@pytest.mark.requirement("R21")
@pytest.mark.parametrize("title", ["", "List Issues", "list-issues"])
def test_a_title_that_repeats_the_name_does_not_count_again(title: str):
    """R21"""
    tool = Tool.define("list_issues", server="github", title=title)

    assert list_fields(tool)[Field.TITLE] == ""


def test_encoders_see_a_tool_as_names_then_description_then_parameters():
    tool = Tool.define(
        "listIssues",
        server="github",
        description="Gives all tickets.",
        input_schema={"type": "object", "properties": {"repoName": {"type": "string"}}},
    )

    text = build_encoding_text(tool, list_fields(tool))

    assert text == "github list issues Gives all tickets. repo name"
