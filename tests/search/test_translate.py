import string
from collections import Counter
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import LONG, texts
from toolscout.catalog import Catalog
from toolscout.encoders.encoder import CallableEncoder
from toolscout.search.index import EncoderChoice, Index
from toolscout.search.text import STOP_WORDS, fold
from toolscout.search.translate import GAP, LANGUAGES, LATIN, Lexicon
from toolscout.tools import Tool

LEXICON = Lexicon.load()
FALSE_FRIENDS = (
    "die pages son gift chat sale once come rate brief bad fast art rat tag hell hut kind land "
    "listen quite red meta actual agenda lager male essen china mesa lee cafe film location "
    "resume programmer modifier plane stand mess llama handy hole lies important restaurant "
    "todos midi trier quito allen"
)
TOLD_BY_ACCENTS = {
    "de": "grosse grossen zahl zahle zahlen zahlt",
    "fr": "chiffre chiffres compte comptes livre livres parametre parametres sauvegarde "
    "sauvegardes",
    "es": "publica publicas publico",
}


def always(_word: str) -> bool:
    return True


def never(_word: str) -> bool:
    return False


def rows() -> list[list[str]]:
    file = resources.files("toolscout.search") / "translations.tsv"
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines]


def forms(language: str) -> list[tuple[str, str]]:
    at = 1 + LANGUAGES.index(language)
    return [(row[0], form) for row in rows()[1:] for form in row[at].split("|") if form]


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("明天的天气预报", {"明天": "tomorrow", "天气": "weather", "预报": "forecast"}),
        ("刪除資料夾", {"刪除": "delete", "資料夾": "folder"}),
        ("会議をキャンセルして", {"会議": "meeting", "キャンセル": "cancel"}),
        ("고객에게 청구서를 보내줘", {"고객": "customer", "청구서": "invoice", "보내": "send"}),
        ("Lösche die Rechnung!", {"losche": "delete", "rechnung": "invoice"}),
        ("Supprime le fichier", {"supprime": "delete", "fichier": "file"}),
        ("ENVÍA un correo", {"envia": "send", "correo": "email"}),
    ],
)
def test_words_of_six_languages_are_read_in_the_order_of_the_text(
    text: str, english: dict[str, str]
):
    found = LEXICON.find_foreign(text, always)

    assert list(found.items()) == list(english.items())


def test_the_longest_form_wins_in_scripts_without_blanks():
    assert LEXICON.find_foreign("文件", always) == {"文件": "file"}
    assert LEXICON.find_foreign("文件夹", always) == {"文件夹": "folder"}
    assert LEXICON.find_foreign("电子邮件", always) == {"电子邮件": "email"}


def test_kana_in_a_text_make_its_characters_japanese():
    assert LEXICON.find_foreign("文章", always) == {"文章": "article"}
    assert LEXICON.find_foreign("文章を", always) == {"文章": "sentence"}


def test_a_word_in_katakana_is_known_from_its_beginning_or_not_at_all():
    assert LEXICON.find_foreign("ライト", always) == {"ライト": "light"}
    assert LEXICON.find_foreign("ハイライト", always) == {}
    assert LEXICON.find_foreign("バス", always) == {"バス": "bus"}
    assert LEXICON.find_foreign("バスケット", always) == {}


def test_a_korean_stem_is_the_beginning_of_a_word():
    assert LEXICON.find_foreign("회의일정을", always) == {"회의": "meeting", "일정": "schedule"}
    assert LEXICON.find_foreign("재회의", always) == {}


def test_a_korean_stem_of_one_syllable_needs_the_end_of_the_word():
    assert LEXICON.find_foreign("책을 방", always) == {"책": "books", "방": "room"}
    assert LEXICON.find_foreign("책상 방송", always) == {}


def test_a_korean_form_may_have_a_blank():
    assert LEXICON.find_foreign("다음 주 날씨", always) == {
        "다음 주": "next week",
        "날씨": "weather",
    }


@pytest.mark.parametrize("text", ["Löschen", "löschen", "LÖSCHEN", "loschen", "loeschen"])
def test_case_accents_and_dots_written_as_e_make_no_difference(text: str):
    assert list(LEXICON.find_foreign(text, always).values()) == ["delete"]


def test_written_accents_distinguish_words():
    assert LEXICON.find_foreign("Zähle", always) == {"zahle": "count"}
    assert LEXICON.find_foreign("Zahle", always) == {"zahle": "pay"}


@pytest.mark.parametrize(
    ("word", "english"),
    [
        ("Kalendereintrag", "calendar entry"),
        ("Rechnungsnummer", "invoice number"),
        ("Kundenliste", "customer list"),
        ("Passwortaenderung", "password change"),
        ("Ticketpreise", "ticket price"),
        ("Terminserver", "appointment event server"),
    ],
)
def test_a_german_compound_is_read_as_its_two_parts(word: str, english: str):
    assert list(LEXICON.find_foreign(word, always).values()) == [english]


