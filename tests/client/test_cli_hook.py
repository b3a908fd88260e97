"""``ckpt hook``: it saves around what an agent does, and never gets in its way."""

import json
import os
import subprocess
import threading

import pytest

from ckpt_protocol.address import socket_path
from fabricatio_checkpoint.cli.hookevent import EVENTS, read_event, settings_with_hook
from support.cli_answers import head, saved, status
from support.cli_daemon import CardboardDaemon, Refusal
from support.cli_run import as_process, command, environment

pytestmark = pytest.mark.e2e

EVENT = {
    "session_id": "abc123",
    "transcript_path": "/home/u/.claude/projects/x/abc123.jsonl",
    "permission_mode": "default",
    "hook_event_name": "PreToolUse",
    "tool_name": "Write",
    "tool_input": {"file_path": "/x/file.txt", "content": "secret content"},
    "tool_use_id": "toolu_01ABC123",
}


@pytest.fixture
def place(short_dir, monkeypatch):
    for name, below in (("XDG_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state")):
        (short_dir / below).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(short_dir / below))
    (short_dir / "tree" / "sub").mkdir(parents=True)
    return short_dir / "tree"


@pytest.fixture
def daemon(place):
    def tracked(params):
        if params["worktree"]["path"] != str(place):
            raise Refusal("not_tracked", "not tracked")
        return head()

    answers = {"checkpoint.head": tracked, "checkpoint.save": saved(), "worktree.status": status()}
    with CardboardDaemon(socket_path(os.environ), answers) as cardboard:
        yield cardboard


def hook(event, *argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
    data = event if isinstance(event, str) else json.dumps(event)
    return subprocess.run(
        command("hook", *argv),
        input=data,
        cwd="/",
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
    )


def quiet(done: subprocess.CompletedProcess[str]) -> bool:
    return (done.returncode, done.stdout) == (0, "")


def test_it_saves_before_a_tool_that_may_write(daemon, place):
    assert quiet(hook({**EVENT, "cwd": str(place / "sub")}))
    (call,) = daemon.calls("checkpoint.save")
    assert call["worktree"]["path"] == str(place)
    assert call["kind"] == "auto"
    assert call["message"] == "before Write"
    assert call["meta"] == {"agent": "claude-code", "event": "PreToolUse", "session": "abc123", "tool": "Write"}
    assert "secret" not in json.dumps(call)
    assert daemon.hellos[-1]["session"] == "abc123"


@pytest.mark.parametrize("tool", ["Read", "Grep", "Glob", "TodoWrite", "WebFetch"])
def test_a_tool_that_changes_nothing_is_no_reason(daemon, place, tool):
    assert quiet(hook({**EVENT, "cwd": str(place), "tool_name": tool}))
    assert daemon.calls("checkpoint.save") == []


@pytest.mark.parametrize("tool", ["Bash", "Edit", "NotebookEdit", "mcp__files__write", "SomethingNew"])
def test_any_other_tool_is(daemon, place, tool):
    assert quiet(hook({**EVENT, "cwd": str(place), "tool_name": tool}))
    assert len(daemon.calls("checkpoint.save")) == 1


def test_a_directory_that_is_not_tracked_is_saved_as_the_project(daemon, place, short_dir):
    project = short_dir / "other"
    (project / "deep").mkdir(parents=True)
    assert quiet(hook({**EVENT, "cwd": str(project / "deep")}, CLAUDE_PROJECT_DIR=str(project)))
    assert daemon.calls("checkpoint.save")[0]["worktree"]["path"] == str(project)


@pytest.mark.parametrize(
    "text", ["", "not json", "[]", "{}", '{"hook_event_name": 3}', "[" * 100_000, "\x00", '{"hook_event_name":""}']
)
def test_what_is_no_event_harms_nobody(daemon, place, text):
    done = hook(text)
    assert quiet(done)
    assert "Traceback" not in done.stderr
    assert daemon.calls("checkpoint.save") == []


def test_a_failure_is_loud_in_status_until_a_save_succeeds(daemon, place):
    def refuse(_params):
        raise Refusal("no_space", "no space left on \x1b[31mdevice")

    daemon.answers["checkpoint.save"] = refuse
    assert quiet(hook({**EVENT, "cwd": str(place)}))
    told = as_process("status", cwd=place).stderr
    assert b"a hook could NOT save" in told if isinstance(told, bytes) else "a hook could NOT save" in told
    assert "\x1b" not in str(told)
    daemon.answers["checkpoint.save"] = saved()
    assert quiet(hook({**EVENT, "cwd": str(place)}))
    assert "NOT save" not in str(as_process("status", cwd=place).stderr)


def test_a_daemon_that_cannot_be_had_is_no_failure_of_the_agent(place, short_dir):
    os.symlink("/dev/null", short_dir / "run" / "fabricatio-checkpoint")
    assert quiet(hook({**EVENT, "cwd": str(place)}, "--budget", "20"))
    assert len(os.listdir(short_dir / "state" / "fabricatio-checkpoint" / "hooks")) == 1


def test_it_does_not_wait_for_a_slow_save_and_does_not_call_it_off(daemon, place):
    go_on, cancelled = threading.Event(), []

    def answer(_params):
        go_on.wait(60)
        return saved()

    daemon.answers["checkpoint.save"] = answer
    daemon.answers["$/cancel"] = lambda params: cancelled.append(params)
    done = hook({**EVENT, "cwd": str(place)}, "--budget", "0.4")
    # It has ended although the save has not.
    assert not go_on.is_set()
    go_on.set()
    assert quiet(done)
    assert daemon.calls("checkpoint.save")[0]["late_after_s"] == 0.4
    assert cancelled == []
    assert "NOT save" not in str(as_process("status", cwd=place).stderr)


def test_a_budget_that_is_none(place):
    for text in ("x", "0", "-1", "1e9", "nan"):
        assert hook("{}", f"--budget={text}").returncode == 2


# the settings


def test_the_settings_get_the_hook_once():
    before = {
        "model": "x",
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}]},
    }
    after = settings_with_hook(before)
    assert after["model"] == "x"
    assert after["hooks"]["PreToolUse"][0] == before["hooks"]["PreToolUse"][0]
    assert set(after["hooks"]) == set(EVENTS)
    assert settings_with_hook(after) == after
    assert len(before["hooks"]["PreToolUse"]) == 1


