#!/usr/bin/python3
"""Programs in fresh episodes, by sallyportctl exec and what goes with it.

Everything is real: helper, keepers, control groups, namespaces.  It runs in a
network and a mount namespace of its own.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
from upstream import Raw, unary  # noqa: E402

CTL = gate.program("sallyportctl")
KEY = "the-upstream-key-that-nobody-inside-sees"
GOOD = {"id": "x", "object": "chat.completion", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "hello inside"},
     "finish_reason": "stop"}]}
CONF = """
upstream u {{ server http://127.0.0.1:{port}/v1; api_key env:SP_TEST_KEY; }}
capture c {{ level text; trace traces/$session.jsonl; }}
environment echo {{
    workspace {seed}; workspace_size 64m; episodes 3;
    sandbox {{ memory 128m; pids 64; uid {uid} 4096; }}
    inside 127.0.0.1:7000 {{
        location /v1 {{ llm_intercept; upstream u; capture c; }}
    }}
}}
environment net {{
    sandbox {{ memory 64m; uid {uid_net} 4096; }}
    egress {{ allow tcp 203.0.113.0/24 443; }}
}}
environment within {{
    workspace_size 4m; episodes 1;
    sandbox {{ memory 64m; tmp_size 4m; shm_size 1m;
        read_only /usr /bin /sbin /lib /lib64 /etc/alternatives {tools}; }}
}}
environment brief {{
    workspace_size 4m; episodes 1;
    sandbox {{ memory 64m; tmp_size 4m; shm_size 1m; lifetime 1s; }}
}}
server {{ listen 127.0.0.1:0; location /health {{ health; }} }}
"""
ASK = """
import json, sys, urllib.request
q = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
r = urllib.request.Request("http://127.0.0.1:7000/v1/chat/completions",
    json.dumps(q).encode(), {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(r))["choices"][0]["message"]["content"])
"""
# Every file and environment that can be read inside, for a word.
HUNT = """
import os, sys
word = sys.argv[1].encode()[::-1]
found = []
for top in ("/proc", "/etc", "/tmp", "/workspace", "/home", "/dev"):
    for at, dirs, files in os.walk(top):
        for f in files:
            path = os.path.join(at, f)
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                if word in os.read(fd, 1 << 20):
                    found.append(path)
            except OSError:
                pass
            finally:
                os.close(fd)
print(found)
"""


def own_namespaces():
    """Once more, where links, rules and mounts are nobody else's."""
    if os.environ.get("SP_SANDBOX_EXEC") == "own":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        with open("/proc/sys/net/ipv4/ip_forward", "w",
                  encoding="utf-8") as f:
            f.write("1")
        return
    env = dict(os.environ, SP_SANDBOX_EXEC="own")
    os.execvpe("unshare", ["unshare", "-n", "-m", "--propagation", "private",
                           sys.executable, os.path.abspath(__file__)], env)


class Daemon(gate.Gate):
    def __init__(self, up, folder, **kw):
        self.socket = os.path.join(folder, "c.sock")
        self.seed = os.path.join(folder, "seed")
        os.makedirs(self.seed, exist_ok=True)
        with open(os.path.join(self.seed, "hello"), "w",
                  encoding="utf-8") as f:
            f.write("hello\n")
        self.tools = os.path.join(folder, "tools")
        os.makedirs(self.tools, exist_ok=True)
        say = os.path.join(self.tools, "say")
        with open(say, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho said\n")
        os.chmod(say, 0o755)
        uid = 400000 + os.getpid() % 1000 * 8192
        super().__init__(CONF.format(port=up.port, seed=self.seed, uid=uid,
                                     uid_net=uid + 4096,
                                     tools=self.tools),
                         main=f"control {self.socket};",
                         env={"SP_TEST_KEY": KEY}, **kw)

    def ctl(self, *args, stdin=b"", timeout=gate.PATIENCE):
        r = subprocess.run([CTL, "-S", self.socket, *args], input=stdin,
                           capture_output=True, check=False, timeout=timeout)
        return r.returncode, r.stdout, r.stderr

    def exec(self, *args, **kw):
        return self.ctl("exec", "echo", "--", *args, **kw)

    def spawn(self, *args, **kw):
        return subprocess.Popen([CTL, "-S", self.socket, *args],
                                stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **kw)

    def episodes(self):
        rc, out, _ = self.ctl("episodes", "--json")
        return json.loads(out)["episodes"] if rc == 0 else None


def keepers(d):
    """Keepers (and pid 1 of sandboxes) beneath this daemon's helper."""
    parents, out = {}, []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                text = f.read()
        except OSError:
            continue
        parents[int(pid)] = (int(text.rsplit(")", 1)[1].split()[1]),
                             text.split("(", 1)[1].rsplit(")", 1)[0])
    for pid, (_, name) in parents.items():
        at = pid
        while at in parents and at != d.p.pid:
            at = parents[at][0]
        if at == d.p.pid and name.startswith("sallyport-init"):
            out.append(pid)
    return out


def left(d):
    """What episodes of that daemon have left on this host."""
    links = [x for x in os.listdir("/sys/class/net") if x.startswith("sp-")]
    with open("/proc/self/mounts", encoding="utf-8") as f:
        mounts = [x for x in f if d.tmp.name in x]
    with open(os.path.join(d.state, "slots"), encoding="utf-8") as f:
        text = f.read()
    m = re.search(r"^block (\d+)$", text, re.M)
    ours = range(0)
    if m:
        ours = range(int(m[1]) * 2048, (int(m[1]) + 1) * 2048)
    # where this daemon has its groups: others' are theirs
    groups = [os.path.join(at, x)
              for at in re.findall(r"^cgroup \d (.+)$", text, re.M)
              for x in os.listdir(at) if x.startswith("slot-")
              and int(x.split("-")[1]) in ours]
    return [links, tables(), mounts, groups, keepers(d)]


def tables():
    r = subprocess.run(["nft", "list", "tables"], capture_output=True,
                       text=True, check=False)
    return [x for x in r.stdout.splitlines() if "sallyport" in x]


NOTHING = [[], [], [], [], []]


def all_gone(d, what):
    tap.eq(gate.becomes(lambda: left(d), NOTHING), NOTHING, what)


# ---- programs ---------------------------------------------------------------

def statuses(d):
    tap.eq(d.exec("/bin/true"), (0, b"", b""), "/bin/true")
    tap.eq(d.exec("/bin/sh", "-c", "echo out; echo err >&2; exit 7"),
           (7, b"out\n", b"err\n"), "its output, its errors, its status")
    tap.eq(d.exec("/bin/sh", "-c", "kill -9 $$")[0], 137, "a signal")
    rc, _, err = d.exec("/bin/nothing")
    tap.ok(rc == 127 and b"No such file" in err, "one that is not there",
           (rc, err))
    rc, _, err = d.exec("/etc/passwd")
    tap.ok(rc == 126 and b"Permission denied" in err,
           "one that cannot be run", (rc, err))
    rc, _, err = d.ctl("exec", "nowhere", "--", "/bin/true")
    tap.ok(rc == 125 and b"no environment of that name" in err,
           "an environment that is not there", (rc, err))
    rc, _, err = d.ctl("exec", "--timeout", "1.5", "echo", "--", "true")
    tap.ok(rc == 125 and b"whole seconds" in err,
           "half a second is told", err)
    tap.eq(d.ctl("exec", "--timeout", "1", "echo", "--", "sleep", "600")[0],
           124, "one that takes too long")
    rc, out, _ = d.ctl("exec", "--env", "A=b c", "--env", "SP_TEST_GONE",
                       "--cwd", "/tmp", "echo", "--", "/bin/sh", "-c",
                       'echo "$A $PWD $SP_TEST_GONE"')
    tap.eq((rc, out), (0, b"b c /tmp \n"), "its environment, its folder")
    tap.eq(d.ctl("exec", "echo")[0], 125, "no command is usage")
    for args, want in (
            (("reset",), b"reset: expected the id of one episode, got nothing"),
            (("diff", "--json", "--frozen"),
             b"diff: expected the id of one episode, got nothing"),
            (("exec", "--env", "=x", "echo", "--", "true"),
             b'exec: --env "=x": expected NAME=VALUE'),
            (("exec", "--cwd"), b'option "--cwd": expected a value'),
            (("exec", "--no", "x", "echo", "--", "true"),
             b'option "--no": expected --keep'),
            (("guarantees", "x"),
             b'guarantees: expected options alone, got "x"'),
            (("episodes", "end", "x"),
             b'episodes: expected list, or create')):
        rc, _, err = d.ctl(*args)
        tap.ok(rc in (2, 125) and want in err and b"usage:" in err,
               "what is wrong is said: " + " ".join(args), (rc, err))
    tap.eq(d.episodes(), [], "no episode is left")


def bytes_through(d):
    data = os.urandom(10 * 1024 * 1024)
    rc, out, _ = d.exec("cat", stdin=data)
    tap.ok(rc == 0 and out == data, "10 MiB through cat", (rc, len(out)))
    rc, out, _ = d.exec("/bin/sh", "-c", "cat >&2; echo done", stdin=b"x" * 70)
    tap.eq((rc, out), (0, b"done\n"), "to its errors")
    tap.eq(d.exec("/bin/true", stdin=data)[0], 0,
           "input that nobody reads holds nothing up")
    rc, out, _ = d.exec("/bin/sh", "-c", "(sleep 600; echo late) & echo now")
    tap.eq((rc, out), (0, b"now\n"),
           "output that a descendant holds open is not waited for")
    p = d.spawn("exec", "echo", "--", "cat", stdin=subprocess.PIPE)
    for word in (b"one\n", b"two\n"):
        p.stdin.write(word)
        p.stdin.flush()
        tap.eq(p.stdout.readline(), word, "line by line")
    p.stdin.close()
    tap.eq(p.wait(gate.PATIENCE), 0, "to the end of its input")
    p.stdout.close()
    p.stderr.close()


def looks(d):
    rc, out, _ = d.exec("ls", "/")
    tap.ok(rc == 0 and {"bin", "dev", "etc", "proc", "tmp", "usr",
                        "workspace"} <= set(out.decode().split())
           and b"sys" not in out.split(), "ls /", out)
    rc, out, _ = d.exec("ps", "-e")
    tap.ok(rc == 0 and len(out.splitlines()) <= 4, "ps sees its own", out)
    rc, out, _ = d.exec("free")
    tap.ok(rc == 0 and b"Mem:" in out, "free", out)
    rc, out, _ = d.exec("/bin/sh", "-c", "id -u; cat hello; hostname; pwd")
    lines = out.decode().split("\n")
    tap.ok(rc == 0 and int(lines[0]) >= 400000 and lines[1] == "hello"
           and lines[3] == "/workspace", "a user, a seed, a folder", out)
    rc, out, err = d.exec(
        "python3", "-c", "import multiprocessing as m\nif __name__ == "
        "'__main__':\n p = m.Pool(2)\n print(p.map(abs, [-1, -2, 3]))\n")
    tap.eq((rc, out), (0, b"[1, 2, 3]\n"), "python3, multiprocessing")
    if rc != 0:
        print("# " + err.decode(errors="replace").replace("\n", "\n# "))


def signals(d):
    p = d.spawn("exec", "echo", "--", "/bin/sh", "-c",
                "trap 'echo got; exit 9' TERM; echo up; "
                "while :; do sleep 0.05; done", stdin=subprocess.DEVNULL)
    tap.eq(p.stdout.readline(), b"up\n", "it is up")
    p.send_signal(signal.SIGTERM)
    out, _ = p.communicate(timeout=gate.PATIENCE)
    tap.eq((p.returncode, out), (9, b"got\n"), "a signal is passed on")
    p = d.spawn("exec", "echo", "--", "/bin/sh", "-c", "echo up; sleep 600",
                stdin=subprocess.DEVNULL)
    tap.eq(p.stdout.readline(), b"up\n", "another one is up")
    p.kill()
    p.wait()
    p.stdout.close()
    p.stderr.close()
    all_gone(d, "who is killed takes all with him")


def memory(d):
    rc, _, err = d.exec("python3", "-c",
                        "b = [bytearray(1 << 20) for _ in range(512)]")
    if rc == 0:
        tap.skip("too much memory", "no controller bounds it on this host")
    else:
        tap.ok(rc == 137 or rc == 1, "too much memory ends it", (rc, err))
    if rc == 137:
        rc, _, err = d.exec("/bin/sh", "-c", "python3 -c 'b = bytearray(512 "
                            "<< 20)'; exit 0")
        tap.ok(rc == 137 and b"oom" in err,
               "and its parent, whatever that says", (rc, err))
    tap.eq(d.exec("/bin/true")[0], 0, "and nothing else")


def lifetime(d):
    rc, _, err = d.ctl("exec", "brief", "--", "sleep", "1000")
    tap.ok(rc == 124 and b"timeout" in err, "its environment's lifetime, too",
           (rc, err))


def network(d):
    rc, out, err = d.ctl("exec", "net", "--", "/bin/sh", "-c",
                         "cat /proc/net/dev")
    if rc == 125:
        tap.skip("a network with rules", err.decode().strip())
        return
    tap.ok(rc == 0 and len(out.splitlines()) == 4,
           "with rules there is one device besides lo", (rc, out, err))
    rc, out, _ = d.exec("cat", "/proc/net/dev")
    tap.ok(rc == 0 and len(out.splitlines()) == 3, "without there is none",
           out)
    all_gone(d, "neither link nor rules stay")


def at_once(d):
    got = []

    def one(n):
        got.append(d.exec("/bin/sh", "-c", f"sleep 0.2; echo {n}"))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    tap.eq(sorted(got), [(0, b"0\n", b""), (0, b"1\n", b"")], "two at once")


# ---- one that stays ---------------------------------------------------------

def stays(d):
    rc, _, err = d.ctl("exec", "--keep", "echo", "--", "/bin/sh", "-c",
                       "echo new > new; rm hello; mkdir dir; echo x > /tmp/t")
    m = re.search(rb"episode (\S+)", err)
    tap.ok(rc == 0 and m is not None, "one that stays is named", err)
    me = m[1].decode()
    rc, out, _ = d.ctl("diff", "--json", me)
    changes = {c["path"]: c["change"] for c in
               map(json.loads, out.decode().splitlines())}
    tap.eq(changes, {"new": "created", "hello": "deleted", "dir": "created"},
           "its diff")
    tap.ok(b"A file" in d.ctl("diff", me)[1], "and for people")
    tap.eq(d.ctl("read", me, "/workspace/new"), (0, b"new\n", b""), "read")
    rc, _, err = d.ctl("read", me, "/workspace/none")
    tap.ok(rc == 1 and b"404" in err, "what is not there", err)
    d.ctl("exec", "--in", me, "--", "ln", "-s", "/etc/shadow", "link")
    tap.eq(d.ctl("read", me, "/workspace/link")[0], 1, "links are not read")
    data = os.urandom(300000)
    tap.eq(d.ctl("put", me, "/workspace/put", stdin=data)[0], 0, "put")
    tap.eq(d.ctl("exec", "--in", me, "--", "cat", "/workspace/put")[1], data,
           "is there")
    e = d.spawn("events", me)
    gate.until(lambda: d.ctl("exec", "--in", me, "--", "true")[0] == 0
               and select_line(e), "an event")
    tap.eq(d.ctl("freeze", me)[0], 0, "freeze")
    tap.eq([x["frozen"] for x in d.episodes()], [True], "is frozen")
    tap.eq(d.ctl("thaw", me)[0], 0, "thaw")
    cut = d.spawn("exec", "--in", me, "--", "/bin/sh", "-c",
                  "echo up; sleep 600", stdin=subprocess.DEVNULL)
    tap.eq(cut.stdout.readline(), b"up\n", "a command in it")
    rc, _, err = d.ctl("reset", me)
    tap.eq(rc, 0, "reset")
    _, err = cut.communicate(timeout=gate.PATIENCE)
    tap.ok(cut.returncode == 125 and b"the episode was reset" in err and
           b"lost" not in err, "which says why the command is cut",
           (cut.returncode, err))
    tap.eq(d.ctl("diff", me), (0, b"", b""), "nothing has changed")
    tap.eq(d.ctl("exec", "--in", me, "--", "/bin/sh", "-c",
                 "cat hello; ls /tmp"), (0, b"hello\n", b""),
           "the seed is back, and what lay elsewhere is gone")
    tap.eq(d.ctl("end", me)[0], 0, "end")
    out, _ = e.communicate(timeout=gate.PATIENCE)
    tap.ok(b'"event":"ended"' in out, "which its events tell", out[-300:])
    tap.eq(d.ctl("end", me)[0], 1, "once")


def select_line(p):
    return b"process_started" in p.stdout.readline()


def within(d):
    """What read_only has beneath /tmp is seen in the sandbox's own."""
    at = d.tools
    tap.eq(d.ctl("exec", "within", "--", f"{at}/say"), (0, b"said\n", b""),
           "a program beneath /tmp")
    rc, out, err = d.ctl("exec", "within", "--", "/bin/sh", "-c",
                         f"ls /tmp; echo x >/tmp/x && ls {at}; "
                         f"echo x >{at}/x; rm -f {at}/say; mv {at} /tmp/y; "
                         f"ls {at}")
    tap.eq((rc, out.decode().split()),
           (0, [at.split("/")[2], "say", "say"]),
           "nothing else of /tmp is seen, and /tmp may be written")
    tap.ok(err.count(b"Read-only file system") == 2 and
           os.listdir(at) == ["say"], "but not what is read-only there", err)


def model(d, up):
    up.play(unary(GOOD))
    rc, _, err = d.ctl("exec", "--keep", "echo", "--", "true")
    me = re.search(rb"episode (\S+)", err)[1].decode()
    rc, out, err = d.ctl("exec", "--in", me, "--", "python3", "-c", ASK)
    tap.eq((rc, out), (0, b"hello inside\n"), "the model, from inside")
    if rc != 0:
        print("# " + err.decode(errors="replace").replace("\n", "\n# "))
    tap.eq(up.last.headers.get("authorization"), f"Bearer {KEY}",
           "with the upstream's key")
    rec = d.record(0, me)
    tap.eq((rec["episode"], rec["session"]), (me, me),
           "the record names the episode")
    rc, out, _ = d.ctl("exec", "--in", me, "--", "python3", "-c", HUNT,
                       KEY[::-1])
    tap.eq((rc, out), (0, b"[]\n"), "nothing inside holds the key")
    rc, out, _ = d.ctl("exec", "--in", me, "--", "ls", "/sys/class/net")
    tap.ok(rc != 0, "and there is no /sys", out)
    seal = d.trace_path(me)[:-6] + ".seal"
    tap.ok(not os.path.exists(seal), "its trace is open as long as it lives")
    tap.eq(d.ctl("end", me)[0], 0, "it ends")
    gate.until(lambda: os.path.exists(seal), "the seal")
    with open(seal, encoding="utf-8") as f:
        tap.eq(json.loads(f.read().splitlines()[-1])["reason"], "end",
               "and with it its trace is sealed")


def warned(d):
    """A rule without effect is no error."""
    conf = os.path.join(d.tmp.name, "warned.conf")
    with open(conf, "w", encoding="utf-8") as f:
        f.write(f"state_dir {d.tmp.name}/other;\nenvironment e {{\n"
                "    sandbox { memory 64m; }\n    egress { via relay;\n"
                "        allow tcp 203.0.113.0/24 *;\n"
                "        allow tcp 203.0.113.7 443; } }\n"
                "server { listen 127.0.0.1:0; location /h { health; } }\n")
    r = subprocess.run([gate.program("sallyport"), "-t", "-c", conf],
                       capture_output=True, text=True, check=False)
    tap.ok(r.returncode == 0 and re.search(
        r" warn \S+ \S+/warned.conf:6: rule of \"egress\" has no effect: the "
        r"one at \S+/warned.conf:5 allows all of it; remove", r.stderr),
           "-t warns of a rule without effect", r.stderr)


# ---- deaths -----------------------------------------------------------------

def reactor_dies(d):
    p = d.spawn("exec", "echo", "--", "/bin/sh", "-c", "echo up; sleep 600",
                stdin=subprocess.DEVNULL)
    tap.eq(p.stdout.readline(), b"up\n", "one is up")
    os.kill(d.children()["sallyport-reactor"], signal.SIGKILL)
    tap.eq(p.wait(gate.PATIENCE), 125, "the reactor dies: so it says")
    p.stdout.close()
    p.stderr.close()
    gate.until(lambda: d.exec("/bin/true")[0] == 0, "the next reactor")
    all_gone(d, "and what it had is gone")


def keeper_dies(d):
    p = d.spawn("exec", "echo", "--", "/bin/sh", "-c", "echo up; sleep 600",
                stdin=subprocess.DEVNULL)
    tap.eq(p.stdout.readline(), b"up\n", "another one is up")
    for pid in keepers(d):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    tap.eq(p.wait(gate.PATIENCE), 125, "its keeper dies: it is lost")
    p.stdout.close()
    p.stderr.close()
    all_gone(d, "and nothing is left")
    tap.eq(d.exec("/bin/true")[0], 0, "the next one is fine")


def helper_dies(up, folder):
    d = Daemon(up, folder)
    p = d.spawn("exec", "echo", "--", "/bin/sh", "-c", "echo up; sleep 600",
                stdin=subprocess.DEVNULL)
    tap.eq(p.stdout.readline(), b"up\n", "one more is up")
    d.p.kill()
    d.p.wait()
    tap.eq(p.wait(gate.PATIENCE), 125, "the helper dies: so it says")
    p.stdout.close()
    p.stderr.close()
    d.start([gate.program("sallyport"), "-c", d.conf],
            {"SP_TEST_KEY": KEY}, wait=False)
    tap.ok(gate.until(lambda: d.exec("/bin/true")[0] == 0, "the next start"),
           "the next start works")
    all_gone(d, "and has cleaned up")
    d.stop()
    d.tmp.cleanup()


def main():
    walls.needed()
    own_namespaces()
    up = Raw()
    with tempfile.TemporaryDirectory(prefix="sp-exec-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        with Daemon(up, folder) as d:
            rc, _, err = d.exec("/bin/true")
            if not tap.ok(rc == 0, "a sandbox is to be had", err):
                tap.done()
            for test in (statuses, bytes_through, looks, signals, memory,
                         lifetime, network, at_once, within, warned, stays):
                test(d)
            model(d, up)
            all_gone(d, "everything is gone")
            reactor_dies(d)
            keeper_dies(d)
        helper_dies(up, folder)
    tap.done()


main()
