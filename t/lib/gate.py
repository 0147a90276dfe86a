"""A sallyport of a test's own, and a client that sees every byte."""
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(os.environ.get("SP_BUILDDIR", "."))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
VARIANT = os.environ.get("SP_VARIANT", "")
# How long a test waits for what must come; no test passes by waiting.
PATIENCE = 60


def program(name):
    path = os.path.join(BUILD, name)
    if not os.access(path, os.X_OK):
        sys.exit(f"{path} is not there: build it, and name its folder in "
                 "SP_BUILDDIR")
    return path


def confined():
    """A build that has none of the hooks that tests use."""
    return "not built in" not in subprocess.run(
        [program("sallyport"), "-V"], text=True, capture_output=True,
        check=True).stdout


def until(condition, what="what a test waits for"):
    """Polls until the condition gives something; an error when it does not."""
    end = time.monotonic() + PATIENCE
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come in {PATIENCE} s")
        time.sleep(0.005)


def becomes(look, want):
    """What look() gives, once that is what is wanted: of one and the same look,
    for what is so at one moment need not be at the next."""
    end = time.monotonic() + PATIENCE
    while True:
        got = look()
        if got == want or time.monotonic() > end:
            return got
        time.sleep(0.005)


class Gate:
    """
    One running sallyport.  conf holds upstreams, captures and servers; a
    server takes `listen 127.0.0.1:0;`, and addresses has what it became.
    """

    def __init__(self, conf, main="", env=None, args=(), wait=True, uid=None):
        self.tmp = tempfile.TemporaryDirectory(prefix="sp-")
        # the recorder has a uid of its own: it must get to its folder
        os.chmod(self.tmp.name, 0o755)
        self.state = os.path.join(self.tmp.name, "state")
        self.conf = os.path.join(self.tmp.name, "sallyport.conf")
        self.log_path = os.path.join(self.tmp.name, "log")
        with open(self.conf, "w") as f:
            f.write(f"state_dir {self.state};\n"
                    f"error_log stderr info;\n{main}\n{conf}\n")
        argv = [program("sallyport"), *args, "-c", self.conf]
        if uid is not None:  # an ordinary user's, and started by root
            os.chown(self.tmp.name, uid, uid)
            argv = ["setpriv", f"--reuid={uid}", f"--regid={uid}",
                    "--clear-groups", *argv]
        self.start(argv, env, wait)

    def start(self, argv, env=None, wait=True):
        self.argv = argv
        self.env = {**os.environ, **(env or {})}
        with open(self.log_path, "ab") as log:
            self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=log, env=self.env)
        self.addresses = []
        if wait:
            line = until(self.ready, "readiness of " + " ".join(argv))
            self.addresses = re.findall(r"[^\s,]+", line)
            self.port = next((int(a.rsplit(":", 1)[1])
                              for a in self.addresses if "unix:" not in a),
                             None)

    def ready(self):
        lines = re.findall(r"ready: listening on ([^\n\"]+)", self.log())
        if lines:
            return lines[-1]
        if self.p.poll() is not None:
            raise RuntimeError(f"sallyport ended with {self.p.returncode}: "
                               + self.log())
        return None

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def trace_path(self, session="default"):
        return os.path.join(self.state, "traces", session + ".jsonl")

    def lines(self, session="default"):
        """The trace's whole lines, as bytes."""
        try:
            with open(self.trace_path(session), "rb") as f:
                text = f.read()
        except FileNotFoundError:
            return []
        return text.split(b"\n")[:-1]

    def records(self, session="default"):
        return [strict(x) for x in self.lines(session)]

    def record(self, n, session="default"):
        """The nth line (from 0); waits for it."""
        until(lambda: len(self.lines(session)) > n, f"line {n} of the trace")
        return strict(self.lines(session)[n])

    def ctl(self, *args, stdin=b""):
        """Of sallyportctl, over the control socket that self.socket names."""
        r = subprocess.run([program("sallyportctl"), "-S", self.socket,
                            *args], input=stdin, capture_output=True,
                           check=False, timeout=120)
        return r.returncode, r.stdout.decode(), r.stderr.decode()

    def children(self):
        """{name: pid} of the processes beneath."""
        out = {}
        for pid in os.listdir("/proc"):
            if not pid.isdigit():
                continue
            try:
                with open(f"/proc/{pid}/stat") as f:
                    stat = f.read()
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    argv = f.read().split(b"\0")
            except OSError:
                continue
            if int(stat.rsplit(")", 1)[1].split()[1]) == self.p.pid:
                out[os.path.basename(argv[0].decode())] = int(pid)
        return out

    def stop(self, how=signal.SIGTERM):
        """The exit status; kills it when it does not go."""
        if self.p.poll() is None:
            self.p.send_signal(how)
        try:
            return self.p.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
            return None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        status = self.stop()
        if kind is not None:
            print("# log of sallyport:\n# "
                  + self.log()[-3000:].replace("\n", "\n# "))
        elif status != 0:
            print(f"not ok - sallyport ended with status {status}\n# "
                  + self.log()[-3000:].replace("\n", "\n# "))
            sys.exit(1)
        self.tmp.cleanup()

    def connect(self, port=None, rcvbuf=None):
        s = socket.socket()
        if rcvbuf:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        s.settimeout(PATIENCE)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.connect(("127.0.0.1", port or self.port))
        return s

    def post(self, body, path="/v1/chat/completions", headers=(), **kw):
        return Reply(self.connect(), request(body, path, headers, **kw))

    def get(self, path, headers=(), method="GET"):
        return Reply(self.connect(), request(None, path, headers, method))


