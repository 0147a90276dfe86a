"""Clients of the doors that speak MCP."""
import http.client
import json

import gate

BOTH = "application/json, text/event-stream"
JSON = "application/json"


class Gate(gate.Gate):
    def ask(self, method, path, body=None, **fields):
        """(status, headers, body)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request(method, path, body, {
            k.replace("_", "-"): v for k, v in fields.items()})
        r = c.getresponse()
        got = (r.status, r.headers, r.read())
        c.close()
        return got


def rpc(id_, method, **params):
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method,
                       "params": params})


class Client:
    """One that speaks as the specification has it."""

    def __init__(self, d, path="/mcp", version="2025-11-25", caps=None,
                 **fields):
        self.d, self.path, self.fields = d, path, fields
        self.session = {}
        self.hello = self.post(rpc(0, "initialize", protocolVersion=version,
                                   capabilities=caps or {}, clientInfo={
                                       "name": "t", "version": "1"}))
        self.id = self.hello[1].get("Mcp-Session-Id")
        self.session = {"Mcp_Session_Id": self.id,
                        "MCP_Protocol_Version": version}
        self.post('{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def post(self, body, **fields):
        """A single answer comes as an event: (status, headers, its data)"""
        status, head, got = self.d.ask(
            "POST", self.path, body, Accept=BOTH, Content_Type=JSON,
            **self.session, **{**self.fields, **fields})
        start = b"event: message\ndata: "
        if got.startswith(start) and got.endswith(b"\n\n"):
            got = got[len(start):-2]
        return status, head, got

    def call(self, id_, method, **params):
        return json.loads(self.post(rpc(id_, method, **params))[2])

    def stream(self):
        """A GET that stays open."""
        c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=60)
        c.request("GET", self.path, headers={
            "Accept": "text/event-stream", "Mcp-Session-Id": self.id})
        return c, c.getresponse()

    def open(self, body):
        c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=60)
        c.request("POST", self.path, body, {
            "Accept": BOTH, "Content-Type": JSON, "Mcp-Session-Id": self.id})
        return c, c.getresponse()


def event(r):
    """The data of the next event, as it came; None at the end."""
    data = []
    while True:
        line = r.readline()
        if not line:
            return None
        line = line.rstrip(b"\n")
        if line.startswith(b"data: "):
            data.append(line[6:])
        elif not line and data:
            return b"\n".join(data)


def said(got):
    return got["result"]["content"][0]["text"]