@pytest.mark.parametrize(
    "word", ["kindergarten", "timetable", "userfile", "rechnungsxyz", "eintrags"]
)
def test_a_word_that_is_no_german_compound_is_left(word: str):
    assert LEXICON.find_foreign(word, always) == {}


def test_a_separated_verb_is_read_with_its_part():
    text = "Lade bitte die Rechnung hoch"

    assert LEXICON.find_foreign(text, always) == {"lade … hoch": "upload", "rechnung": "invoice"}
    assert LEXICON.translate(text, always) == "upload invoice"


def test_the_part_of_a_verb_is_not_looked_for_in_the_next_sentence():
    found = LEXICON.find_foreign("Lade die Datei. Das Wetter ist hoch", always)

    assert "lade … hoch" not in found
    assert found["datei"] == "file"


def test_a_phrase_of_several_words_is_one_part():
    assert LEXICON.find_foreign("le mot de passe", always) == {"mot de passe": "password"}
    assert LEXICON.find_foreign("mon rendez-vous", always) == {"rendez vous": "appointment event"}


def test_a_text_is_read_in_the_language_that_has_most_of_its_words():
    assert LEXICON.find_foreign("las facturas del mes", always)["mes"] == "month"
    assert "mes" not in LEXICON.find_foreign("supprime mes factures", always)


def test_many_letters_read_in_one_language_outweigh_few_in_another():
    assert LEXICON.find_foreign("lee la carta", always) == {"lee la": "read"}


def test_a_phrase_of_known_words_is_left():
    text = "xyzzy mot de passe"

    assert LEXICON.find_foreign(text, lambda word: word == "xyzzy") == {}
    assert LEXICON.find_foreign(text, lambda word: word == "passe") == {"mot de passe": "password"}


def test_a_latin_word_that_some_tool_has_is_left():
    text = "Lösche die Rechnung"

    assert LEXICON.find_foreign(text, lambda word: word != "rechnung") == {"losche": "delete"}
    assert LEXICON.translate(text, lambda word: word != "rechnung") == "delete Rechnung"


def test_tools_are_asked_about_folded_words_once_each():
    asked: list[str] = []

    LEXICON.find_foreign("Lösche LÖSCHE die Straße", lambda word: bool(asked.append(word)) or True)

    assert asked == ["losche", "die", "strasse"]


def test_other_scripts_are_read_whatever_tools_have():
    assert LEXICON.find_foreign("删除文件", never) == {"删除": "delete", "文件": "file"}


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("在GitHub上创建issue", "GitHub create issue"),
        ("把这个文件发给Anna。谢谢", "file send Anna。"),
        ("PDFに変換して", "PDF convert"),
        ("Slack 메시지 보내줘", "Slack message send"),
        ("Schicke Anna die Rechnung 4711", "send Anna invoice 4711"),
        ("ﾒｯｾｰｼﾞ", "message"),
        ("饕餮", ""),
    ],
)
def test_unread_words_stay_in_latin_script_and_go_in_others(text: str, english: str):
    assert LEXICON.translate(text, always) == english


@pytest.mark.parametrize("text", ["Create  an issue,\n please", "", "  ", "naïve café", "пришли"])
def test_a_text_that_needs_no_translation_comes_back_as_it_is(text: str):
    assert LEXICON.translate(text, never) == text


@pytest.mark.parametrize("word", FALSE_FRIENDS.split())
def test_a_word_that_english_has_in_another_meaning_is_left(word: str):
    assert LEXICON.find_foreign(word, always) == {}


def test_function_words_alone_change_nothing():
    assert LEXICON.translate("der die das", always) == "der die das"


@given(st.text(alphabet=string.printable, max_size=200))
def test_an_ascii_text_of_known_words_is_never_changed(text: str):
    assert LEXICON.find_foreign(text, never) == {}
    assert LEXICON.translate(text, never) == text


@given(texts() | st.text(alphabet="lade hoch 天气フライト새회의é…\ud800\u0301", max_size=60))
def test_any_text_is_read_the_same_way_twice(text: str):
    found = LEXICON.find_foreign(text, always)

    assert LEXICON.find_foreign(text, always) == found
    assert all(found.values())
    assert isinstance(LEXICON.translate(text, always), str)


