"""The command line's grammar and parser: pure, no daemon."""

import contextlib
import itertools
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricatio_checkpoint.cli.arguments import parse, wants_json
from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.grammar import COMMANDS, GLOBALS

pytestmark = pytest.mark.core


def refused(*argv: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse(list(argv))
    assert caught.value.exit_code == 2
    return caught.value


def test_a_command_with_everything():
    found = parse(["save", "the message", "--tag", "v1", "--meta", "a=1", "--meta", "b=x=y", "--full", "--rehash"])
    assert found.command is COMMANDS["save"]
    assert found.word("MESSAGE") == "the message"
    assert found.value("tag") == "v1"
    assert found.pairs("meta") == {"a": "1", "b": "x=y"}
    assert found.flag("full")
    assert found.flag("rehash")
    assert not found.flag("force")


@pytest.mark.parametrize(
    "argv",
    [
        ["-w", "dir", "--json", "save", "m"],
        ["save", "m", "-w", "dir", "--json"],
        ["save", "--workspace=dir", "--json", "m"],
        ["--workspace", "dir", "save", "--json", "m"],
        ["-wdir", "save", "m", "--json"],
    ],
)
def test_global_options_stand_before_and_after_the_command(argv):
    found = parse(argv)
    assert (found.value("workspace"), found.flag("json"), found.word("MESSAGE")) == ("dir", True, "m")


def test_the_last_workspace_counts():
    assert parse(["-w", "alias", "status", "-w", "mine"]).value("workspace") == "mine"


def test_another_option_given_twice_is_refused():
    assert "--tag is given twice" in refused("save", "--tag", "a", "--tag", "b").message


def test_two_dashes_end_the_options():
    assert parse(["save", "--", "--tag"]).word("MESSAGE") == "--tag"
    assert parse(["--", "save", "-x"]).word("MESSAGE") == "-x"
    assert parse(["rollback", "HEAD", "--", "-f", "--", "g"]).all_words("PATH") == ["-f", "--", "g"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["diff"], (None, None, [])),
        (["diff", "A"], ("A", None, [])),
        (["diff", "A", "B"], ("A", "B", [])),
        (["diff", "--", "x", "y"], (None, None, ["x", "y"])),
        (["diff", "A", "--stat", "--", "--stat"], ("A", None, ["--stat"])),
        (["diff", "A", "B", "--", "x"], ("A", "B", ["x"])),
    ],
)
def test_paths_of_diff_stand_after_two_dashes(argv, expected):
    found = parse(argv)
    assert (found.word("FROM"), found.word("TO"), found.all_words("PATH")) == expected


def test_too_many_words_say_what_to_do():
    assert "quotes" in (refused("save", "two", "words").hint or "")
    assert "after --" in (refused("diff", "A", "B", "path").hint or "")
    assert "'x'" in refused("status", "x").message


@pytest.mark.parametrize(
    ("argv", "missing"),
    [(["show"], "ID"), (["rollback"], "ID"), (["rollback", "HEAD"], "PATH"), (["cat", "HEAD"], "PATH")],
)
def test_missing_words_are_named_with_an_example(argv, missing):
    error = refused(*argv)
    assert error.message.endswith(f"needs {missing}")
    assert COMMANDS[argv[0]].example in (error.hint or "")


@pytest.mark.parametrize(
    ("argv", "guess"),
    [
        (["sav"], "save"),
        (["list"], "ls"),
        (["log"], "ls"),
        (["statsu"], "status"),
        (["daemon", "stat"], "daemon st"),
        (["reset", "--dryrun"], "--dry-run"),
        (["--jsn", "ls"], "--json"),
    ],
)
def test_typing_errors_get_a_guess(argv, guess):
    assert f"did you mean {guess}" in (refused(*argv).hint or "")


def test_no_guess_points_at_help():
    assert refused("xyzzy").hint == "ckpt help lists the commands"
    assert refused("status", "--zzz").hint == "see ckpt help status"
    assert refused().message == "no command"
    assert refused("daemon").message == "daemon needs a command"


def test_a_command_option_before_the_command_says_where_it_belongs():
    assert "after the command" in (refused("--dry-run", "reset").hint or "")


