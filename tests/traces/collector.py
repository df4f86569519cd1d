"""A collector of traces: reads them with OpenTelemetry's own types, and prints a line for each span."""

import http.server
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        # A field that the protocol does not know is an error.
        request = json_format.Parse(body, ExportTraceServiceRequest())
        assert self.path == "/v1/traces" and self.headers["content-type"] == "application/json"
        # In JSON, ids are hexadecimal digits.
        said = json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"]
        for span, sent in zip(request.resource_spans[0].scope_spans[0].spans, said, strict=True):
            assert len(bytes.fromhex(sent["traceId"])) == 16 and len(bytes.fromhex(sent["spanId"])) == 8
            assert span.start_time_unix_nano <= span.end_time_unix_nano
            print(json.dumps({**sent, "kind": span.kind}), flush=True)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
server.serve_forever()
