"""A real OTLP receiver over HTTP: parses what an exporter posts, and keeps the spans."""

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

WITHIN_S = 120.0


def attributes_of(span: Span) -> dict[str, Any]:
    """Of single values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


class OtlpReceiver:
    """Answers while the block lasts. `spans` in the order in which they came."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.paths: set[str] = set()
        self._came = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.take(self.path, ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "OtlpReceiver":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, path: str, request: ExportTraceServiceRequest) -> None:
        with self._came:
            self.paths.add(path)
            for of_resource in request.resource_spans:
                named = {each.key: each.value.string_value for each in of_resource.resource.attributes}
                self.services.add(named["service.name"])
                for of_scope in of_resource.scope_spans:
                    self.spans += of_scope.spans
            self._came.notify_all()

    def trace(self, trace_id: str) -> list[Span]:
        """All spans of a trace, when that of the server is among them."""
        deadline = time.monotonic() + WITHIN_S
        with self._came:
            while True:
                found = [span for span in self.spans if span.trace_id.hex() == trace_id]
                if any(span.kind == Span.SPAN_KIND_SERVER for span in found):
                    return found
                assert self._came.wait(deadline - time.monotonic()), f"no trace {trace_id} came"