@pytest.mark.parametrize("settings", [{"hooks": []}, {"hooks": {"Stop": {}}}])
def test_settings_of_another_form_are_refused(settings):
    with pytest.raises(ValueError, match="hooks"):
        settings_with_hook(settings)


def test_install_shows_and_writes_only_when_it_may(place):
    shown = as_process("hook", "install", cwd=place)
    assert shown.code == 0
    assert not (place / ".claude").exists()
    assert json.loads(shown.out)["hooks"]["PreToolUse"][0]["hooks"][0]["command"] == "ckpt hook"
    assert as_process("hook", "install", "--yes", "-w", str(place), cwd=place).code == 0
    assert json.loads((place / ".claude" / "settings.json").read_text()) == json.loads(shown.out)
    assert os.listdir(place / ".claude") == ["settings.json"]


def test_install_leaves_settings_that_it_does_not_understand(place):
    (place / ".claude").mkdir()
    for text in ("not json", "[]", '{"hooks": 3}'):
        (place / ".claude" / "settings.json").write_text(text)
        done = as_process("hook", "install", "--yes", "-w", str(place), cwd=place)
        assert done.code == 10
        assert (place / ".claude" / "settings.json").read_text() == text


def test_events_of_every_kind_are_read():
    event = read_event({"hook_event_name": "UserPromptSubmit", "session_id": 3, "cwd": ""})
    assert (event.name, event.session, event.directory, event.tool) == ("UserPromptSubmit", None, None, None)
    assert event.is_worth_a_save()
    assert event.message() == "before a new task"
    assert read_event({"hook_event_name": "PreToolUse"}).is_worth_a_save()
    after = read_event({"hook_event_name": "PostToolUse", "tool_name": "Write"})
    assert (after.is_worth_a_save(), after.message()) == (True, "after Write")
    assert not read_event({"hook_event_name": "PostToolUse", "tool_name": "Read"}).is_worth_a_save()
