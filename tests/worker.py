"""Stands in for the interpreter of a pytest-xdist worker, which is forked from a shared server that has imported all.

    python tests/worker.py ADDRESS -u -c CODE

So the imports of torch and the project take their seconds once, not once per worker and again for the tests' commands.
"""

import json
import os
import socket
import sys


def main() -> None:
    address, *options = sys.argv[1:]
    words = options[options.index("-c") :]
    status, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as requests:
        requests.connect(f"\0{address}")
        request = json.dumps({"words": words, "cwd": os.getcwd(), "env": dict(os.environ)})
        with its:
            socket.send_fds(requests, [request.encode()], [1, 2, 0, its.fileno()])
        status.recv(16)  # its process id
        sys.exit(int(status.recv(16) or 1))


if __name__ == "__main__":
    main()
