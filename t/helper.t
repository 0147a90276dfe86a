#!/usr/bin/python3
"""sallyport(8), the helper: command line, start, supervision, stop.

The roles are t/unit/fake_role, which does as it is told; see there.
"""
import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import tap  # noqa: E402

BUILD = os.environ.get("SP_BUILDDIR", ROOT)
PATIENCE = 60  # seconds until a hanging test is given up
IS_ROOT = os.geteuid() == 0
KEY = "sk-test-0123456789abcdef"


def setup():
    """A folder with the helper and, beside it, the fake roles."""
    tmp = tempfile.mkdtemp(prefix="sp-helper-")
    os.chmod(tmp, 0o755)
    bin_dir = os.path.join(tmp, "bin")
    os.mkdir(bin_dir, 0o700)
    for src, dst in (("sallyport", "sallyport"),
                     ("t/unit/fake_role", "sallyport-reactor"),
                     ("t/unit/fake_role", "sallyport-recorder")):
        path = os.path.join(BUILD, src)
        if not os.access(path, os.X_OK):
            shutil.rmtree(tmp)
            tap.skip_all(f"{path} is not built")
        shutil.copy(path, os.path.join(bin_dir, dst))
        os.chmod(os.path.join(bin_dir, dst), 0o755)
    return tmp, os.path.join(bin_dir, "sallyport")


TMP, BIN = setup()
ENV = {"PATH": "/usr/bin:/bin", "HOME": TMP,
       "XDG_STATE_HOME": os.path.join(TMP, "xdg")}
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LLVM_PROFILE_FILE",
             "GCOV_PREFIX", "GCOV_PREFIX_STRIP"):
    if name in os.environ:
        ENV[name] = os.environ[name]


def run(*args, env=None, cwd=TMP):
    return subprocess.run([BIN, *args], env={**ENV, **(env or {})}, cwd=cwd,
                          text=True, capture_output=True, timeout=PATIENCE,
                          check=False)


CONF = """
state_dir {dir}/state;
{main}
upstream {upstream} {{ server http://127.0.0.1:1/v1; api_key env:TEST_KEY; }}
capture c {{ trace {dir}/traces/$session.jsonl; }}
server {{
    listen 127.0.0.1:0;
    location /v1 {{ llm_intercept; upstream {upstream}; capture c;
                   keys open; }}
    location /health {{ health; }}
}}
"""
made = 0


def conf(upstream="m", main=""):
    """A configuration in a folder of its own; both paths."""
    global made
    made += 1
    folder = os.path.join(TMP, f"c{made}")
    os.mkdir(folder)
    path = os.path.join(folder, "sallyport.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONF.format(dir=folder, upstream=upstream, main=main))
    return path, folder


class Daemon:
    """A running helper; its standard error is read up to what is asked."""

    def __init__(self, *args, env=None, cwd=TMP, user=None):
        def become():
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
        self.text = ""
        self.p = subprocess.Popen(
            [BIN, *args], cwd=cwd, stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**ENV, "TEST_KEY": KEY, **(env or {})}, preexec_fn=become)

    def until(self, pattern):
        """Reads on until the pattern comes after what was found before."""
        while True:
            m = re.search(pattern, self.text)
            if m:
                self.text = self.text[m.end():]
                return m
            ready, _, _ = select.select([self.p.stderr], [], [], PATIENCE)
            chunk = os.read(self.p.stderr.fileno(), 65536) if ready else b""
            if not chunk:
                return None
            self.text += chunk.decode(errors="replace")

    def port(self):
        m = self.until(r"ready: listening on 127\.0\.0\.1:(\d+)")
        self.at = int(m.group(1)) if m else None
        return self.at

    def tell(self, line):
        with socket.create_connection(("127.0.0.1", self.at),
                                      timeout=PATIENCE) as s:
            s.sendall(line.encode() + b"\n")
            out = b""
            try:
                while chunk := s.recv(4096):
                    out += chunk
            except ConnectionError:
                pass
            return out.decode().strip()

    def info(self):
        return dict(kv.split("=", 1) for kv in self.tell("info").split())

    def wait(self):
        """The exit status; what is left of standard error is in text."""
        while True:
            chunk = os.read(self.p.stderr.fileno(), 65536)
            if not chunk:
                break
            self.text += chunk.decode(errors="replace")
        return self.p.wait(timeout=PATIENCE)

    def stop(self, signo=signal.SIGTERM):
        self.p.send_signal(signo)
        return self.wait()


