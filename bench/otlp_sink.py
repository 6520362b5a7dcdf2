"""`python -m ramet.bench.otlp_sink`: a receiver of traces that takes everything and keeps nothing. Prints its port."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class OtlpSink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), OtlpSink) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
