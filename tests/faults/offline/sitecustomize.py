"""Refuses every connection and every look-up of a name: the tests put this folder on the path of their runs."""

import sys

SENDS = ("socket.connect", "socket.sendto", "socket.sendmsg")  # to an address, which is text for a local socket's file
ASKS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")


def refuse(event, arguments):
    if event in ASKS or (event in SENDS and not isinstance(arguments[-1], (str, bytes))):
        raise PermissionError(f"asked for the network: {event} {arguments}")


sys.addaudithook(refuse)