def events(folder):
    try:
        with open(os.path.join(folder, "traces", "events"),
                  encoding="utf-8") as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_command_line():
    r = run("-V")
    tap.ok(r.returncode == 0 and "sallyport " in r.stdout and
           "compiler: " in r.stdout and "confinement: " in r.stdout,
           "-V says version, compiler and whether confinement is built in")
    r = run("-M")
    tap.ok(r.returncode == 0 and "llm_intercept" in r.stdout and
           "TURN_OPEN" in r.stdout, "-M lists modules and messages")
    r = run("--version")
    tap.ok(r.returncode == 0 and "compiler: " in r.stdout, "--version")
    r = run("--help")
    tap.ok(r.returncode == 0 and "usage:" in r.stdout, "--help")
    r = run()
    tap.ok(r.returncode == 1 and "-c FILE" in r.stderr and
           "examples/minimal.conf" in r.stderr and "proxy URL" in r.stderr,
           "without any configuration it says what to do", r.stderr)
    r = run("-h")
    tap.ok(r.returncode == 0 and "usage:" in r.stdout, "-h")
    for args, word in ((["-x"], "usage"), (["-s", "halt"], "expected stop"),
                       (["-t", "-V"], "at a time"), (["serve"], "serve"),
                       (["-c"], "usage")):
        r = run(*args)
        tap.ok(r.returncode == 2 and word in r.stderr,
               f"bad arguments: {' '.join(args)}", r.stderr)


def test_check():
    path, folder = conf()
    r = run("-t", "-c", path, env={"TEST_KEY": KEY})
    tap.eq((r.returncode, r.stdout), (0, f"configuration {path} is ok\n"),
           "-t: a good configuration")
    tap.ok(not os.path.exists(os.path.join(folder, "state")),
           "and nothing was made")
    r = run("-t", "-c", path)
    tap.ok(r.returncode == 1 and "TEST_KEY" in r.stderr and
           f"{path}:" in r.stderr, "-t: a secret that is not set", r.stderr)
    r = run("-t", "-c", path, "-g", "nonsense on;", env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and "nonsense" in r.stderr,
           "-g adds directives", r.stderr)
    r = run("-t", "-c", os.path.join(folder, "none"))
    tap.ok(r.returncode == 1 and "none" in r.stderr, "-t: no such file")
    r = run("-T", "-c", path)
    tap.ok(r.returncode == 0 and "drain_timeout 30s;" in r.stdout and
           "api_key env:TEST_KEY;" in r.stdout, "-T shows the defaults")
    r = run("-t", "-c", path, "-g", "server { listen 127.0.0.1:0; "
            "location /status { status; token env:SHORT; } }",
            env={"TEST_KEY": KEY, "SHORT": "x" * 15})
    tap.ok(r.returncode == 1 and
           "env:SHORT is shorter than 16 characters" in r.stderr,
           "-t: a token that is too short", r.stderr)
    path, _ = conf(main="user nosuchuser;")
    r = run("-t", "-c", path, env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and "nosuchuser" in r.stderr,
           "-t: a user that does not exist")
    path, _ = conf(main="user root;")
    r = run("-t", "-c", path, env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and "never run as root" in r.stderr,
           "-t: no role runs as root")
    r = run("-s", "stop", "-c", path)
    tap.ok(r.returncode == 1 and "nothing runs" in r.stderr,
           "-s with nothing to signal", r.stderr)


def test_secret_files():
    path, folder = conf()
    key = os.path.join(folder, "key")
    with open(path, encoding="utf-8") as f:
        text = f.read().replace("env:TEST_KEY", f"file:{key}")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)

    def check(what, word, content=KEY + "\n", mode=0o600):
        with open(key, "w", encoding="utf-8") as f:
            f.write(content)
        os.chmod(key, mode)
        r = run("-t", "-c", path)
        tap.ok((r.returncode == 0) == (word is None) and
               (word or "") in r.stderr and KEY not in r.stderr, what,
               r.stderr)

    check("a secret from a file", None)
    check("one that others can write", "can be written", mode=0o622)
    check("an empty one", "is empty", content="")
    check("one with control bytes", "control bytes", content="a\x01b")
    check("one of two words", "has spaces", content="a b")
    check("a huge one", "too long", content="x" * 20000)
    os.unlink(key)
    os.mkfifo(key)
    r = run("-t", "-c", path)
    tap.ok(r.returncode == 1 and "regular" in r.stderr, "a fifo")
    os.unlink(key)
    r = run("-t", "-c", path)
    tap.ok(r.returncode == 1 and "does not exist" in r.stderr, "no file")
    with open(key + ".real", "w", encoding="utf-8") as f:
        f.write(KEY)
    os.chmod(key + ".real", 0o600)
    os.symlink(key + ".real", key)
    r = run("-t", "-c", path)
    tap.eq(r.returncode, 0, "through a symlink, as Kubernetes mounts them")


