#!/bin/sh
# A client of ckptd in plain shell: save a worktree, look at it, plan a restore. Each call is a connection of its own.
# usage: client.sh SOCKET CHECKPOINT_DIR WORKTREE      (directories without quotes and backslashes in their names)
# Prints what is sent (->) and received (<-). See protocol/WIRE.md.
set -eu
socket=$1 stores=$2 worktree=$3

# Ends the sending side after the request, and waits for the answer.
if [ "${CLIENT_TOOL:-}" != socat ] && command -v nc >/dev/null 2>&1; then
    talk() { nc -N -U "$socket"; }
else
    talk() { socat -t 60 - "UNIX-CONNECT:$socket"; }
fi

say() { # frames, one a line: sent together, answered in the order in which they are done
    printf '%s\n' "$1" | sed 's/^/-> /' >&2
    answer=$(printf '%s\n' "$1" | talk)
    printf '%s\n' "$answer" | sed 's/^/<- /' >&2
}

call() { # method, more params
    say "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$1\",\"params\":{$here$2}}"
    case $answer in *'"error":'*) exit 1 ;; esac
}

field() { # the first text of this name in the answer
    printf '%s\n' "$answer" | sed "s/.*\"result\":[^\"]*{.*\"$1\":\"\([^\"]*\)\".*/\1/"
}

token() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

if ! inode=$(stat -c '"dev":"%d","ino":"%i"' "$worktree" 2>/dev/null); then
    inode=$(stat -f '"dev":"%d","ino":"%i"' "$worktree")
fi
here="\"checkpoint_dir\":\"$stores\",\"worktree\":{\"path\":\"$worktree\",$inode}"

hello='{"jsonrpc":"2.0","id":"hello","method":"daemon.hello","params":{"protocol":1,"build":"0","client":"client.sh"}}'
status='{"jsonrpc":"2.0","id":"status","method":"daemon.status"}'
say "$hello
$status"

call checkpoint.save ",\"token\":\"$(token)\",\"message\":\"from the shell\""
id=$(field id)
call checkpoint.list ',"limit":1'
call checkpoint.cat ",\"id\":\"$id\",\"path\":\"greeting\""
field b64 | base64 -d
call checkpoint.restore ",\"token\":\"$(token)\",\"id\":\"$id\",\"dry_run\":true"