def strict(line):
    """JSON as the standard has it: no NaN, no Infinity."""
    def refuse(word):
        raise ValueError(f"{word} is not JSON")
    return json.loads(line.decode("utf-8"), parse_constant=refuse)


def request(body, path="/v1/chat/completions", headers=(), method=None,
            version="1.1", close=True):
    if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    method = method or ("GET" if body is None else "POST")
    head = [f"{method} {path} HTTP/{version}"]
    if version != "1.0":
        head.append("Host: gate")
        if close:
            head.append("Connection: close")
    if body is not None:
        head.append("Content-Type: application/json")
        head.append(f"Content-Length: {len(body)}")
    head += [f"{k}: {v}" for k, v in headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + (body or b"")


class Reply:
    """
    What came back.  chunks: pieces as HTTP framed them.  whole: it ended as
    its framing says; else it was cut off (how: fin or rst).
    """

    def __init__(self, sock, data=None, read=True):
        self.s = sock
        self.buf = b""
        self.how = ""
        if data is not None:
            sock.sendall(data)
        if read:
            self.read()

    def more(self):
        try:
            got = self.s.recv(262144)
        except ConnectionResetError:
            got, self.how = b"", "rst"
        if not got:
            self.how = self.how or "fin"
            return False
        self.buf += got
        return True

    def until(self, mark):
        """The bytes up to and with the mark, or None when it ended."""
        while mark not in self.buf:
            if not self.more():
                return None
        i = self.buf.index(mark) + len(mark)
        out, self.buf = self.buf[:i], self.buf[i:]
        return out

    def exactly(self, n):
        while len(self.buf) < n:
            if not self.more():
                return None
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def head(self):
        text = self.until(b"\r\n\r\n")
        if text is None:
            self.status, self.headers, self.fields = 0, {}, []
            return False
        lines = text.decode("latin-1").split("\r\n")
        self.version, code = lines[0].split(" ")[:2]
        self.status = int(code)
        self.fields = [tuple(x.split(": ", 1)) if ": " in x else
                       (x.rstrip(":"), "") for x in lines[1:] if x]
        self.headers = {k.lower(): v for k, v in self.fields}
        if 100 <= self.status < 200:
            self.interim = self.status
            return self.head()
        return True

    def chunk(self):
        """The next piece of a chunked body; b'' at its end, None when cut."""
        line = self.until(b"\r\n")
        if line is None:
            return None
        n = int(line.split(b";")[0], 16)
        if n == 0:
            return b"" if self.until(b"\r\n") is not None else None
        data = self.exactly(n + 2)
        return None if data is None else data[:-2]

    def read(self, method="POST"):
        self.body, self.chunks, self.whole = b"", [], False
        self.interim = None
        if not self.head():
            return self
        if self.headers.get("transfer-encoding") == "chunked":
            while True:
                c = self.chunk()
                if not c:
                    self.whole = c == b""
                    break
                self.chunks.append(c)
            self.body = b"".join(self.chunks)
        elif "content-length" in self.headers:
            n = int(self.headers["content-length"])
            got = self.exactly(n)
            self.whole = got is not None
            self.body = got if got is not None else self.buf
        else:
            while self.more():
                pass
            self.body, self.whole = self.buf, self.how == "fin"
        return self

    def json(self):
        return strict(self.body)

    def gone(self):
        """Whether the other side closed it, within patience."""
        r, _, _ = select.select([self.s], [], [], PATIENCE)
        if not r:
            return False
        try:
            return self.s.recv(1) == b""
        except ConnectionResetError:
            return True

    def reset(self):
        """Leaves with RST."""
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                          b"\1\0\0\0\0\0\0\0")
        self.s.close()