def test_proxy_flags():
    url = "http://127.0.0.1:9/v1"
    r = run("-T", "proxy", url, "--port", "0", "--trace", "x/t.jsonl",
            "--top-logprobs", "3", "--max-tokens-cap", "77",
            "--disable-thinking", "--model-override", 'a"; b',
            "--request-timeout", "2.5", env={"UPSTREAM_API_KEY": KEY})
    for want in (f"server {url};", "top_logprobs 3;", "max_tokens_cap 77;",
                 "thinking off;", "read_timeout 2500ms;", "level tokens;",
                 "listen 127.0.0.1:0", "api_key env:UPSTREAM_API_KEY;",
                 "location /healthz", "t.jsonl;"):
        tap.ok(want in r.stdout, f"proxy: {want}", r.stdout + r.stderr)
    tap.ok(KEY not in r.stdout, "and never the key")
    r = run("-T", "proxy", "--upstream-url", url, "--host", "::1")
    tap.ok(r.returncode == 0 and "listen [::1]:7000" in r.stdout and
           "api_key" not in r.stdout, "proxy: --upstream-url, IPv6, no key",
           r.stderr)
    r = run("-T", "proxy", url, env={
        "OPENCODE_UPSTREAM_API_KEY": "a" * 20, "UPSTREAM_API_KEY": "b" * 20})
    tap.ok("env:OPENCODE_UPSTREAM_API_KEY;" in r.stdout,
           "proxy: the first of both variables")
    for args, word in (
            ([], "no upstream"),
            ([url, url], "twice"),
            ([url, "--port", "70000"], "65535"),
            ([url, "--port", "7x"], "--port"),
            ([url, "--top-logprobs", "-1"], "--top-logprobs"),
            ([url, "--max-tokens-cap", "0"], "--max-tokens-cap"),
            ([url, "--request-timeout", "nan"], "--request-timeout"),
            ([url, "--trace", ""], "--trace"),
            ([url, "--upstream-api-key", "k"], "OPENCODE_UPSTREAM_API_KEY"),
            ([url, "--upstream-api-key=k"], "UPSTREAM_API_KEY"),
            ([url, "--nonsense"], "usage")):
        r = run("proxy", *args)
        tap.ok(r.returncode == 2 and word in r.stderr,
               f"proxy: refuses {' '.join(args) or 'nothing'}", r.stderr)
    r = run("-T", "proxy", url, "--host", "0.0.0.0")
    tap.ok(r.returncode == 0 and "listen 0.0.0.0:7000" in r.stdout and
           "status" not in r.stdout and "/healthz" in r.stdout,
           "proxy: no /status for others than this host", r.stderr)
    for args, word in ((["ftp://x"], "proxy: URL: "),
                       ([url, "--host", "nohost"], "proxy: --host and --p")):
        r = run("-t", "proxy", *args)
        tap.ok(r.returncode == 1 and word in r.stderr and
               "proxy:" in r.stderr and "proxy:2" not in r.stderr,
               f"proxy: {args} is named by its argument", r.stderr)
    r = run("-t", "proxy", url, env={"UPSTREAM_API_KEY": "a b"})
    tap.ok(r.returncode == 1 and "has spaces" in r.stderr and
           "UPSTREAM_API_KEY" in r.stderr, "proxy: a key that is none",
           r.stderr)
    tap.ok(run("proxy", "--help").stdout.startswith("usage:"),
           "proxy: --help")


def check_separation(i, d, folder):
    if not IS_ROOT:
        tap.eq(i["uid"], str(os.geteuid()), "the same user")
        return
    start = [e for e in events(folder) if e.startswith("start")]
    tap.ok(i["uid"] not in ("0", start[0].split()[1]) and
           i["gid"] != "0" and start[0] != "start 0",
           "two users, neither of them root", f"{i} {start}")
    st = os.stat(os.path.join(folder, "traces"))
    tap.eq((str(st.st_uid), stat.S_IMODE(st.st_mode)),
           (start[0].split()[1], 0o700), "traces are the recorder's alone")
    st = os.stat(os.path.join(folder, "state", "keys"))
    tap.eq((str(st.st_uid), stat.S_IMODE(st.st_mode)),
           (start[0].split()[1], 0o700), "and so are its keys")
    st = os.stat(os.path.join(folder, "state"))
    tap.eq((st.st_uid, stat.S_IMODE(st.st_mode)), (0, 0o700),
           "state_dir is root's")


