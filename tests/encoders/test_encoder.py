import importlib.util
import json
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pytest

from toolscout import encoders
from toolscout.catalog import Catalog
from toolscout.encoders import onnx
from toolscout.encoders.encoder import (
    TABLE_FILE,
    Blended,
    CallableEncoder,
    Encoder,
    EndpointEncoder,
    Floats,
    Kind,
    StaticEncoder,
    WordMemory,
    normalize_rows,
)
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.errors import InvalidEncoder, InvalidFile, MissingExtra, UsageError
from toolscout.scout import Scout
from toolscout.search.index import Index
from toolscout.settings import EncoderName, Settings
from toolscout.tools import Tool

Json = dict[str, Any]

KEY = "sk-very-secret"
WIDTHS = {"static": 256, "onnx": 384, "callable": 8, "endpoint": 8, "blended": 264, "own": 5}
SEND = Tool.define("send_mail", description="Send a message.")
TEXTS = [
    "create an issue",
    "x",
    "list all files of a folder and mail them to everybody who asked for them last week",
    "查找文件",
    "DROP TABLE tools; --",
]
HOSTILE = [
    "\0",
    "\ud800",
    "\uffff\ufeff\u202e",
    "🙂" * 300,
    "<s>[CLS]</s><unk>",
    "\"'\\\r\n\t",
    "a\u0300" * 2_000,
]


def letters(texts: list[str]) -> list[list[float]]:
    """Count the letters of each text in eight bins: vectors that anyone can make."""
    rows = [[0.0] * 8 for _ in texts]
    for row, text in zip(rows, texts, strict=True):
        for char in text:
            row[ord(char) % 8] += 1
    return rows


def embeddings(texts: list[str]) -> Json:
    """Answer like OpenAI, last text first: the index counts, not the order."""
    data = [{"index": i, "embedding": row} for i, row in enumerate(letters(texts))]
    return {"object": "list", "data": data[::-1]}


@dataclass
class Service:
    """A local HTTP service: what it answers, and what it was asked."""

    url: str = ""
    answer: Callable[[list[str]], Json | bytes] = embeddings
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    asked: list[list[str]] = field(default_factory=list[list[str]])
    paths: list[str] = field(default_factory=list[str])
    models: list[str] = field(default_factory=list[str])
    keys: list[str | None] = field(default_factory=list[str | None])


