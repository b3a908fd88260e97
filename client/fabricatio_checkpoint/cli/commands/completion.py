"""``completion``: scripts for shells, and the words that they ask for."""

from __future__ import annotations

from fabricatio_checkpoint.cli.clock import age
from fabricatio_checkpoint.cli.completing import SHELLS, candidates, understand
from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.text import first_line, short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["completion"]

_WORDS = "words"
_RECENT = 20
"""So many checkpoints are offered by their ids."""

_LOOKED_AT = 500
"""So many are looked through for tags."""

_BASH = """\
# Completion of ckpt for bash: put it into ~/.bashrc as  source <(ckpt completion bash)
_ckpt() {
    local word about
    COMPREPLY=()
    while IFS=$'\\t' read -r word about; do
        # Quoted: a tag may hold what means something to the shell.
        printf -v word %q "$word"
        COMPREPLY+=("$word")
    done < <(ckpt completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null)
}
complete -o bashdefault -o default -F _ckpt ckpt
"""

_ZSH = """\
#compdef ckpt
# Completion of ckpt for zsh: put it into ~/.zshrc after compinit as  source <(ckpt completion zsh)
_ckpt() {
    local -a found lines
    local line
    lines=("${(@f)$(ckpt completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null </dev/null)}")
    for line in $lines; do
        found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    if (( $#found )) && [[ -n $found[1] ]]; then _describe -V 'ckpt' found; else _files; fi
}
compdef _ckpt ckpt
"""

_FISH = """\
# Completion of ckpt for fish: put it into ~/.config/fish/completions/ckpt.fish
function __ckpt_words
    set -l words (commandline -opc) (commandline -ct)
    ckpt completion words -- $words[2..-1] 2>/dev/null </dev/null
end
complete -c ckpt -a '(__ckpt_words)'
"""

_SCRIPTS = dict(zip(SHELLS, (_BASH, _ZSH, _FISH), strict=True))


def completion(session: Session) -> int:
    """Print the script of a shell; ``words`` is what the scripts call: candidates for the last word, one a line."""
    shell = session.arguments.words["SHELL"][0]
    if shell == _WORDS:
        lines = [f"{word}\t{text}" for word, text in _candidates(session)]
    elif shell in _SCRIPTS:
        lines = _SCRIPTS[shell].splitlines()
    else:
        raise UsageError(f"no completion for {shell!r}", f"there is one for {', '.join(SHELLS)}")
    if session.out.json:
        session.out.document({"completion": "\n".join(lines)})
        return 0
    for line in lines:
        session.out.line(line)
    return 0


def _candidates(session: Session) -> list[tuple[str, str]]:
    typed = understand(session.arguments.all_words("WORD"))
    if typed.workspace is not None:
        session.arguments.values["workspace"] = [typed.workspace]
    return candidates(typed, lambda: _checkpoints(session))


def _checkpoints(session: Session) -> list[tuple[str, str]]:
    """Give tags, then recent ids; none where no daemon runs: a key that is pressed must not start one."""
    from fabricatio_checkpoint.errors import CheckpointError

    session.may_start = False
    try:
        page = session.ask("checkpoint.list", limit=_LOOKED_AT)
    except CheckpointError:
        return []
    records: list[dict[str, Any]] = page["checkpoints"]
    head = [("HEAD", "the last save")] if page["head"] else []
    tags = [(tag, _described(record)) for record in records for tag in record["tags"]]
    return [*head, *tags, *((short(record["id"]), _described(record)) for record in records[:_RECENT])]


def _described(record: dict[str, Any]) -> str:
    return f"{age(record['time'])}: {first_line(record['message'])}"