def test_life():
    path, folder = conf(main=f"pid_file {TMP}/pid;")
    d = Daemon("-c", path)
    notice = d.until(r"reactor (runs as|and recorder run as)[^\n]*")
    tap.ok(notice, "one notice line says who runs as whom")
    tap.ok(d.port(), "ready, with the port that the kernel chose")
    i = d.info()
    check_separation(i, d, folder)
    tap.eq((i["secrets"], i["secret"]), ("1", KEY), "the secret arrived")
    tap.eq((i["proxy"], i["confine"], i["conf"], i["nnp"]),
           ("0", str(int(IS_ROOT)), "1", "1"), "flags, conf, no_new_privs")
    try:
        with open(f"/proc/{d.p.pid}/environ", "rb") as f:
            seen = f.read()
    except PermissionError:  # not dumpable: out of reach for its own user
        seen = b""
    tap.ok(KEY.encode() not in seen,
           "it is wiped from the helper's environment")
    with open(f"{TMP}/pid", encoding="utf-8") as f:
        tap.eq(f.read(), f"{d.p.pid}\n", "pid_file")
    r = run("-c", path, env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and str(d.p.pid) in r.stderr,
           "a second one on the state_dir is refused", r.stderr)
    tap.eq(d.tell("record 5"), "ok", "the roles reach each other")
    d.p.send_signal(signal.SIGHUP)
    tap.ok(d.until(r"is reloaded \(generation 2\)"), "SIGHUP reloads")
    tap.eq(d.info()["pid"], i["pid"], "and it serves on")
    with open(path, encoding="utf-8") as f:
        good = f.read()
    for bad, why in (("nonsense;", r"sallyport\.conf:\d+: .*nonsense"),
                     ("user nobody;", "change of user needs a restart"),
                     ("# fake_refuse", "refuses the configuration: told to"),
                     ("# fake_crash", "died over the new configuration")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(good + bad + "\n")
        d.p.send_signal(signal.SIGHUP)
        tap.ok(d.until(why), f"{bad} is refused")
        tap.ok(d.until("nothing has changed"), "and nothing changes")
    with open(path, "w", encoding="utf-8") as f:
        f.write(good)
    tap.ok(d.until("serves again") and d.until("serves again"),
           "the roles that died are started again")
    d.p.send_signal(signal.SIGHUP)
    tap.ok(d.until(r"is reloaded"), "a good one is taken again")
    tap.eq(d.tell("record 5"), "ok", "the roles reach each other again")
    r = run("-c", path, "-s", "reload")
    tap.eq((r.returncode, r.stderr), (0, ""), "-s reload waits")
    for bad, why in (("user nobody;", "change of user needs a restart"),
                     ("# fake_refuse", "refuses the configuration: told to")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(good + bad + "\n")
        r = run("-c", path, "-s", "reload", env={"TEST_KEY": KEY})
        tap.ok(r.returncode == 1 and why in r.stderr and
               "nothing has changed" in r.stderr,
               f"-s reload: {bad} is refused", r.stderr)
    with open(path, "w", encoding="utf-8") as f:
        f.write(good)
    r = run("-c", path, "-s", "drain")
    tap.eq(r.returncode, 0, "-s drain")
    tap.eq(d.wait(), 0, "ends with status 0")
    tap.ok("drained" in d.text, "after draining", d.text)
    tap.eq(events(folder)[-3:], ["delivered 5", "delivered 999", "stop 0"],
           "the recorder saw the reactor's last word, then stopped")
    tap.ok(gone(i["pid"]), "no role is left")
    tap.ok(not os.path.exists(f"{TMP}/pid"), "nor the pid_file")


def test_restarts():
    path, folder = conf()
    d = Daemon("-c", path)
    d.port()
    first = d.info()
    d.tell("crash")
    tap.ok(d.until(r"reactor died of signal"), "a reactor dies")
    tap.ok(d.until(r"reactor serves again"), "and another one serves")
    second = d.info()
    tap.ok(second["pid"] != first["pid"], "on the same listener")
    tap.eq((second["reactor"], second["recorder"], second["secret"]),
           ("1", "0", KEY), "counted, with its secrets")
    tap.eq(d.tell("record 7"), "ok", "it reaches the recorder")
    d.tell("record 666")
    tap.ok(d.until(r"recorder died of signal"), "a recorder dies")
    tap.ok(d.until(r"recorder serves again"), "and another one serves")
    third = d.info()
    tap.eq((third["pid"], third["recorder"]), (second["pid"], "1"),
           "the reactor is told")
    tap.eq(d.tell("record 8"), "ok", "and has a new socket to it")
    d.tell("lie")
    tap.ok(d.until(r"reactor broke the protocol"),
           "a reactor that breaks the protocol")
    tap.ok(d.until(r"reactor died of signal 9"), "is killed")
    tap.ok(d.until(r"reactor serves again"), "and replaced")
    tap.eq(d.info()["reactor"], "2", "counted")
    d.tell("record 667")
    tap.ok(d.until(r"recorder broke the protocol") and
           d.until(r"recorder serves again"), "likewise the recorder")
    tap.eq(d.tell("record 9"), "ok", "and all is well again")
    tap.eq(d.stop(), 0, "ends with status 0")
    tap.eq(events(folder)[-3:], ["delivered 9", "delivered 999", "stop 0"],
           "in the right order still")


def recorder_of(helper):
    """The pid of its fake recorder."""
    with open(f"/proc/{helper}/task/{helper}/children",
              encoding="ascii") as f:
        for pid in f.read().split():
            with open(f"/proc/{pid}/comm", encoding="ascii") as c:
                if c.read().strip() == "sallyport-recor":
                    return int(pid)
    return None


def test_hung():
    """A role that answers no PING; SP_PING_MS is a look, 12 are a minute."""
    if "not built in" not in run("-V").stdout:
        tap.skip("who hangs", "takes a minute in a build with confinement")
        return
    path, _ = conf()
    d = Daemon("-c", path, env={"SP_PING_MS": "200"})
    d.port()
    first = d.info()
    os.kill(int(first["pid"]), signal.SIGSTOP)
    tap.ok(d.until(f"reactor .pid {first['pid']}. has not answered for 2 s: "
                   "killed, another one is started"),
           "a reactor that is stopped is found out")
    tap.ok(d.until("reactor died of signal 9") and
           d.until("reactor is started again in") and
           d.until("reactor serves again"), "killed, and replaced")
    second = d.info()
    tap.eq((second["reactor"], second["recorder"]), ("1", "0"), "counted")
    os.kill(recorder_of(d.p.pid), signal.SIGSTOP)
    tap.ok(d.until(r"recorder .pid \d+. has not answered for 2 s: killed") and
           d.until("recorder serves again"), "likewise the recorder")
    third = d.info()
    tap.eq((third["pid"], third["recorder"]), (second["pid"], "1"),
           "and no other")

    # one that is busy, and tells so, for longer than the bound
    d.tell("busy")
    while int(d.info()["worked"]) < 40:
        time.sleep(0.1)
    fourth = d.info()
    tap.eq((fourth["pid"], fourth["reactor"]), (third["pid"], "1"),
           "one that tells of long work is let alone")

    # all of it stands still for longer than the bound
    pids = [d.p.pid, int(third["pid"]), recorder_of(d.p.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    d.p.send_signal(signal.SIGUSR1)
    woken = d.until("logs are opened again")
    tap.ok(woken, "stopped as a whole and woken")
    tap.eq(d.info()["pid"], third["pid"], "the reactor is the same")
    tap.eq(d.stop(), 0, "ends with status 0")
    tap.ok("has not answered" not in woken.string + d.text,
           "and nobody was late")


def test_stops():
    path, folder = conf()
    d = Daemon("-c", path)
    d.port()
    d.tell("hold")
    d.p.send_signal(signal.SIGTERM)
    tap.ok(d.until("draining"), "SIGTERM drains")
    d.p.send_signal(signal.SIGTERM)
    tap.eq(d.wait(), 0, "a second one stops at once")
    tap.eq(events(folder)[-1], "stop 0", "the recorder as usual")
    path, folder = conf(main="drain_timeout 1ms;")
    d = Daemon("-c", path)
    d.port()
    d.tell("hold")
    tap.eq(d.stop(), 0, "past drain_timeout it stops")
    tap.ok("drain_timeout is over" in d.text, "and says so", d.text)
    path, folder = conf()
    d = Daemon("-c", path)
    d.port()
    d.tell("hold")
    tap.eq(run("-c", path, "-s", "stop").returncode, 0, "-s stop")
    tap.eq(d.wait(), 0, "does not drain")
    d = Daemon("-c", path)
    d.port()
    pid = int(d.info()["pid"])
    d.p.kill()
    d.p.wait()
    fd = None
    try:
        fd = os.pidfd_open(pid)
        select.select([fd], [], [], PATIENCE)
    except ProcessLookupError:
        pass
    if fd is not None:
        os.close(fd)
    tap.ok(gone(pid), "the roles die with the helper")
    d = Daemon("-c", path)
    tap.ok(d.port(), "and the next one starts on what it left")
    tap.eq(d.stop(signal.SIGINT), 0, "SIGINT, too")


def test_failures():
    path, _ = conf(upstream="fake_fail_reactor")
    d = Daemon("-c", path)
    tap.eq(d.wait(), 1, "a reactor that cannot start ends it")
    tap.ok('reactor cannot start: told to "fail"' in d.text,
           "and why is told", d.text)
    tap.ok("reactor died" not in d.text and "reactor ended" not in d.text,
           "which is no crash", d.text)
    r = run("-t", "-c", path, env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and r.stderr.startswith('told to "fail"\n'),
           "-t: what a reactor finds is found without a start", r.stderr)
    path, _ = conf(upstream="fake_die_recorder")
    d = Daemon("-c", path)
    tap.eq(d.wait(), 1, "a recorder that dies at first, too")
    tap.ok("recorder ended with status 7" in d.text, "with its status",
           d.text)
    path, folder = conf()
    os.mkdir(os.path.join(folder, "state"))
    os.chmod(os.path.join(folder, "state"), 0o777)
    r = run("-c", path, env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and "can be written by others" in r.stderr,
           "a state_dir that others can write is refused", r.stderr)
    busy = socket.create_server(("127.0.0.1", 0))
    path, folder = conf()
    with open(path, encoding="utf-8") as f:
        text = f.read().replace(
            "127.0.0.1:0;", f"127.0.0.1:{busy.getsockname()[1]};")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    r = run("-c", path, env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and "in use" in r.stderr and
           f"{path}:" in r.stderr, "a port in use is named", r.stderr)
    busy.close()


def test_logs():
    path, folder = conf(main=f"error_log {TMP}/e.log notice;")
    log = os.path.join(TMP, "e.log")
    p = subprocess.Popen([BIN, "-c", path], env={**ENV, "TEST_KEY": KEY},
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = p.stdout.readline().decode()
    tap.ok(line.startswith("ready: listening on 127.0.0.1:"),
           "with the log in a file, ready is printed, too", line)
    d = Daemon.__new__(Daemon)
    d.p, d.text, d.at = p, "", int(line.rsplit(":", 1)[1])
    d.tell("log before")
    tap.eq(stat.S_IMODE(os.stat(log).st_mode), 0o640, "mode 0640")
    os.rename(log, log + ".1")
    tap.eq(run("-c", path, "-s", "reopen").returncode, 0, "-s reopen")
    # the helper's own line is the first in the new file; then ours, once
    # the reactor has taken the message: ask until it lands there
    for _ in range(2000):
        d.tell("log after")
        if os.path.exists(log):
            with open(log, encoding="utf-8") as f:
                if "reactor" in (new := f.read()):
                    break
    tap.ok("opened again" in new and "after" in new,
           "the roles write to the new file")
    with open(log + ".1", encoding="utf-8") as f:
        old = f.read()
    tap.ok("before" in old and "ready: listening" in old, "the old is kept")
    tap.eq(d.stop(), 0, "stops")
    os.unlink(log)
    os.symlink("/tmp/elsewhere", log)
    r = run("-c", path, env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and "symbolic link" in r.stderr,
           "a log that is a symlink is refused", r.stderr)


def test_proxy_runs():
    busy = socket.create_server(("127.0.0.1", 0))
    taken = busy.getsockname()[1]
    cwd = os.path.join(TMP, "cwd")
    os.mkdir(cwd)
    d = Daemon("proxy", "http://127.0.0.1:9/v1", "--port", "0", cwd=cwd,
               env={"OPENCODE_UPSTREAM_API_KEY": KEY})
    tap.ok(d.port(), "proxy: serves", d.text)
    tap.ok(d.until(f"base URL http://127.0.0.1:{d.at}/v1, trace {cwd}/"
                   "proxy_trace.jsonl"), "proxy: says where, and the trace")
    i = d.info()
    tap.eq((i["proxy"] != "0", i["secret"]), (True, KEY),
           "proxy: the flag, and the key from the environment")
    second = Daemon("proxy", "http://127.0.0.1:9/v1", "--port", "0", cwd=cwd)
    tap.eq(second.wait(), 1, "proxy: one on each trace")
    other = Daemon("proxy", "http://127.0.0.1:9/v1", "--port", "0",
                   "--trace", "other.jsonl", cwd=cwd)
    tap.ok(other.port(), "proxy: another trace, another proxy", other.text)
    tap.eq(other.stop(), 0, "proxy: stops")
    tap.eq(d.stop(), 0, "proxy: stops")
    r = run("proxy", "http://127.0.0.1:9/v1", "--port", str(taken),
            "--trace", "failed.jsonl", cwd=cwd)
    tap.ok(r.returncode == 1 and "in use" in r.stderr and
           "--host and --port" in r.stderr and
           not [x for x in os.listdir(cwd) if "failed" in x],
           "proxy: a failed start leaves nothing behind",
           f"{r.stderr} {os.listdir(cwd)}")
    d = Daemon("proxy", "http://127.0.0.1:9/v1", "--port", "0", "--host",
               "0.0.0.0", "--trace", "all.jsonl", cwd=cwd)
    tap.ok(d.until("no /status"), "proxy: every address, and what is left out",
           d.text)
    tap.eq(d.stop(), 0, "proxy: stops")
    link = os.path.join(cwd, "proxy_trace.jsonl")
    if IS_ROOT:
        tap.ok(os.path.islink(link), "proxy: as root the name is a link")
    else:
        tap.skip("proxy: as root the name is a link", "not root")


def test_ordinary_user():
    if not IS_ROOT:
        tap.skip("as an ordinary user", "these tests are that already")
        return
    os.chmod(os.path.dirname(BIN), 0o755)
    home = os.path.join(TMP, "home")
    os.mkdir(home)
    os.chown(home, 65534, 65534)
    d = Daemon("proxy", "http://127.0.0.1:9/v1", "--port", "0", cwd=home,
               user=65534, env={"HOME": home, "XDG_STATE_HOME": ""})
    tap.ok(d.until("nothing but their own confinement separates them"),
           "an ordinary user is told that there is no separation", d.text)
    tap.ok(d.port(), "and it serves all the same")
    i = d.info()
    tap.eq((i["uid"], i["confine"]), ("65534", "0"), "as that user")
    tap.eq(d.stop(), 0, "and stops")
    tap.ok(os.path.isdir(os.path.join(home, ".local/state/sallyport")),
           "its state is under XDG's default")


def test_users():
    """Whom the roles run as, and who may read what they write."""
    if not IS_ROOT:
        tap.skip("users and groups", "not root")
        return
    path, folder = conf(main="user nobody; trace_group 64890;")
    d = Daemon("-c", path)
    d.port()
    tap.eq(d.info()["uid"], "65534", "user with one name is the reactor's")
    tap.eq(events(folder)[1], "start 64802", "the recorder has its own")
    st = os.stat(os.path.join(folder, "traces"))
    tap.eq((st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)),
           (64802, 64890, 0o2750), "trace_group may read the traces")
    st = os.stat(os.path.join(folder, "traces", "events"))
    tap.eq(st.st_gid, 64890, "and what is made in them")
    st = os.stat(os.path.join(folder, "state"))
    tap.eq((st.st_gid, stat.S_IMODE(st.st_mode)), (64890, 0o710),
           "and pass through state_dir")
    d.stop()
    path, folder = conf(main="user nobody nobody;")
    r = run("-c", path, env={"TEST_KEY": KEY})
    two, _ = conf(main="user nobody 65534;")
    r2 = run("-c", two, env={"TEST_KEY": KEY})
    tap.ok(r2.returncode == 1 and "share uid" in r2.stderr,
           "one uid under two names, too", r2.stderr)
    tap.ok(r.returncode == 1 and "one user" in r.stderr,
           "one user for both is refused", r.stderr)
    path, folder = conf()
    os.mkdir(os.path.join(folder, "traces"))
    r = run("-c", path, env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and "chown" in r.stderr,
           "a trace directory of another user is never taken over", r.stderr)
    # what a recorder gone bad could put in its own folder
    os.rmdir(os.path.join(folder, "traces"))
    os.mkdir(os.path.join(folder, "victim"))
    os.symlink("victim", os.path.join(folder, "traces"))
    r = run("-c", path, env={"TEST_KEY": KEY})
    tap.ok(r.returncode == 1 and
           os.stat(os.path.join(folder, "victim")).st_uid == 0,
           "nor what a link points to", r.stderr)


def test_unix():
    path, folder = conf()
    sock = os.path.join(folder, "s")
    with open(path, encoding="utf-8") as f:
        text = f.read().replace("listen 127.0.0.1:0;",
                                f"listen 127.0.0.1:0; listen unix:{sock};")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    d = Daemon("-c", path)
    m = d.until(r"ready: listening on 127\.0\.0\.1:(\d+) unix:(\S+)")
    tap.ok(m and m.group(2) == sock, "a unix socket is listened on", d.text)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(PATIENCE)
        s.connect(sock)
        s.sendall(b"info\n")
        tap.ok(b"pid=" in s.recv(1000), "and served")
    d.p.kill()
    d.p.wait()
    d = Daemon("-c", path)
    tap.ok(d.port(), "a socket that was left behind is replaced", d.text)
    d.stop()
    tap.ok(not os.path.exists(sock), "and removed at the end")


def test_memory():
    """Every allocation fails once: a message and a status, never a crash."""
    if "not built in" not in run("-V").stdout:
        tap.skip("failing allocations", "not in a confined build")
        return
    path, _ = conf()
    for args in (["-T", "-c", path],
                 ["-t", "proxy", "http://127.0.0.1:9/v1"]):
        bad = []
        # every one of the first, then a sample: all of them take minutes
        n = 1
        while n < 20000:
            r = run(*args, env={"TEST_KEY": KEY, "SP_FAIL_ALLOC": str(n)})
            if r.returncode == 0:
                break
            if r.returncode not in (1, 2) or not r.stderr or \
                    "Sanitizer" in r.stderr:
                bad.append((n, r.returncode, r.stderr[:500]))
            n += 1 if n < 20 else 7
        tap.eq(bad, [], f"without memory: {' '.join(args[:2])}, {n} points")


def test_unwritable():
    if not IS_ROOT:
        tap.skip("a trace directory that cannot be written", "not root")
        return
    home = os.path.join(TMP, "home")
    d = Daemon("proxy", "http://127.0.0.1:9/v1", "--port", "0", cwd=TMP,
               user=65534, env={"HOME": home, "XDG_STATE_HOME": ""})
    tap.ok(d.wait() == 1 and "cannot be written" in d.text,
           "a trace directory that cannot be written is named", d.text)


def test_pid_1():
    """As the first process of a container it reaps what others left."""
    path, _ = conf()
    probe = subprocess.run(["unshare", "-pf", "true"], check=False,
                           capture_output=True) if IS_ROOT else None
    if probe is None or probe.returncode != 0:
        tap.skip("as pid 1", "no pid namespace to be had")
        return
    d = Daemon.__new__(Daemon)
    d.text = ""
    d.p = subprocess.Popen(
        ["unshare", "-pf", "--kill-child", BIN, "-c", path], env={
            **ENV, "TEST_KEY": KEY}, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL)
    tap.ok(d.port(), "as pid 1 it serves", d.text)
    with open(f"/proc/{d.p.pid}/task/{d.p.pid}/children",
              encoding="utf-8") as f:
        first = int(f.read().split()[0])
    subprocess.run(["nsenter", f"--pid=/proc/{first}/ns/pid", "sh", "-c",
                    "(true &) ; exit 0"], check=True)
    left = []
    for _ in range(2000):
        d.info()
        with open(f"/proc/{first}/task/{first}/children",
                  encoding="utf-8") as f:
            left = f.read().split()
        if len(left) == 2:
            break
    tap.eq(len(left), 2, "and reaps a child that is not its own")
    os.kill(first, signal.SIGTERM)
    tap.eq(d.wait(), 0, "and stops")


def test_notify():
    path, _ = conf()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.settimeout(PATIENCE)
    sock.bind(os.path.join(TMP, "notify"))
    d = Daemon("-c", path, env={"NOTIFY_SOCKET": os.path.join(TMP, "notify")})
    d.port()
    tap.eq(sock.recv(100), b"READY=1", "the service manager hears READY")
    d.stop()
    tap.eq(sock.recv(100), b"STOPPING=1", "and STOPPING")
    sock.close()


try:
    test_command_line()
    test_check()
    test_secret_files()
    test_proxy_flags()
    test_life()
    test_restarts()
    test_hung()
    test_stops()
    test_failures()
    test_logs()
    test_proxy_runs()
    test_ordinary_user()
    test_unwritable()
    test_users()
    test_unix()
    test_memory()
    test_pid_1()
    test_notify()
finally:
    shutil.rmtree(TMP, ignore_errors=True)
print(f"1..{tap.count}")
sys.exit(1 if tap.failed else 0)