@contextmanager
def serving() -> Generator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service.keys.append(self.headers["Authorization"])
            self.send(b"{}")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.asked.append(body["input"])
            service.models.append(body["model"])
            service.paths.append(self.path)
            service.keys.append(self.headers["Authorization"])
            answer = service.answer(body["input"])
            self.send(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def send(self, body: bytes) -> None:
            self.send_response(service.status)
            for name, value in {"Content-Length": str(len(body)), **service.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Vowels(Encoder):
    """The least that an encoder of one's own needs."""

    name = "vowels-1"

    def encode(self, texts: Sequence[str], *, kind: str) -> Floats:
        rows = [[text.count(vowel) + 0.1 for vowel in "aeiou"] for text in texts]
        return normalize_rows(np.reshape(rows, (-1, 5)))


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def every_encoder() -> Iterator[dict[str, Encoder]]:
    static = StaticEncoder()
    by_letters = CallableEncoder(letters, name="letters")
    with serving() as running:
        yield {
            "static": static,
            "onnx": OnnxEncoder(),
            "callable": by_letters,
            "endpoint": EndpointEncoder(running.url, "letters"),
            "blended": Blended(static, by_letters),
            "own": Vowels(),
        }


@pytest.fixture(params=WIDTHS)
def which(request: pytest.FixtureRequest) -> str:
    return cast(str, request.param)


@pytest.fixture
def encoder(every_encoder: dict[str, Encoder], which: str) -> Encoder:
    return every_encoder[which]


@pytest.fixture
def width(which: str) -> int:
    return WIDTHS[which]


@pytest.fixture(params=get_args(Kind))
def kind(request: pytest.FixtureRequest) -> Kind:
    return cast(Kind, request.param)


def assert_vectors(vectors: Floats, count: int, width: int) -> None:
    assert vectors.shape == (count, width)
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(vectors, axis=1)
    assert (np.isclose(lengths, 1, atol=1e-5) | (lengths == 0)).all()


def test_every_text_gets_a_row_of_unit_length(encoder: Encoder, kind: Kind, width: int):
    assert_vectors(encoder.encode(TEXTS, kind=kind), len(TEXTS), width)


def test_encoding_twice_gives_the_same_bits(encoder: Encoder, kind: Kind):
    assert encoder.encode(TEXTS, kind=kind).tobytes() == encoder.encode(TEXTS, kind=kind).tobytes()


def test_a_text_has_the_same_vector_alone_and_among_others(encoder: Encoder, kind: Kind):
    texts = [f"{text} {number}" for number in range(40) for text in TEXTS]

    together = encoder.encode(texts, kind=kind)
    alone = np.concatenate([encoder.encode([text], kind=kind) for text in texts[:20]])

    assert together[:20] == pytest.approx(alone, abs=1e-4)


def test_no_texts_give_no_rows(encoder: Encoder, kind: Kind):
    assert len(encoder.encode([], kind=kind)) == 0


def test_an_empty_text_gets_a_row(encoder: Encoder, kind: Kind, width: int):
    assert_vectors(encoder.encode(["", "words"], kind=kind), 2, width)


def test_a_text_of_a_hundred_kilobytes_gets_a_row(encoder: Encoder, kind: Kind, width: int):
    assert_vectors(encoder.encode(["list files " * 10_000], kind=kind), 1, width)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_text_gets_a_row(encoder: Encoder, kind: Kind, width: int, text: str):
    assert_vectors(encoder.encode([text], kind=kind), 1, width)


def test_texts_may_come_as_any_sequence(encoder: Encoder, kind: Kind):
    assert (
        encoder.encode(tuple(TEXTS), kind=kind).tobytes()
        == encoder.encode(TEXTS, kind=kind).tobytes()
    )


def test_encoders_have_names_and_families(every_encoder: dict[str, Encoder]):
    names = [encoder.name for encoder in every_encoder.values()]
    families = {kind: encoder.family for kind, encoder in every_encoder.items()}

    assert all(names)
    assert len(set(names)) == len(names)
    assert families == {
        "static": "static",
        "onnx": "minilm",
        "callable": "sentence",
        "endpoint": "sentence",
        "blended": "static+sentence",
        "own": "sentence",
    }


def test_encoders_know_near_meanings(every_encoder: dict[str, Encoder]):
    texts = ["send an email to a colleague", "write a mail to a coworker", "resize a picture"]
    for kind in ("static", "onnx"):
        near, far = (
            every_encoder[kind].encode(texts, kind="tool")[1:]
            @ every_encoder[kind].encode(texts[:1], kind="tool")[0]
        )

        assert near > far


def test_static_batches_of_any_size_give_the_same_vectors(every_encoder: dict[str, Encoder]):
    texts = [f"tool number {number} lists files" for number in range(2_500)]

    together = every_encoder["static"].encode(texts, kind="tool")

    for number in (0, 127, 128, 1023, 1024, 2499):
        assert (
            together[number].tobytes()
            == every_encoder["static"].encode([texts[number]], kind="tool").tobytes()
        )


def test_only_static_vectors_serve_by_their_first_dimensions(every_encoder: dict[str, Encoder]):
    leading = {kind: encoder.leading for kind, encoder in every_encoder.items()}

    assert leading == {
        "static": 32,
        "onnx": 0,
        "callable": 0,
        "endpoint": 0,
        "blended": 0,
        "own": 0,
    }


def test_a_blend_has_the_weighted_mean_of_both_similarities():
    first = CallableEncoder(lambda texts: [[1.0, 0.0] for _ in texts], name="same")
    second = CallableEncoder(lambda texts: np.eye(len(texts)), name="different")

    rows = Blended(first, second, share=0.25).encode(["a", "b"], kind="tool")

    assert float(rows[0] @ rows[1]) == pytest.approx(0.75)


def test_a_blend_names_both_encoders_and_the_share():
    one, other = CallableEncoder(letters, name="one"), CallableEncoder(letters, name="other")

    names = {
        Blended(one, other).name,
        Blended(other, one).name,
        Blended(one, other, share=0.3).name,
    }

    assert len(names) == 3


def test_rows_of_zeros_stay_zeros():
    assert normalize_rows([[0, 0], [3, 4]]).tolist() == [[0, 0], [np.float32(0.6), np.float32(0.8)]]


@pytest.mark.parametrize(
    "answer",
    [
        [[1.0, 2.0]],
        [[1.0], [2.0], [3.0]],
        [1.0, 2.0],
        [[[1.0]], [[2.0]]],
        [[1.0, float("nan")], [1.0, 2.0]],
        [[1.0, float("inf")], [1.0, 2.0]],
        [[1.0, None], [1.0, 2.0]],
        [[1.0, 2.0], [1.0]],
        [["one", "two"], ["three", "four"]],
        [{}, {}],
        "vectors",
        None,
        {},
        [],
    ],
    ids=repr,
)
def test_answers_that_are_no_vectors_are_refused(answer: Any):
    encoder = CallableEncoder(lambda texts: answer, name="mine")

    with pytest.raises(InvalidEncoder, match="mine") as caught:
        encoder.encode(["a", "b"], kind="tool")

    assert caught.value.encoder == "mine"
    assert caught.value.remedy


def test_a_function_gets_a_list_of_texts():
    seen: list[list[str]] = []
    encoder = CallableEncoder(lambda texts: seen.append(texts) or letters(texts), name="mine")

    encoder.encode(("a", "b"), kind="tool")

    assert seen == [["a", "b"]]


def test_an_error_of_the_function_is_its_own():
    def fail(texts: list[str]) -> list[list[float]]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        CallableEncoder(fail, name="mine").encode(["a"], kind="tool")


@pytest.mark.parametrize("ending", ["", "/", "/embeddings", "/embeddings/"])
def test_the_endpoint_is_asked_with_model_and_key(service: Service, ending: str):
    EndpointEncoder(service.url + ending, "small", key=KEY).encode(["one", "two"], kind="tool")

    assert service.paths == ["/v1/embeddings"]
    assert service.models == ["small"]
    assert service.asked == [["one", "two"]]
    assert service.keys == [f"Bearer {KEY}"]


def test_without_a_key_none_is_sent(service: Service):
    EndpointEncoder(service.url, "small").encode(["one"], kind="tool")

    assert service.keys == [None]


def test_the_endpoint_is_asked_for_at_most_128_texts_at_once(service: Service):
    texts = [f"text {number}" for number in range(300)]

    vectors = EndpointEncoder(service.url, "small").encode(texts, kind="tool")

    assert [len(batch) for batch in service.asked] == [128, 128, 44]
    assert [text for batch in service.asked for text in batch] == texts
    assert vectors == pytest.approx(normalize_rows(letters(texts)))


def test_the_endpoint_never_gets_an_empty_text(service: Service):
    EndpointEncoder(service.url, "small").encode(["", "a"], kind="tool")

    assert service.asked == [[" ", "a"]]


def test_endpoints_of_different_address_or_model_have_different_names():
    names = {
        EndpointEncoder("http://a", "one").name,
        EndpointEncoder("http://b", "one").name,
        EndpointEncoder("http://a", "two").name,
    }

    assert len(names) == 3


@pytest.mark.parametrize("url", ["", "example.org/v1", "ftp://example.org", "file:///etc/passwd"])
def test_an_address_that_is_not_http_is_refused_at_once(url: str):
    with pytest.raises(InvalidEncoder, match="small") as caught:
        EndpointEncoder(url, "small", key=KEY)

    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>busy</html>",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"data": null}',
        b'{"data": {"index": 0}}',
        b'{"data": []}',
        b'{"data": ["a"]}',
        b'{"data": [{"index": 0}]}',
        b'{"data": [{"index": 0, "embedding": null}]}',
        b'{"data": [{"index": 0, "embedding": "AACAPw=="}]}',
        b'{"data": [{"index": 0, "embedding": []}, {"index": 1, "embedding": [1]}]}',
        b'{"data": [{"index": 0, "embedding": [NaN]}]}',
        b'{"error": "sk-very-secret is not a valid key"}',
        b"[" * 100_000,
    ],
    ids=lambda body: ascii(body[:60]),
)
def test_answers_of_another_shape_are_refused(service: Service, answer: bytes):
    service.answer = lambda texts: answer

    assert_refused(service.url)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 429, 500, 503])
