"""Ports that belong to the tests of this process until its end."""

import socket

_HELD: list[socket.socket] = []


def free_port() -> int:
    """A port of 127.0.0.1 that no other program gets from the system while this process lives.

    The returned port stays bound, and nobody listens there, so a client is refused until a server listens. The option
    SO_REUSEADDR lets a server with the same option bind the port, and bind again after a kill.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    return held.getsockname()[1]
