"""A load on a server of keys that runs in the current directory, and the check of what a power cut left of it.

servers.py redis|etcd BINARY write HOW ROWS   a row after the other, acknowledged on descriptor 3 once it is durable
servers.py redis|etcd BINARY check            reads acknowledged numbers, prints `lost NUMBER`
"""

import base64
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time


def value(row):
    return b"%08d" % row * 100


class Server:
    """A server process with a connection to it."""

    def __init__(self, arguments, connect):
        self.child = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not connect():
            if self.child.poll() is not None or time.monotonic() > end:
                self.child.kill()
                sys.exit("the server does not start")
            time.sleep(0.005)

    def end(self):
        self.child.kill()
        self.child.wait()


class Redis(Server):
    """Redis with an append-only file; HOW is its appendfsync."""

    durable = "always"

    def __init__(self, binary, how, place):
        self.path = os.path.join(place, "socket")
        manifest = "appendonlydir/appendonly.aof.manifest"
        if os.path.exists(manifest):
            # It starts when its last record is short, and asks for this when a part within it is not there.
            fix = [os.path.join(os.path.dirname(binary), "redis-check-aof"), "--fix", manifest]
            subprocess.run(fix, input=b"y\n", stdout=subprocess.DEVNULL, check=True)
        options = ["--port", "0", "--unixsocket", self.path, "--save", "", "--appendonly", "yes", "--appendfsync", how]
        super().__init__([binary, *options, "--dir", os.getcwd()], self.connect)

    def connect(self):
        try:
            self.link = socket.socket(socket.AF_UNIX)
            self.link.connect(self.path)
            self.replies = self.link.makefile("rb")
            return self.call(b"PING") == b"+PONG\r\n"
        except OSError:
            return False

    def call(self, *words):
        self.link.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        line = self.replies.readline()
        if line[:1] != b"$":
            return line
        size = int(line[1:])
        return None if size < 0 else self.replies.read(size + 2)[:-2]

    def put(self, row):
        reply = self.call(b"SET", b"row %d" % row, value(row))
        assert reply == b"+OK\r\n", reply

    def get(self, row):
        return self.call(b"GET", b"row %d" % row)


class Etcd(Server):
    """etcd of one member; HOW is `sync` or `nosync`."""

    durable = "sync"

    def __init__(self, binary, how, place):
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            self.port, peers = one.getsockname()[1], f"http://127.0.0.1:{other.getsockname()[1]}"
        clients = f"http://127.0.0.1:{self.port}"
        # Its only member is known by the address that it advertises: always the same.
        options = ["--data-dir", "store", "--listen-client-urls", clients, "--advertise-client-urls", clients]
        options += ["--listen-peer-urls", peers, "--heartbeat-interval", "10", "--election-timeout", "50"]
        options += ["--snapshot-count", "20"] + (["--unsafe-no-fsync"] if how == "nosync" else [])
        super().__init__([binary, *options], self.connect)

    def connect(self):
        try:
            return "header" in self.call("range", {"key": base64.b64encode(b"any").decode()})
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def call(self, what, body):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        link.request("POST", f"/v3/kv/{what}", json.dumps(body))
        return json.loads(link.getresponse().read())

    def put(self, row):
        key, text = (base64.b64encode(it).decode() for it in (b"row %d" % row, value(row)))
        reply = self.call("put", {"key": key, "value": text})
        assert "header" in reply, reply

    def get(self, row):
        found = self.call("range", {"key": base64.b64encode(b"row %d" % row).decode()}).get("kvs")
        return base64.b64decode(found[0]["value"]) if found else None


kind = {"redis": Redis, "etcd": Etcd}[sys.argv[1]]
writes = sys.argv[3] == "write"
lost = []
with tempfile.TemporaryDirectory() as place:
    server = kind(sys.argv[2], sys.argv[4] if writes else kind.durable, place)
    if writes:
        for row in range(int(sys.argv[5])):
            server.put(row)
            os.write(3, b"%d\n" % row)
    else:
        lost = [row for row in sys.stdin.read().split() if server.get(int(row)) != value(int(row))]
    server.end()
for row in lost:
    print("lost", row)
sys.exit(bool(lost))