def test_a_failing_service_is_reported_without_the_key(service: Service, status: int):
    service.status = status
    service.answer = lambda texts: KEY.encode()

    assert str(status) in assert_refused(service.url)


def test_an_answer_that_breaks_off_is_reported(service: Service):
    service.headers = {"Content-Length": "1000"}

    assert_refused(service.url)


def test_an_answer_that_is_not_http_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=speak_nonsense, args=(server,))
        thread.start()
        assert_refused(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_a_refused_connection_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert_refused(f"http://127.0.0.1:{port}")


def test_an_address_that_cannot_be_asked_is_reported():
    assert_refused("http://not a host/v1")


def test_a_key_that_cannot_be_sent_is_not_shown(service: Service):
    assert_refused(service.url, key=f"{KEY}\n{KEY}")


def test_the_key_does_not_follow_a_redirection_to_another_service(service: Service):
    with serving() as stranger:
        service.status = 302
        service.headers = {"Location": stranger.url}
        assert_refused(service.url)

    assert f"Bearer {KEY}" not in stranger.keys


def assert_refused(url: str, *, key: str = KEY) -> str:
    with pytest.raises(InvalidEncoder, match="small") as caught:
        EndpointEncoder(url, "small", key=key).encode(["one"], kind="tool")

    assert KEY not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def speak_nonsense(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(b"nonsense\r\n\r\n")


@pytest.mark.parametrize("name", ["MODEL_SHA256", "TOKENIZER_SHA256"])
def test_a_model_with_a_wrong_checksum_is_refused(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr(onnx, name, "0" * 64)

    with pytest.raises(InvalidFile, match="checksum"):
        OnnxEncoder().encode(["text"], kind="tool")


def test_a_changed_table_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    changed = tmp_path / "static.npz"
    changed.write_bytes(TABLE_FILE.read_bytes() + b"x")
    monkeypatch.setattr("toolscout.encoders.encoder.TABLE_FILE", changed)

    with pytest.raises(InvalidFile, match="checksum"):
        StaticEncoder().encode(["text"], kind="tool")


def test_a_missing_table_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("toolscout.encoders.encoder.TABLE_FILE", tmp_path / "none.npz")

    with pytest.raises(InvalidFile, match="Reinstall"):
        StaticEncoder().encode(["text"], kind="tool")


def test_a_file_that_is_no_table_is_refused(tmp_path: Path):
    (tmp_path / "own.npz").write_text("no table")

    with pytest.raises(InvalidFile, match="not a table of vectors"):
        StaticEncoder(tmp_path / "own.npz").encode(["text"], kind="tool")


def test_files_of_ones_own_are_named_by_their_content(tmp_path: Path):
    own = tmp_path / "own.npz"
    own.write_bytes(TABLE_FILE.read_bytes())
    folder = onnx.find_package_folder()

    assert StaticEncoder(own).name == StaticEncoder().name
    assert OnnxEncoder(folder).name == OnnxEncoder().name
    own.write_bytes(own.read_bytes() + b"x")
    assert StaticEncoder(own).name != StaticEncoder().name


def test_words_met_before_give_a_question_the_vector_of_its_text():
    encoder = StaticEncoder()
    texts = ["Open a pull-request, please!", "naïve  café\tVIEW", "", "🙂 merge"]

    for _ in range(2):
        assert encoder.encode(texts, kind="question") == pytest.approx(
            encoder.encode(texts, kind="tool"), abs=1e-5
        )


def test_what_is_no_word_of_the_table_says_nothing():
    assert not StaticEncoder().encode(["🙂🙂", "\u16a0\u16a2"], kind="tool").any()


@pytest.mark.parametrize("package", ["toolscout_encoder"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, package: str):
    hide(monkeypatch, package)

    with pytest.raises(MissingExtra, match=r"toolscout\[onnx\]") as caught:
        OnnxEncoder().encode(["text"], kind="tool")

    assert (caught.value.module, caught.value.extra) == (package, "onnx")


def test_a_missing_runtime_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(MissingExtra, match=r"toolscout\[onnx\]") as caught:
        OnnxEncoder().encode(["text"], kind="tool")

    assert caught.value.module == "onnxruntime"


@pytest.mark.processes
def test_onnxruntime_is_loaded_with_its_telemetry_switched_off():
    script = """
import os, sys
os.environ.pop("ORT_DISABLE_TELEMETRY", None)
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "onnxruntime":
            print(os.environ.get("ORT_DISABLE_TELEMETRY"))
sys.meta_path.insert(0, Watch())
from toolscout import OnnxEncoder
OnnxEncoder().encode(["hello"], kind="tool")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    spec = importlib.util.find_spec("onnxruntime")
    assert spec is not None and spec.origin is not None
    libraries = list(Path(spec.origin).parent.glob("capi/*pybind11_state*"))

    assert ran.stdout.split() == ["1"]
    # Should a release rename its switch, this notices.
    assert any(b"ORT_DISABLE_TELEMETRY" in library.read_bytes() for library in libraries)


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, parent: str | None = None) -> ModuleSpec | None:
        return None if name == package else real(name, parent)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


@pytest.mark.processes
def test_importing_encoders_imports_no_optional_stack():
    code = (
        "import sys, toolscout as e; e.StaticEncoder(); e.OnnxEncoder();"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    heavy = {"onnxruntime", "tokenizers", "toolscout_encoder", "usearch", "torch"}
    assert heavy & set(loaded) == set()


@pytest.mark.parametrize(
    "word",
    ["file", "File", "WEBHOOKS", "kubernetes", "v2", "zzqx" * 30, "user's", "Café", "end.", "検索"],
)
def test_a_word_alone_has_the_vector_of_a_text_of_one_word(word: str):
    encoder = StaticEncoder()

    assert (
        encoder.encode([word], kind="question").tolist()
        == encoder.encode([word], kind="tool").tolist()
    )


def test_what_is_remembered_is_asked_for_once_and_all_new_words_together():
    asked: list[list[str]] = []

    def lengths(words: list[str]) -> Floats:
        asked.append(words)
        return np.array([[len(word)] for word in words], np.float32)

    memory = WordMemory(lengths, limit=3)
    found = [memory.get(words) for words in (["a", "bb"], ["bb", "ccc", "a"], ["dddd"], ["a"])]

    assert asked == [["a", "bb"], ["ccc"], ["dddd"], ["a"]]  # the fourth word was one too many
    assert [[int(value[0]) for value in one] for one in found] == [[1, 2], [2, 3, 1], [4], [1]]


class Recording(Vowels):
    """Records the texts that it encodes, by kind."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}

    def encode(self, texts: Sequence[str], *, kind: str) -> Floats:
        self.texts.setdefault(kind, []).extend(texts)
        return super().encode(texts, kind=kind)


def test_an_index_says_which_texts_are_tools_and_which_are_questions():
    encoder = Recording()
    index = Index(Catalog({"mail": [SEND]}), encoder=encoder)

    index.search("write to a friend")

    assert [text for text in encoder.texts["tool"] if "Send a message." in text]
    assert encoder.texts["question"] == ["write to a friend"]


def test_an_encoder_may_bring_its_own_word_vectors():
    words = Recording()
    encoder = Vowels()
    encoder.words = words

    Index(Catalog({"mail": [SEND]}), encoder=encoder)

    assert words.texts == {"question": ["send", "mail"]}


def test_an_index_takes_the_name_of_a_built_in_encoder():
    catalog = Catalog()

    assert isinstance(Index(catalog).encoder, StaticEncoder)
    assert isinstance(Index(catalog, encoder="static").encoder, StaticEncoder)
    assert isinstance(Index(catalog, encoder="onnx").encoder, OnnxEncoder)
    assert Index(catalog, encoder="none").encoder is None
    assert Index(catalog, encoder=None).encoder is None


def test_a_scout_uses_the_encoder_of_its_settings_unless_it_is_given_one():
    settings = Settings(encoder=EncoderName.NONE)

    assert Scout(Catalog(), settings=settings).index.encoder is None
    assert isinstance(Scout(Catalog()).index.encoder, StaticEncoder)
    given = Scout(Catalog(), settings=settings, encoder="static")
    assert isinstance(given.index.encoder, StaticEncoder)


def test_an_unknown_encoder_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="'static', 'onnx', 'none' or an `Encoder`"):
        Index(Catalog(), encoder=cast(Any, "word2vec"))


def test_the_package_exports_every_encoder_on_first_use():
    assert [getattr(encoders, name).__name__ for name in encoders.__all__] == encoders.__all__
    assert dir(encoders) == encoders.__all__
    with pytest.raises(AttributeError, match="Word2Vec"):
        _ = cast(Any, encoders).Word2Vec
