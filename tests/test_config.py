"""What backends.conf says, and how a mistake in it is told."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollie_fuse.config import KEYS, LOCAL, BackendConfig, Price, parse_backends, read_backends

WHOLE = """
# comment
[work]
kind = openai
name = At work
url = https://llm.example.com/
key = sk-work-12345
model = big
models = big, small  tiny
window = 200000
price = 3/15/0.3
call-timeout = 60.5
header X-Title = ollie
header OpenAI-Organization: org-1

[DEFAULT]
key-env = OTHER_KEY

[local]
kind = local
window = 4096
"""


def parse(text: str, **environ: str) -> tuple[BackendConfig, ...]:
    """Return the backends of a file without mistakes."""
    file = parse_backends(text, environ)
    assert file.mistakes == ()
    return file.backends


def sentences(text: str, **environ: str) -> list[str]:
    """Return what is wrong, after checking that nothing was left but the built-in backend."""
    file = parse_backends(text, environ)
    assert file.backends == (LOCAL,)
    return [str(mistake) for mistake in file.mistakes]


def test_every_key() -> None:
    """Each key arrives as the value it means."""
    work, default, local = parse(WHOLE, OTHER_KEY="sk-other")
    assert (work.section, work.kind, work.title, work.url) == (
        "work",
        "openai",
        "At work",
        "https://llm.example.com/v1",
    )
    assert work.key is not None
    assert work.key.get_secret_value() == "sk-work-12345"
    assert (work.model, work.models, work.window) == ("big", ("big", "small", "tiny"), 200000)
    assert work.price == Price(input=3, output=15, cache=0.3)
    assert work.call_timeout_s == 60.5
    assert {name: value.get_secret_value() for name, value in work.headers.items()} == {
        "X-Title": "ollie",
        "OpenAI-Organization": "org-1",
    }
    assert (default.section, default.title, default.url) == ("DEFAULT", "DEFAULT", "https://api.openai.com/v1")
    assert default.key is not None
    assert default.key.get_secret_value() == "sk-other"
    assert (local.kind, local.window, local.key) == ("local", 4096, None)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1/v1", "http://h:1/v1"),
        ("http://h:1/v1/", "http://h:1/v1"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1"),
        ("https://api.groq.com/openai", "https://api.groq.com/openai/v1"),
        ("https://h/v1beta/openai", "https://h/v1beta/openai"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4"),
        ("http://[::1]:8080", "http://[::1]:8080/v1"),
    ],
)
def test_urls(url: str, expected: str) -> None:
    """A base URL works with its version and without."""
    assert parse(f"[a]\nurl = {url}")[0].url == expected


def test_missing_key_is_known() -> None:
    """A variable that is not set is no mistake but a missing key; `key` stands in for it."""
    missing, fallback, none = parse("[a]\nkey-env = NO\n[b]\nkey-env = NO\nkey = sk-abc\n[c]\n")
    assert missing.is_key_missing
    assert fallback.key is not None
    assert not fallback.is_key_missing
    assert not none.is_key_missing


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[a]\nkind = openai\nmodle = x", "backends.conf:3: key 'modle' is unknown; did you mean 'model'?"),
        ("[a]\nURL = http://h", "backends.conf:2: key 'URL' is unknown; did you mean 'url'?"),
        ("[a]\nzzz = x", "backends.conf:2: key 'zzz' is unknown"),
        ("\n\n[a]\n\nurl = llm.example.com", "backends.conf:5: url is not of the form http"),
        ("[a]\nurl = http://user:pass@h", "backends.conf:2: url is not of the form http"),
        ("[a]\nurl = http://h:port", "backends.conf:2: url is not of the form http"),
        ("[a]\nwindow = big", "backends.conf:2: window 'big' is not a number of tokens"),
        ("[a]\nwindow = 0", "backends.conf:2: window '0' is not a number of tokens"),
        ("[a]\nkind = anthropic", "backends.conf:2: kind 'anthropic' is unknown; there are openai, local"),
        ("[a]\nprice = 3", "backends.conf:2: price '3' is not IN/OUT or IN/OUT/CACHE"),
        ("[a]\nprice = 3/x", "backends.conf:2: price '3/x' is not IN/OUT or IN/OUT/CACHE"),
        ("[a]\nprice = -1/2", "backends.conf:2: price '-1/2' is not IN/OUT or IN/OUT/CACHE"),
        ("[a]\ncall-timeout = nan", "backends.conf:2: call-timeout 'nan' is not a number of seconds"),
        ("[a]\nkind = local\nurl = http://h", "backends.conf:3: key 'url' means nothing for kind 'local'"),
        ("[a]\nkind = local\nheader X = 1", "backends.conf:3: key 'header X' means nothing for kind 'local'"),
        ("[a]\nheader = x", "backends.conf:2: key 'header' is unknown"),
        ("[a]\nmodel = x\nmodel = y", "backends.conf:2: key 'model' is there twice"),
        ("[a]\nmodel = x\nnonsense", "backends.conf:3: the line is not of the form KEY = VALUE"),
        ("model = x", "backends.conf:1: there is a line before the first [section]"),
    ],
)
def test_mistakes(text: str, sentence: str) -> None:
    """A mistake is told with its file, its line and what would be right, and its section is left out."""
    (found,) = sentences(text)
    assert found.startswith(sentence)


def test_mistake_has_parts() -> None:
    """A mistake can be shown beside the backend and key that it is about."""
    (mistake,) = parse_backends("[a]\nwindow = x", {}).mistakes
    assert (mistake.file, mistake.line, mistake.key, mistake.backend) == ("backends.conf", 2, "window", "a")


def test_several_mistakes_of_one_section() -> None:
    """All that is wrong with a section is told at once."""
    assert len(sentences("[a]\nmodle = x\nwindow = x\nprice = x")) == 3


def test_one_mistake_spoils_one_section() -> None:
    """A section that does not parse, or is there twice, takes no other with it."""
    file = parse_backends("[a]\nmodel = 1\n[b]\nwindow = x\n[c]\n???\n[d]\n[a]\nmodel = 2\n[e]\n", {})
    assert [backend.section for backend in file.backends] == ["a", "d", "e"]
    assert file.backends[0].model == "1"
    assert [mistake.line for mistake in file.mistakes] == [4, 6, 8]


SECRET = "sk-never-to-be-seen"


@pytest.mark.parametrize(
    "text",
    [
        f"[a]\nkey = {SECRET}\nheader X-Key = {SECRET}",
        f"[a]\nkey = {SECRET}\nwindow = x",
        f"[a]\nkey = {SECRET}é",
        f"[a]\nkey = {SECRET}\n  second line",
        f"[a]\nheader X-Key = {SECRET}\n  second: line",
        f"[a]\nkey {SECRET}",
        f"[a]\nkey = {SECRET}\nkey = {SECRET}",
        f"[a]\nkeys = {SECRET}",
        f"[a]\nkind = local\nkey = {SECRET}",
        f"{SECRET}\n[a]",
    ],
)
def test_secrets_are_never_shown(text: str) -> None:
    """No key or header stands in a repr or a sentence, wherever the file is wrong."""
    file = parse_backends(text, {})
    assert SECRET not in repr(file) + "".join(map(str, file.mistakes))


def test_key_from_the_environment_is_checked() -> None:
    """A key that cannot stand in a header is a mistake here, where it can be told without quoting it."""
    (found,) = sentences("[a]\nkey-env = K", K=f"{SECRET}\nx")
    assert "printable ASCII" in found
    assert SECRET not in found


def test_no_file(tmp_path: Path) -> None:
    """Without a file there is the local backend, and nothing is wrong."""
    file = read_backends(tmp_path / "backends.conf", {})
    assert file.backends == (LOCAL,)
    assert (LOCAL.section, LOCAL.kind) == ("local", "local")
    assert file.mistakes == ()


@pytest.mark.parametrize("text", ["", "# nothing\n; here\n\n"])
def test_empty_file(tmp_path: Path, text: str) -> None:
    """A file without a section is as good as none."""
    path = tmp_path / "backends.conf"
    path.write_text(text, encoding="utf-8")
    file = read_backends(path, {})
    assert (file.backends, file.mistakes) == ((LOCAL,), ())


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is no text, or no file, is a mistake and not an exception."""
    path = tmp_path / "backends.conf"
    path.write_bytes(b"\xff\xfe[a]")
    assert str(read_backends(path, {}).mistakes[0]) == "backends.conf: it is not UTF-8"
    assert "cannot be read" in str(read_backends(tmp_path, {}).mistakes[0])


def test_byte_order_mark(tmp_path: Path) -> None:
    """A file from an editor that marks its byte order is read like any other."""
    path = tmp_path / "backends.conf"
    path.write_bytes(b"\xef\xbb\xbf[a]\r\nmodel = x\r\n")
    assert read_backends(path, {}).backends[0].model == "x"


@given(st.text(alphabet="[]ab=: \n#;\t\0kindmodel", max_size=60))
def test_any_text(text: str) -> None:
    """No text raises, and there is always a backend."""
    assert parse_backends(text, {}).backends


def test_keys_are_the_models() -> None:
    """The table that documents the keys and the model that checks them name the same ones."""
    fields = {field.alias or name for name, field in BackendConfig.model_fields.items()}
    assert {key.name for key in KEYS} == fields - {"section", "headers"}
