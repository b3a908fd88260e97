"""The pages are true as far as reading tells: links, command lines, tables, and a map in each folder."""

import json
import re
import shlex
import tomllib
from xml.etree import ElementTree

import pytest

from ckpt_protocol.errors import BY_KIND
from fabricatio_checkpoint.cli.arguments import parse
from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.config import OPTIONS
from support import pages

pytestmark = pytest.mark.core

LANGUAGES = {*pages.RUNNABLE, "json", "toml", "xml", "text"}
ENDS = re.compile(r"\s(#|\||<|>|>>|&&|2>)(\s|$)")


def test_pages_are_found():
    assert {"README.md", "SECURITY.md", "docs/README.md", "protocol/README.md", "tests/README.md"} <= set(pages.PAGES)


@pytest.mark.parametrize("page", pages.PAGES)
def test_each_block_says_what_it_is_and_can_be_read_as_that(page):
    for block in pages.blocks(page):
        assert block.language in LANGUAGES, f"{block.place}: behind its fence stands one of {sorted(LANGUAGES)}"
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "xml":
            ElementTree.fromstring(block.text.encode())
        elif block.language == "text":
            assert not re.search(r"^(\$ |ckpt )", block.text, re.MULTILINE), (
                f"{block.place}: a command that nobody runs"
            )


def test_what_is_not_run_is_there():
    for page, start in pages.NOT_RUN:
        assert any(block.language == "sh" and block.text.startswith(start) for block in pages.blocks(page)), start


@pytest.mark.parametrize("page", pages.PAGES)
def test_scripts_and_extras_that_are_named_are_there(page):
    for block in pages.blocks(page):
        for script, words in re.findall(r"^python3 (\S+\.py)([^#\n]*)", block.text, re.MULTILINE):
            source = (pages.ROOT / script).read_text()
            for option in re.findall(r"--[\w-]+", words):
                assert f'"{option}"' in source, f"{block.place}: {script} {option}"
    extras = tomllib.loads((pages.ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in re.findall(r"pip install \"[^\"\[]*\[(\w+)\]\"", (pages.ROOT / page).read_text()):
        assert extra in extras, f"{page}: [{extra}]"


@pytest.mark.parametrize("page", pages.PAGES)
def test_links_lead_somewhere(page):
    for link in pages.links(page):
        path, _, anchor = link.partition("#")
        target = (pages.ROOT / page).parent / path if path else pages.ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles], link


@pytest.mark.parametrize("page", pages.PAGES)
def test_files_that_are_named_are_there(page):
    """What looks like a path of this repository, in code marks, is one."""
    tops = {path.name for path in pages.ROOT.iterdir() if path.is_dir()}
    text = (pages.ROOT / page).read_text()
    for name in re.findall(r"`([\w.\-]+/[\w./\-*]*)`", text):
        if name.partition("/")[0] in tops - {".git"} and "*" not in name:
            here = (pages.ROOT / page).parent
            assert (pages.ROOT / name).exists() or (here / name).exists(), f"{page}: {name}"


@pytest.mark.parametrize("page", pages.PAGES)
def test_every_command_line_is_one_that_the_program_understands(page):
    for place, line in pages.ckpt_lines(page):
        end = ENDS.search(line)
        words = shlex.split(line[: end.start()] if end else line)[1:]
        if not words or "COMMAND" in words:
            continue
        for way in ways(words):
            try:
                parse(way)
            except UsageError as error:
                # Running text names a command without all that it needs; a block does not.
                if place != page or " needs " not in error.message:
                    raise AssertionError(f"{place}: {line}: {error}") from error


def ways(words: list[str]) -> list[list[str]]:
    """``a|b`` in running text stands for either; ``[x]`` for something that may be left out."""
    found: list[list[str]] = [[]]
    for word in words:
        choices = word.strip("[]").split("|")
        found = [[*way, choice] for way in found for choice in choices]
    return found


def folders(place):
    return sorted(path for path in place.iterdir() if path.is_dir() and is_ours(path))


def is_ours(path):
    """Whether a folder holds something that belongs to the project: caches do not."""
    return not path.name.startswith((".", "__")) and any(
        each.suffix in (".py", ".md", ".json", ".service", ".svg") and "__pycache__" not in each.parts
        for each in path.rglob("*")
    )


@pytest.mark.parametrize("top", ["client", "daemon", "docs", "protocol", "systemd", "tests"])
def test_each_top_level_folder_has_a_map_of_its_rooms(top):
    text = (pages.ROOT / top / "README.md").read_text()
    packages = (path.parent for path in (pages.ROOT / top).rglob("__init__.py"))
    for room in {*folders(pages.ROOT / top), *packages}:
        assert re.search(rf"\b{re.escape(room.name)}\b", text), f"{top}/README.md does not name {room.name}/"


def test_the_top_level_folders_are_the_ones_that_are_looked_at():
    assert [path.name for path in folders(pages.ROOT)] == ["client", "daemon", "docs", "protocol", "systemd", "tests"]
    readme = (pages.ROOT / "README.md").read_text()
    for path in folders(pages.ROOT):
        assert f"({path.name}/README.md)" in readme


def test_every_kind_of_error_has_its_row():
    text = (pages.ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert [kind for kind, _, _ in rows if kind in BY_KIND] == list(BY_KIND)
    assert all(means.strip() and what.strip() for _, means, what in rows)
    again = {kind for kind, means, _ in rows if means.endswith("(*again*)")}
    assert again == {kind for kind, row in BY_KIND.items() if row.retryable}


def test_every_option_has_its_row_and_the_default_is_true():
    text = (pages.ROOT / "README.md").read_text().partition("\n## Options\n")[2].partition("\n## ")[0]
    shown: dict[str, str] = {}
    for names, defaults in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", text, re.MULTILINE):
        shown.update(zip(re.findall(r"`(\w+)`", names), defaults.split(", "), strict=True))
    assert set(shown) == set(OPTIONS)
    assert "`ckptd.sock`" in shown.pop("socket")
    for name, default in shown.items():
        assert read(default) == OPTIONS[name].default, name


def read(default: str) -> object:
    """A default of the table as the program has it."""
    number, _, unit = default.partition(" ")
    if unit:
        return int(number) * {"MiB": 1024**2, "GiB": 1024**3}[unit]
    text = default.strip("`")
    return json.loads(text) if re.fullmatch(r"\d+|true|false|\[\]", text) else text
