"""Refuses every connection and every look-up of a name: the tests put this folder on the path of their runs."""

import sys

# to an address: text for a local socket’s file, none on a connection that was allowed
SENDS = ("socket.connect", "socket.sendto", "socket.sendmsg")
ASKS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")


def refuse(event, arguments):
    if event in ASKS or (event in SENDS and arguments[-1] is not None and not isinstance(arguments[-1], (str, bytes))):
        raise PermissionError(f"asked for the network: {event} {arguments}")


sys.addaudithook(refuse)
