#!/usr/bin/python3
"""The grader's door, while the agent tries to be the grader."""
import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import inside  # noqa: E402
import mcp  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402
from mcp import Client, rpc, said  # noqa: E402

FIXTURES = os.path.join(ROOT, "t", "fixtures", "worker")
SCRATCH = inside.scratch_beside(FIXTURES)
TOKEN = "grader-token-0123456789"
SECRET = f"the-answer-is-{os.getpid()}"
ORACLE = """#!/bin/sh
cat "$OPENENVD_ASSETS/solution.txt"; cat /workspace/made; echo words >&2
test ! -s /workspace/much || cat /workspace/much
exit 3
"""


class Daemon(mcp.Gate):
    def __init__(self, folder, **kw):
        self.socket = os.path.join(folder, "control")
        seed = os.path.join(folder, "seed")
        assets = os.path.join(folder, "private")
        os.mkdir(seed)
        os.mkdir(assets, 0o700)
        for path, text in ((f"{seed}/kept", "kept\\n\n"),
                           (f"{seed}/gone", "gone\n"),
                           (f"{assets}/oracle.sh", ORACLE),
                           (f"{assets}/solution.txt", SECRET)):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(path, 0o700)
        uid = 400000 + os.getpid() % 1000 * 32768
        doors = ("location /mcp { mcp_agent; %s tools echo env.*; }\n")
        conf = (f"environment box {{ episodes 1; workspace {seed};\n"
                "  workspace_size 8m;\n"
                f"  worker stdio /usr/bin/python3 {FIXTURES}/rich.py;\n"
                f"  assets {assets} {{ oracle oracle.sh;\n"
                "    solution solution.txt; }\n"
                f"  sandbox {{ read_only {inside.HOST} {FIXTURES};\n"
                f"    read_write {SCRATCH}; memory 256m; tmp_size 64m;\n"
                f"    shm_size 16m; timeout 20s; env TMPDIR={SCRATCH};\n"
                f"    uid {uid} 4096; }}\n"
                "  process again { trust privileged; asset oracle; }\n"
                "  inside 127.0.0.1:8000 { " + doors % "" + " } }\n"
                "server { listen 127.0.0.1:0;\n"
                "  location /health { health; }\n"
                + doors % "environment box;" +
                "  location /mcp/grader { mcp_grader; environment box;\n"
                "    token env:GRADER; tools * grader.*;\n"
                "    fs_read /workspace/** /openenvd/assets/oracle*;\n"
                "    privileged_exec on; }\n}\n")
        self.access_path = os.path.join(folder, "access")
        self.data = None  # of the last error
        super().__init__(conf, main=f"control {self.socket};\n"
                         f"access_log {self.access_path};",
                         env={"GRADER": TOKEN}, **kw)

    def access(self):
        with open(self.access_path, encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def grade(self, tool, **arguments):
        """What the text holds, or the error."""
        status, _, body = self.ask(
            "POST", "/mcp/grader", rpc(1, "tools/call", name="grader." + tool,
                                       arguments=arguments),
            Authorization="Bearer " + TOKEN)
        if status != 200:
            return status
        got = json.loads(body)
        if "error" in got:
            self.data = got["error"]["data"]
            return got["error"]["code"], got["error"]["message"]
        return json.loads(said(got))


def tools(d):
    auth = {"Authorization": "Bearer " + TOKEN}
    got = json.loads(d.ask("POST", "/mcp/grader", rpc(
        1, "tools/list", cursor="p2"), **auth)[2])["result"]["tools"]
    own = {t["name"]: t["inputSchema"] for t in got
           if t["name"].startswith("grader.")}
    tap.eq(sorted(own), ["grader.fs_diff", "grader.get_full_state",
                         "grader.get_trajectory", "grader.read_file",
                         "grader.run_oracle", "grader.run_process"],
           "the grader's tools, and not the worker's of such names")
    tap.eq(own["grader.read_file"],
           {"type": "object", "properties": {"path": {"type": "string"}},
            "additionalProperties": False, "required": ["path"]},
           "with their schemas")
    tap.eq(own["grader.run_oracle"],
           {"type": "object", "properties": {}, "additionalProperties": False},
           "also of those that take nothing")
    c = Client(d, "/mcp/grader", **auth)
    got = c.call(2, "tools/call", name="secret.peek", arguments={})
    tap.eq(said(got), "secret.peek{}", "the worker's tools as well")
    tap.eq(json.loads(said(c.call(3, "tools/call", name="grader.read_file",
                                  arguments={"path": "/workspace/kept"}))),
           "kept\\n\n", "and to clients of the specification")


def grading(d, ep):
    failed = (-32603, "Environment operation failed")
    denied = (-32602, "Operation not permitted")
    tap.eq(d.grade("fs_diff"), [], "nothing changed")
    d.ctl("exec", "--in", ep, "--", "/bin/sh", "-c",
          "echo made > made; rm gone; ln -s /etc/passwd link; mkfifo pipe; "
          "printf '\\377' > bad; : > \"$(printf 'n\\377')\"; "
          "ln -s /openenvd/assets/oracle o")
    got = d.grade("fs_diff", since="reset")
    tap.eq([(x["path"], x["kind"]) for x in got],
           [("/workspace/bad", "create"), ("/workspace/gone", "delete"),
            ("/workspace/link", "create"), ("/workspace/made", "create"),
            ("/workspace/n\udcff", "create"), ("/workspace/o", "create"),
            ("/workspace/pipe", "create")], "what the agent did")
    tap.eq({x["path"]: x.get("type") for x in got}["/workspace/pipe"], "fifo",
           "special files are told as what they are")
    tap.eq(d.grade("read_file", path="/workspace/made"), "made\n", "a file")
    tap.eq(d.grade("read_file", path="/workspace/n\udcff"), "",
           "also of a name that is not UTF-8, as it was told")
    tap.eq(d.grade("read_file", path="/openenvd/assets/oracle"), ORACLE,
           "an asset")
    tap.eq(d.grade("read_file", path="/openenvd/assets/solution"), denied,
           "another, that fs_read has not")
    for path, want, reason in (
            ("/workspace/link", failed, "not_found"),
            ("/workspace/o", failed, "not_found"),
            ("/workspace/pipe", failed, "special"),
            ("/workspace/none", failed, "not_found"),
            ("/workspace", denied, "not_permitted"),
            ("/workspace/", failed, "not_found"),
            ("/workspace/bad", (-32602, "Invalid parameters"), "not_text"),
            ("/workspace/../etc/passwd", denied, "not_permitted"),
            ("/etc/passwd", denied, "not_permitted")):
        tap.eq(d.grade("read_file", path=path), want, f"not {path}")
        tap.eq((d.data["reason"], bool(d.data["remedy"])), (reason, True),
               "and why, and what to do")
    d.grade("run_process", name="none")
    tap.eq(d.data["reason"], "no_process", "a process that there is not")
    want = {"returncode": 3, "stdout": SECRET + "made\n", "stderr": "words\n",
            "links_removed": 1, "links_removed_paths": ["/workspace/o"]}
    tap.eq(d.grade("run_oracle"), want, "the oracle's verdict")
    tap.eq(d.grade("run_process", name="again"), want, "a process's")
    tap.eq(d.grade("get_full_state"),
           {"episode_id": "rich", "step_count": 0}, "the state")
    d.ask("POST", "/mcp", rpc(5, "tools/call", name="echo", arguments={"q": 1}))
    got = gate.until(lambda: [e for e in d.grade("get_trajectory")
                              if e["type"] == "harness_event"],
                     "the call among the events")
    tap.eq((got[-1]["data"]["source"], got[-1]["data"]["operation"],
            got[-1]["data"]["request"]["params"]["arguments"],
            got[-1]["data"]["response"]["id"]),
           ("daemon", "mcp", {"q": 1}, 5), "what was asked and answered")
    d.ask("POST", "/mcp/grader", rpc(6, "tools/call", name="echo",
                                     arguments={}),
          Authorization="Bearer " + TOKEN)
    d.ctl("worker", ep, "step", '{"n": 1}')
    got = [e["data"] for e in d.grade("get_trajectory")
           if e["type"] == "harness_event"][-3:]
    tap.eq([(e["operation"], e["principal"],
             e.get("error", {}).get("code")) for e in got],
           [("mcp", "agent", None), ("mcp", "grader", None),
            ("step", "operator", "worker_error")], "by whom, and what failed")


def verdicts(d, ep):
    """What the agent leaves neither forges a verdict nor takes it away."""
    d.ctl("exec", "--in", ep, "--", "/bin/sh", "-c",
          "ln -sf /openenvd/assets/solution.txt made; ln -s kept x")
    got = d.grade("run_oracle")
    tap.eq((got["stdout"], got["links_removed"], got["links_removed_paths"]),
           (SECRET, 2, ["/workspace/made", "/workspace/o"]),
           "a link of the agent's to an asset is none for the oracle")
    seen = [e["data"] for e in d.grade("get_trajectory")
            if e["type"] == "process" and e["data"].get("side") == "oracle"]
    tap.eq([e.get("links_removed") for e in seen][-2:], [2, 2],
           "which is among the events")
    for code, n, more in (("'x' * (2 << 20)", 1 << 20, {"stdout_truncated"}),
                          ("'a' + '\\u20ac' * (1 << 20)", None,
                           {"stdout_truncated"}),
                          ("'\\1' * (2 << 20)", 1 << 20,
                           {"stdout_truncated"})):
        d.ctl("exec", "--in", ep, "--", "/usr/bin/python3", "-c",
              "open('much', 'w').write(%s)" % code)
        got = d.grade("run_oracle")
        tap.ok(isinstance(got, dict) and got["returncode"] == 3 and
               n in (None, len(got["stdout"])) and
               more <= set(got) and "stdout_b64" not in got and
               "stderr_truncated" not in got,
               "of a flood the first MiB, and the status",
               str(got)[:200] + str(d.data))
    d.ctl("exec", "--in", ep, "--", "/bin/sh", "-c",
          "rm -f made; printf 'm\\377\\n' >much")
    got = d.grade("run_oracle")
    tap.eq((got["stdout"], base64.b64decode(got["stdout_b64"])),
           (SECRET + "m\ufffd\n", SECRET.encode() + b"m\xff\n"),
           "output that is not UTF-8 is told as text, and as it is")
    d.ctl("exec", "--in", ep, "--", "/bin/rm", "much", "x")


def agent(d, ep):
    """No door, encoding, case, path form or batch makes it the grader."""
    seen = []

    def tries(path, body, **fields):
        status, _, got = d.ask("POST", path, body, **fields)
        seen.append(got)
        return status

    one = rpc(1, "tools/call", name="grader.read_file",
              arguments={"path": "/openenvd/assets/oracle"})
    for path, want in (("/mcp/grader", 401), ("/mcp//grader", 401),
                       ("/mcp/./grader", 401), ("/x/../mcp/grader", 401),
                       ("/mcp/%67rader", 401), ("/mcp/grader/", 401),
                       ("/mcp/grader?token=" + TOKEN, 401),
                       ("/MCP/GRADER", 404), ("/mcp/grader/x", 404),
                       ("/mcp/x", 404), ("/mcp%2fgrader", 400)):
        tap.eq(tries(path, one), want, f"{path} is {want}")
    for auth in ("Bearer " + TOKEN[:-1], "Bearer " + TOKEN + "x",
                 "Basic " + TOKEN, TOKEN, "Bearer", "Bearer  "):
        tap.eq(tries("/mcp/grader", one, Authorization=auth), 401,
               f"{auth[:8]}... is no token")
    tap.eq(tries("/mcp", one, Authorization="Bearer " + TOKEN), 200,
           "the grader's token on the agent's door")
    c = Client(d)
    for name in ("grader.read_file", "grader.run_oracle", "GRADER.read_file",
                 "grader.read_file ", "gr\u0430der.read_file"):
        seen.append(c.post(rpc(1, "tools/call", name=name, arguments={
            "path": "/openenvd/assets/oracle"}))[2])
        seen.append(c.post(f"[{one},{one}]")[2])
    for cursor in ("", "p2"):
        seen.append(c.post(rpc(1, "tools/list", **(
            {"cursor": cursor} if cursor else {})))[2])
    tap.eq(c.d.ask("POST", "/mcp/grader", one, Mcp_Session_Id=c.id)[0], 401,
           "nor does a session")
    for host, want in (("", 403), (":80", 403), ("evil.example", 403),
                       ("localhost", 200)):
        with socket.create_connection(("127.0.0.1", d.port)) as s:
            s.sendall(("POST /mcp HTTP/1.1\r\nHost: %s\r\nConnection: close"
                       "\r\nContent-Type: application/json\r\n"
                       "Content-Length: %d\r\n\r\n" % (host, len(one))
                       ).encode() + one.encode())
            got = s.makefile("rb").readline()
        tap.ok(b" %d " % want in got, f"Host {host!r} is {want}", got)
    all_ = b"".join(seen)
    tap.ok(SECRET.encode() not in all_ and b"#!/bin/sh" not in all_ and
           b'"grader.' not in all_, "nothing of the grader's was seen", all_)
    code = ("import urllib.request as u, sys\n"
            "for p in sys.argv[1:]:\n"
            "  try: print(u.urlopen('http://127.0.0.1:8000' + p, "
            "b'{}').status)\n"
            "  except u.HTTPError as e: print(e.code)\n")
    rc, out, err = d.ctl("exec", "--in", ep, "--", "/usr/bin/python3", "-c",
                         code, "/mcp", "/mcp/grader", "/observe", "/ws")
    tap.eq((rc, out.split()), (0, ["200", "404", "404", "404"]),
           "inside there is the agent's door alone" + err)


def floods(d, ep):
    """However much there is, all of it can be had, in pieces."""
    d.ctl("exec", "--in", ep, "--", "/usr/bin/python3", "-c", """
import os
os.chdir("/workspace"); os.mkdir("f")
for i in range(20000):
    os.close(os.open("f/%05d" % i + "\\1" * 240, os.O_CREAT | os.O_WRONLY))
open("zz", "w").close()
""")
    got, seen, after = [], [], {}
    for _ in range(9):
        got = d.grade("fs_diff", **after)
        if not isinstance(got, list) or not got[-1].get("truncated"):
            break
        seen += got[:-1]
        after = {"after": got[-1]["next"]}
    tap.ok(isinstance(got, list) and len(seen) > 5000 and
           seen[-1]["path"] == after["after"], "a large diff is cut, and says "
           "so", (len(seen), str(got)[:200], d.data))
    seen += got
    names = [x["path"] for x in seen]
    tap.ok(names == sorted(names) and len(set(names)) == len(names) and
           sum(x.startswith("/workspace/f/") for x in names) == 20000 and
           "/workspace/zz" in names, "and has all, piece by piece",
           (len(names), names[-1:]))
    got = d.grade("fs_diff", since="reset", after="/workspace/f/19998", limit=1)
    tap.eq([(x["path"][:18], x["kind"], x.get("truncated", False))
            for x in got], [("/workspace/f/19998", "create", False),
                            ("/workspace", "modify", True)],
           "as many as are asked for")
    tap.eq(d.grade("fs_diff", after="/workspace/zz"), [], "or none is left")
    for args in ({"limit": 0}, {"limit": "1"}, {"limit": 1.5}, {"after": 1},
                 {"after": ""}, {"since": "x"}, {"x": 1}):
        tap.eq((d.grade("fs_diff", **args), d.data["reason"]),
               ((-32602, "Invalid parameters"), "bad_arguments"),
               f"not {args}")
    d.ctl("exec", "--in", ep, "--", "/bin/sh", "-c",
          "rm -rf f; head -c 400000 /dev/zero | tr '\\0' '\\1' >zz")
    whole = events_of(d, {})
    got = d.grade("get_trajectory", since=whole[3]["seq"], limit=2)
    tap.eq([x["seq"] for x in got], [x["seq"] for x in whole[3:6]],
           "events from a number on")
    tap.eq((got[2]["type"], got[2]["data"]["reason"]), ("gap", "truncated"),
           "with a word that more follow")
    tap.eq(len({x["seq"] for x in whole}), len(whole), "each once")
    got = d.grade("get_trajectory", since=1 << 40)
    tap.eq([(x["seq"], x["type"], x["data"]["reason"]) for x in got[:1]],
           [(1 << 40, "gap", "unknown")], "a number of before a reset is told")
    tap.eq([x["seq"] for x in got[1:4]], [x["seq"] for x in whole[:3]],
           "and what there is since")
    for args in ({"since": -1}, {"since": "0"}, {"limit": 0}, {"after": "x"}):
        tap.eq(d.grade("get_trajectory", **args),
               (-32602, "Invalid parameters"), f"not {args}")
    d.ctl("exec", "--in", ep, "--", "/bin/rm", "zz")


def events_of(d, args):
    """All that is kept, piece by piece."""
    out = []
    while True:
        got = d.grade("get_trajectory", **args)
        cut = got[-1] if got and got[-1]["type"] == "gap" else None
        if cut is None or cut["data"]["reason"] != "truncated":
            return out + got
        out += got[:-1]
        args = {"since": cut["seq"]}


def deep(d, ep):
    """Directories in directories hide nothing of what lies above them."""
    d.ctl("exec", "--in", ep, "--", "/usr/bin/python3", "-c", """
import os
open("/workspace/cheat", "w").close()
for i in range(9000):
    os.mkdir("d"); os.chdir("d")
""")
    got = d.grade("fs_diff")
    by = {x["path"]: x for x in got if isinstance(x, dict)}
    cut = [x for x in by.values() if x.get("unreadable")]
    tap.ok("/workspace/cheat" in by and len(cut) == 1 and
           cut[0]["path"] == "/workspace" + "/d" * 1921,
           "9000 directories deep: cut, and all else is told",
           (got if not by else cut, len(by)))
    rc, out, err = d.ctl("diff", ep)
    tap.ok("A file      cheat\n" in out and
           "A(unreadable) directory d/d/" in out,
           "the text of diff says where it could not look", out[-300:])
    rc, out, err = d.ctl("diff", "--json", ep)
    tap.ok(rc == 0 and '"cheat"' in out and '"unreadable":true' in out,
           "and by diff", (rc, err))


def while_reset(d, ep):
    """Until env/reset is answered there is nothing to judge."""
    d.ctl("exec", "--in", ep, "--", "/bin/sh", "-c", "mkfifo go; chmod 666 go")
    t = threading.Thread(target=d.ctl, args=("worker", ep, "reset",
                                             '{"hold": true}'))
    t.start()
    gate.until(lambda: d.ctl("read", ep, "begun")[0] == 0, "env/reset")
    for tool, args in (("run_oracle", {}), ("get_full_state", {}),
                       ("fs_diff", {}), ("run_process", {"name": "again"}),
                       ("read_file", {"path": "/workspace/kept"})):
        got = d.grade(tool, **args)
        tap.eq((got, d.data["reason"]),
               ((-32603, "Environment operation failed"), "not_live"),
               f"{tool} while the worker resets the episode")
    rc, _, err = d.ctl("grade", ep)
    tap.ok(rc == 125 and "409" in err, "nor by sallyportctl", (rc, err))
    d.ctl("exec", "--in", ep, "--", "/bin/sh", "-c", "echo >go")
    t.join()
    tap.eq(d.grade("get_full_state")["episode_id"], "rich", "and then")
    tap.eq(d.grade("run_oracle")["returncode"], 3, "there is")


def resets(d, ep):
    seen, stop = [], threading.Event()

    def asks():
        while not stop.is_set():
            got = d.grade("get_full_state")
            seen.append("ok" if isinstance(got, dict) else d.data["reason"])

    t = threading.Thread(target=asks)
    t.start()
    for _ in range(4):
        gate.until(lambda n=len(seen): len(seen) > n, "a question")
        tap.eq(d.ctl("reset", ep)[0], 0, "a reset")
    stop.set()
    t.join()
    tap.ok(set(seen) <= {"ok", "not_live", "reset"},
           "a state that is asked for meanwhile", set(seen))
    tap.eq(d.grade("fs_diff"), [], "nothing is left of it")
    d.ctl("end", ep)
    got = d.grade("fs_diff")
    tap.eq(got, (-32603, "Environment operation failed"), "no episode")
    _, _, body = d.ask("POST", "/mcp", rpc(1, "tools/list"))
    tap.eq(json.loads(body)["error"]["data"]["reason"], "no_episode",
           "and why, in the error's data")
    log = gate.until(lambda: [x for x in d.access()
                              if x["outcome"] == "no_episode"][3:],
                     "lines of the access log that say so")
    tap.eq({(x.get("module", x.get("door")), x["principal"],
             x.get("operation"), x.get("status")) for x in d.access()
            if x["outcome"] == "no_episode"},
           {("mcp_grader", "grader", None, 200),
            ("mcp_grader", "grader", "tools/call", None),
            ("mcp_agent", "agent", None, 200),
            ("mcp_agent", "agent", "tools/list", None)},
           f"of each request and operation ({len(log)})")


def main():
    walls.needed()
    with tempfile.TemporaryDirectory(prefix="sp-grader-") as folder, \
            Daemon(folder) as d:
        os.chmod(folder, 0o755)
        rc, out, err = d.ctl("episodes", "create", "box")
        if rc != 0:
            sys.exit(f"no episode: {err}")
        ep = out.rstrip("\n")
        tools(d)
        grading(d, ep)
        verdicts(d, ep)
        agent(d, ep)
        floods(d, ep)
        deep(d, ep)
        while_reset(d, ep)
        resets(d, ep)
        same_token(folder)
    tap.done()


def same_token(folder):
    """Tokens of different principals differ, by value."""
    path = os.path.join(folder, "same.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"state_dir {folder}/state; control off;\n"
                "environment e { }\nserver { listen 127.0.0.1:0;\n"
                "location /a { mcp_agent; environment e; token env:A; }\n"
                "location /g { mcp_grader; environment e; token env:G; } }\n")
    for a, want in (("x" * 16, 1), ("y" * 16, 0)):
        r = subprocess.run([gate.program("sallyport"), "-t", "-c", path],
                           env={**os.environ, "A": a, "G": "x" * 16},
                           capture_output=True, check=False, text=True)
        tap.ok(r.returncode == want and
               ("same as that of the agent" in r.stderr) == (want == 1),
               "two tokens that are the same" if want else "that differ",
               r.stderr)


main()
