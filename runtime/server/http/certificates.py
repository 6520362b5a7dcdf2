"""TLS of the server: what its files make of a connection, and files that change while it runs.

A changed file makes a new context, which new connections get; those that are open keep theirs. Files that do not fit
together, such as a new certificate whose key is not written yet, change nothing. They are read on a thread: a file
system that hangs keeps back new certificates and nothing else.
"""

import os
import ssl
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ramet.runtime.access.key_file import Version, version_of
from ramet.runtime.config import ServeArgs
from ramet.runtime.errors import ConfigError
from ramet.runtime.log import LOGGER

LOOK_EVERY_S = 1.0  # at three files, of which one `stat` each is read

Seen = tuple[Version | None, ...]


class Certificates:
    """`context` is that of the next connection."""

    def __init__(self, args: ServeArgs) -> None:
        """Raises ConfigError."""
        self._args = args
        self._seen = self._look()  # before the files are read: a change in between is seen
        self.context = make_context(args)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Files that change within the block are read."""
        is_left = threading.Event()
        threading.Thread(target=self._follow, args=(is_left,), name="tls-files", daemon=True).start()
        try:
            yield
        finally:
            is_left.set()

    def _follow(self, is_left: threading.Event) -> None:
        while not is_left.wait(LOOK_EVERY_S):
            self.refresh()

    def refresh(self) -> None:
        """Read files that changed since they were read last."""
        if (now := self._look()) == self._seen:
            return
        self._seen = now
        try:
            self.context = make_context(self._args)
            LOGGER.info("The TLS files changed: new connections get what they are now")
        except ConfigError as error:
            LOGGER.warning("The TLS files changed, and new connections get what they were: %s", error)

    def _look(self) -> Seen:
        """What tells one version of each file from the next; links are followed."""
        return tuple(version_of(name) for name in _files(self._args).values())


def certificates_of(args: ServeArgs) -> Certificates | None:
    """None: the server speaks plain HTTP. Raises ConfigError."""
    return Certificates(args) if args.ssl_certfile else None


def make_context(args: ServeArgs) -> ssl.SSLContext:
    """With --ssl-ca-certs only clients with a certificate of these authorities are served. Raises ConfigError."""
    for flag, name in _files(args).items():
        try:
            if not stat.S_ISREG(os.stat(name).st_mode):  # who reads a fifo waits for its writer
                raise ConfigError(f"{flag} {name} is not a regular file")
            Path(name).read_bytes()  # ssl does not say which one is missing
        except OSError as error:
            raise ConfigError(f"{flag} {name} cannot be read: {error.strerror}") from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(args.ssl_certfile, args.ssl_keyfile or None, lambda: args.ssl_keyfile_password)
    except (OSError, ValueError) as error:
        names = " and ".join(f"{flag} {name}" for flag, name in _files(args).items() if flag != "--ssl-ca-certs")
        hint = "is it a certificate with its key in PEM, and is --ssl-keyfile-password right?"
        raise ConfigError(f"{names} cannot be used: {_reason(error)} ({hint})") from None
    if args.ssl_ca_certs:
        try:
            context.load_verify_locations(args.ssl_ca_certs)
        except OSError as error:
            raise ConfigError(f"--ssl-ca-certs {args.ssl_ca_certs} cannot be used: {_reason(error)}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _files(args: ServeArgs) -> dict[str, str]:
    named = {
        "--ssl-certfile": args.ssl_certfile,
        "--ssl-keyfile": args.ssl_keyfile,
        "--ssl-ca-certs": args.ssl_ca_certs,
    }
    return {flag: name for flag, name in named.items() if name}


def _reason(error: Exception) -> str:
    """OpenSSL's word for it, which has no password in it."""
    return str(getattr(error, "reason", None) or error)
