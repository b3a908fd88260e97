"""Asks a daemon how it is, again and again, until its input ends; then prints the latencies in seconds as JSON.

python pinger.py SOCKET
"""

import json
import select
import socket
import sys
import time

_PAUSE_S = 0.002
_QUESTION = b'{"jsonrpc":"2.0","id":1,"method":"daemon.status","params":{}}\n'


def main() -> None:
    """Ping."""
    found = []
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(sys.argv[1])
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], _PAUSE_S)[0]:
            begun = time.perf_counter()
            link.sendall(_QUESTION)
            answer = b""
            while not answer.endswith(b"\n"):
                answer += link.recv(1 << 16)
            found.append(time.perf_counter() - begun)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