@pytest.mark.parametrize(
    "text",
    [
        *LONG,
        *("lade " * 4_000, "ladehoch" * 2_500, "kalender" * 2_500, "mot de " * 3_000),
        *(
            "フ" * 20_000,
            "새 " * 10_000,
            "가" * 20_000,
            "\ufdfa" * 5_000,
            "é" * 20_000,
            "…" * 20_000,
        ),
    ],
)
def test_long_texts_are_read(text: str):
    """Time that grew with the square of the length would run into the limit for a test."""
    assert len(LEXICON.find_foreign(text, always)) < 100
    LEXICON.translate(text, always)


def test_the_lexicon_is_read_once():
    assert Lexicon.load() is LEXICON


def test_every_line_has_a_cell_for_each_language():
    listed = rows()

    assert listed[0] == ["english", *LANGUAGES]
    assert {len(row) for row in listed} == {1 + len(LANGUAGES)}
    assert len(listed) > 450


def test_every_concept_has_words_in_at_least_five_languages():
    thin = [row[0] for row in rows()[1:] if sum(map(bool, row[1:])) < 5]

    assert thin == []


def test_english_cells_are_plain_words_and_differ():
    cells = [row[0] for row in rows()[1:]]

    assert [cell for cell in cells if cell != cell.casefold() or not cell.isascii()] == []
    assert [cell for cell, count in Counter(cells).items() if count > 1] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_form_belongs_to_one_concept_of_its_language(language: str):
    counts = Counter(form.casefold() for _, form in forms(language))

    assert [form for form, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("language", LATIN)
def test_forms_that_differ_in_accents_alone_mean_the_same_or_are_listed(language: str):
    meant: dict[str, set[str]] = {}
    for english, form in forms(language):
        meant.setdefault(fold(form.casefold()), set()).add(english)
    several = sorted(form for form, concepts in meant.items() if len(concepts) > 1)

    assert several == TOLD_BY_ACCENTS[language].split()


@pytest.mark.parametrize("language", LATIN)
def test_no_form_is_an_english_stop_word_or_a_word_of_another_concept(language: str):
    owners: dict[str, set[str]] = {}
    for row in rows()[1:]:
        for word in row[0].split():
            owners.setdefault(word, set()).add(row[0])
    folded = [(english, fold(form.casefold())) for english, form in forms(language)]

    assert [form for _, form in folded if form in STOP_WORDS] == []
    assert [form for english, form in folded if english not in owners.get(form, {english})] == []


@pytest.mark.parametrize("language", LATIN)
def test_a_gap_separates_two_words(language: str):
    gaps = [form.split() for _, form in forms(language) if GAP in form]

    assert [parts for parts in gaps if len(parts) != 3 or parts[1] != GAP] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_form_is_found_as_it_is_written(language: str):
    lost = [
        form
        for english, form in forms(language)
        if english and GAP not in form and not LEXICON.find_foreign(form, always)
    ]

    assert lost == []


def catalog_of(*tools: tuple[str, str]) -> Catalog:
    return Catalog({"work": [Tool.define(name, server="work", description=d) for name, d in tools]})


ENGLISH = catalog_of(
    ("delete_event", "Delete an event from the calendar."),
    ("send_invoice", "Send an invoice to a customer by email."),
    ("get_weather", "Get the weather forecast for a city."),
)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("lösche den Termin im Kalender", "work__delete_event"),
        ("envía la factura al cliente", "work__send_invoice"),
        ("quel temps fera-t-il demain", "work__get_weather"),
        ("明天的天气怎么样", "work__get_weather"),
        ("請求書を顧客に送って", "work__send_invoice"),
        ("오늘 날씨 알려줘", "work__get_weather"),
    ],
)
@pytest.mark.parametrize("encoder", ["static", None], ids=["default", "words alone"])
def test_a_request_in_another_language_finds_an_english_tool_and_says_how_it_was_read(
    query: str, name: str, encoder: EncoderChoice
):
    result = Index(ENGLISH, encoder=encoder).search(query)

    assert result[0].tool.name == name
    assert result.corrected


@pytest.mark.parametrize(
    "query",
    ["what is the pollution in my town", "I need help with the reservations of a friend"],
)
def test_an_english_request_is_not_read_as_another_language(query: str):
    assert Index(ENGLISH).search(query).corrected == {}


def test_tools_described_in_the_language_of_a_request_are_found_as_it_is_written():
    catalog = catalog_of(("a", "查询城市的天气预报。"), ("weather", "Weather."))

    result = Index(catalog).search("查询天气")

    assert result[0].tool.name == "work__a"
    assert result.corrected == {}


def test_an_encoder_that_may_know_the_language_gets_the_request_as_it_is():
    seen: list[str] = []

    def encode(texts: list[str]) -> list[list[float]]:
        seen.extend(texts)
        return [[1.0, 0.0] for _ in texts]

    result = Index(ENGLISH, encoder=CallableEncoder(encode, name="own")).search("天气")

    assert result.corrected == {}
    assert "天气" in seen
