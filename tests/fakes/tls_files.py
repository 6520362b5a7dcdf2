"""Certificates of a test: a private authority, and what a server and its clients have of it."""

import ssl
from pathlib import Path
from typing import Any

import trustme


class Files:
    """A private authority, and the files of a server that it vouches for."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.chain, self.key, self.authorities = (folder / name for name in ("chain.pem", "key.pem", "ca.pem"))
        self.ca.cert_pem.write_to_path(self.authorities)
        self.issue()

    def issue(self, *names: str) -> None:
        """Of localhost, or of other names or addresses."""
        made = self.ca.issue_cert(*(names or ["localhost"]))
        self.key.write_bytes(made.private_key_pem.bytes())
        self.chain.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))

    @property
    def options(self) -> dict[str, Any]:
        return {"ssl_certfile": str(self.chain), "ssl_keyfile": str(self.key)}

    @property
    def server(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.chain, self.key)
        return context

    def client(self, known: bool = False) -> ssl.SSLContext:
        """A client that trusts the authority; `known`: and has a certificate of it."""
        context = ssl.create_default_context(cafile=str(self.authorities))
        if known:
            self.ca.issue_cert("client@example.org").configure_cert(context)
        return context