def test_values():
    assert parse(["ls", "--limit=5"]).number("limit") == 5
    assert parse(["ls", "-n", "5"]).number("limit") == 5
    assert parse(["ls", "-n5"]).number("limit") == 5
    assert parse(["ls"]).number("limit") is None
    assert parse(["save", "--meta="]).values["meta"] == [""]


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "", "٣", "1234567890123", "+1"])
def test_a_limit_is_a_number_from_one_on(value):
    refused("ls", f"--limit={value}")


@pytest.mark.parametrize("argv", [["ls", "--limit"], ["save", "--tag", "--json"], ["-w"], ["-w", "--json", "ls"]])
def test_an_option_without_its_value_is_refused(argv):
    assert "needs a value" in refused(*argv).message


def test_a_value_that_looks_like_an_option_is_taken_with_an_equals_sign():
    assert parse(["save", "--tag=--json"]).value("tag") == "--json"
    assert parse(["-w=", "status"]).value("workspace") == "="


def test_a_flag_takes_no_value():
    assert refused("ls", "--json=yes").message == "--json takes no value"


@pytest.mark.parametrize("texts", [["novalue"], ["=v"], [""], ["a=1", "a=2"]])
def test_metadata_is_pairs_with_different_keys(texts):
    found = parse(["save", *(f"--meta={text}" for text in texts)])
    with pytest.raises(UsageError):
        found.pairs("meta")


def test_letters_can_be_bundled():
    found = parse(["reset", "-yh"])
    assert found.flag("yes")
    assert found.flag("help")
    assert parse(["reset", "-ywdir"]).value("workspace") == "dir"
    assert "-z" in refused("reset", "-yz").message


def test_help_and_version_need_nothing_else():
    assert parse(["--help"]).command is None
    assert parse(["--version"]).flag("version")
    assert parse(["rollback", "--help"]).command is COMMANDS["rollback"]
    assert parse(["daemon", "--help"]).flag("help")


def test_a_single_dash_is_a_word():
    assert parse(["save", "-"]).word("MESSAGE") == "-"
    assert parse(["save", "--tag", "-"]).value("tag") == "-"


def test_what_follows_daemon_run_is_passed_on():
    found = parse(["--json", "daemon", "run", "--help", "--", "-w", "x"])
    assert found.all_words("ARG") == ["--help", "--", "-w", "x"]
    assert not found.flag("help")


def test_json_is_seen_even_where_the_line_is_wrong():
    assert wants_json(["nonsense", "--json"])
    assert not wants_json(["save", "--", "--json"])
    assert not wants_json(["save"])


LINES = st.lists(
    st.sampled_from([*COMMANDS, "--", "-", "-w", "--json", "--tag", "--meta=a=b", "x", "", "--n=1", "-n3"])
)


@given(LINES)
def test_any_line_is_understood_or_refused(argv):
    # Any other exception fails the test.
    with contextlib.suppress(UsageError):
        assert parse(argv).command is not None


@given(st.text(), st.text(min_size=1), st.booleans())
def test_the_order_of_options_and_words_does_not_matter(message, tag, first):
    option = [f"--tag={tag}"]
    found = parse(["save", *option, "--", message] if first else [*option[:0], "save", *option, "--", message])
    assert (found.word("MESSAGE"), found.value("tag")) == (message, tag)


def shown(line: str) -> object:
    """The command of a line as a shell would hand it over."""
    words = itertools.takewhile(lambda word: word not in ("<", ">", ">>"), shlex.split(line)[1:])
    return parse(list(words)).command


def test_the_table_is_sound():
    for command in COMMANDS.values():
        names = [option.name for option in GLOBALS + command.options]
        letters = [option.letter for option in GLOBALS + command.options if option.letter]
        assert len(set(names)) == len(names)
        assert len(set(letters)) == len(letters)
        for line in (command.example, *command.more):
            assert line.startswith("ckpt ")
            assert shown(line) is command, line
        assert command.summary
        # Only the last positional argument may take any number.
        assert all(word.most is not None for word in command.words[:-1])
