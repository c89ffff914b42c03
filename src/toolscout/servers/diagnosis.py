"""Read why a program failed from what it wrote.

`choose_error_lines` picks the lines that say most, `diagnose` recognizes common causes and says
what to do about them. What `Diagnosis.problem` says is safe for the model: it quotes nothing.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ERROR_WORDS = re.compile(
    r"\b(error|exception|fatal|panic|cannot|can't|could not|unable to|fail(ed|ure)?|refused|denied"
    r"|not found|no such|is not in|missing|invalid|required|unauthori[sz]ed|forbidden|E[A-Z]{4,})\b"
    r"|[a-z]Error\b|[a-z]Exception\b",
    re.IGNORECASE,
)
_ERROR_HEAD = re.compile(
    r"(uncaught |unhandled )?([\w.]*(error|exception)|fatal|panic)\b( \[\w+\])?:"
    r"|code E\w+|caused by:",
    re.IGNORECASE,
)
_NOISE = re.compile(
    r"\s*(at |File \"|\^|throw |node:|Require stack|- /|\.\.\.|Traceback|Node\.js v|[{}\]]"
    r"|npm notice|npm (error|ERR!) (A complete log|\s*at )|npm warn)"
)
_NPM_HEAD = re.compile(r"npm (error|ERR!) ?")


def choose_error_lines(lines: Iterable[str], count: int) -> list[str]:
    """Return the lines that most likely name the cause, in their order; else the last ones.

    The last lines of a Node crash are braces and a version number, those of npm name a log file.
    """
    written = [line for line in lines if line.strip()]
    scored = [(_score(line), at) for at, line in enumerate(written)]
    best = sorted((pair for pair in scored if pair[0]), reverse=True)[:count]
    if not best:
        return written[-count:]
    return [written[at] for at in sorted(at for _, at in best)]


def _score(line: str) -> int:
    if _NOISE.match(line):
        return 0
    text = _NPM_HEAD.sub("", line, count=1).strip()
    if _ERROR_HEAD.match(text):
        return 2
    return 1 if _ERROR_WORDS.search(text) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a program failed, and what to do."""

    pattern: re.Pattern[str]
    problem: str
    remedy: str


_IN_ITS_ENV = "in its `env`, or before you start toolscout"
_UNREACHED = (
    r"ECONNREFUSED|ECONNRESET|ENOTFOUND|ETIMEDOUT|EAI_AGAIN|ERR_SOCKET_TIMEOUT|dns error"
    r"|name resolution|tcp connect error|client error \(Connect\)|timed out|NewConnectionError"
)
_REGISTRY = r"npm (?:error|ERR!)|registry|pypi|pythonhosted|/simple/|docker\.io|ghcr\.io"


def _make_diagnosis(pattern: str, problem: str, remedy: str) -> Diagnosis:
    return Diagnosis(pattern=re.compile(pattern, re.IGNORECASE), problem=problem, remedy=remedy)


DIAGNOSES = (
    _make_diagnosis(
        r"bwrap: (?:No permissions to creat|Creating new namespace failed|setting up uid map"
        r"|loopback: Failed)",
        "bubblewrap may not create namespaces here",
        "Allow user namespaces without privileges (on Ubuntu, an AppArmor profile for bwrap), or "
        "use isolate = 'docker'.",
    ),
    _make_diagnosis(
        r"no new privileges|snap-confine|must be setuid root|effective uid is not 0",
        "it wants privileges that toolscout keeps from it",
        "If you trust it with them, set new_privileges = true for it.",
    ),
    _make_diagnosis(
        r"UnknownIssuer|invalid peer certificate|SELF_SIGNED_CERT|UNABLE_TO_GET_ISSUER_CERT"
        r"|UNABLE_TO_VERIFY_LEAF_SIGNATURE|unable to verify the first certificate"
        r"|self[- ]signed certificate|unable to get (?:local )?issuer certificate"
        r"|CERTIFICATE_VERIFY_FAILED|certificate verify failed|x509: certificate",
        "a certificate could not be verified",
        "If your network inspects encrypted traffic, name the file with its certificate: "
        "NODE_EXTRA_CA_CERTS for npm and Node, SSL_CERT_FILE for uv, Python and toolscout, "
        f"PIP_CERT for pip, {_IN_ITS_ENV}.",
    ),
    _make_diagnosis(
        r"\b407\b.*proxy|proxy.*\b407\b|Proxy Authentication Required|E407"
        r"|Tunnel connection failed: 407|unexpected status.*\b407\b",
        "the proxy wants a user and a password",
        f"Write them into HTTPS_PROXY (http://user:password@host:port), {_IN_ITS_ENV}.",
    ),
    _make_diagnosis(
        r"Tunnel connection failed|tunnel error|tunneling socket could not be established"
        r"|ProxyError|Cannot connect to proxy|proxyconnect",
        "the proxy could not be used",
        f"Check HTTPS_PROXY and NO_PROXY, and set them {_IN_ITS_ENV}.",
    ),
    _make_diagnosis(
        rf"(?:{_REGISTRY}).*(?:{_UNREACHED})|(?:{_UNREACHED}).*(?:{_REGISTRY})"
        r"|Failed to fetch: `?https?://",
        "the package registry could not be reached",
        f"Check the network. Behind a proxy, set HTTPS_PROXY and NO_PROXY {_IN_ITS_ENV}.",
    ),
    _make_diagnosis(
        r"code E404|not found in the package registry|is not in (?:this|the npm) registry"
        r"|No matching distribution|pull access denied|manifest unknown",
        "its package was not found",
        "Check the name of the package in its `args`.",
    ),
    _make_diagnosis(
        r"ENOTEMPTY.*_npx|_npx.*ENOTEMPTY|code ENOTEMPTY|Cannot find (?:module|package).*_npx",
        "the cache of npx is damaged",
        "Delete the folder `_npx` in the folder that `npm config get cache` names; try again.",
    ),
    _make_diagnosis(
        r"'(?:Server|FastMCP)' object has no attribute|No module named 'mcp\."
        r"|cannot import name '\w+' from 'mcp\b|module 'mcp\b[\w.]*' has no attribute",
        "it was written for an older version of the MCP SDK",
        "With uvx, put `--with` and `mcp<2` in front of the package in its `args`.",
    ),
    _make_diagnosis(
        r"Cannot connect to the Docker daemon|docker daemon is not running|docker_engine",
        "Docker is not running",
        "Start Docker, then try again.",
    ),
)
"""What is recognized; the first that matches counts."""


def diagnose(lines: Sequence[str]) -> Diagnosis | None:
    """Return what some lines of a program show, if that is known."""
    return next((one for one in DIAGNOSES if any(one.pattern.search(line) for line in lines)), None)
