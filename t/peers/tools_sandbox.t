#!/usr/bin/python3
"""What people work with, in a sandbox: languages, git, compilers, packages."""
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import inside  # noqa: E402
import tap  # noqa: E402

NODE = """
const { Worker, isMainThread, parentPort } = require("worker_threads");
const child = require("child_process");
const fs = require("fs"), os = require("os");
const w = new Worker("require('worker_threads').parentPort.postMessage(6*7)",
    { eval: true });
w.on("message", (n) => {
    fs.writeFileSync("/tmp/node", String(n));
    const said = child.execFileSync("cat", ["/tmp/node"]).toString();
    console.log(said, os.cpus().length > 0, os.totalmem() > 0);
});
"""
# A function from a pool, shared memory and a lock: /dev/shm, semaphores.
POOL = """
import multiprocessing as m
from multiprocessing import shared_memory
def square(n):
    return n * n
if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with m.get_context(how).Pool(3) as p:
            print(sum(p.map(square, range(10))))
    q = m.Queue()
    p = m.Process(target=q.put, args=("queued",))
    p.start()
    print(q.get())
    p.join()
    s = shared_memory.SharedMemory(create=True, size=100)
    s.buf[0] = 7
    print(s.buf[0])
    s.close()
    s.unlink()
"""
HELLO = """
#include <pthread.h>
#include <stdio.h>
static void *say(void *p) { puts(p); return NULL; }
int main(void) {
    pthread_t t;
    if (pthread_create(&t, NULL, say, "compiled and run") != 0) return 1;
    return pthread_join(t, NULL);
}
"""
JAVA = """
class Hello {
    public static void main(String[] a) throws Exception {
        Thread t = new Thread(() -> System.out.println("a thread says so"));
        t.start();
        t.join();
    }
}
"""
# A registry at loopback, inside: one package, and where its archive is.
REGISTRY = """
const http = require("http"), fs = require("fs");
const child = require("child_process");
http.createServer((q, r) => {
    const at = `http://127.0.0.1:${q.socket.localPort}`;
    if (q.url.endsWith(".tgz"))
        return r.end(fs.readFileSync("/workspace/greeter.tgz"));
    if (q.url !== "/greeter")
        return r.writeHead(404).end("{}");
    const v = { name: "greeter", version: "1.0.0",
        dist: { tarball: at + "/greeter-1.0.0.tgz" } };
    r.end(JSON.stringify({ name: "greeter", "dist-tags": { latest: "1.0.0" },
        versions: { "1.0.0": v } }));
}).listen(0, "127.0.0.1", function () {
    const url = `http://127.0.0.1:${this.address().port}/`;
    fs.mkdirSync("/tmp/app");
    process.chdir("/tmp/app");
    fs.writeFileSync("package.json", '{"name": "app", "version": "1.0.0"}');
    const p = child.spawn("npm", ["install", "--no-audit", "--no-fund",
        "--registry", url, "greeter"], { stdio: "inherit" });
    p.on("exit", (status) => {
        console.log(status, require("/tmp/app/node_modules/greeter"));
        process.exit(status);
    });
});
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def package(path):
    with tarfile.open(path, "w:gz") as t:
        for name, text in (
                ("package.json", json.dumps({
                    "name": "greeter", "version": "1.0.0",
                    "main": "index.js"})),
                ("index.js", "module.exports = 'greetings';\n")):
            info = tarfile.TarInfo("package/" + name)
            info.size = len(text)
            t.addfile(info, io.BytesIO(text.encode()))


def wheel(seed):
    """A Python package as its sources: pip builds nothing without network."""
    meta = "Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n"
    import zipfile
    with zipfile.ZipFile(f"{seed}/greeter-1.0-py3-none-any.whl", "w") as z:
        z.writestr("greeter.py", "WORD = 'greetings'\n")
        z.writestr("greeter-1.0.dist-info/METADATA", meta)
        z.writestr("greeter-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n"
                   "Generator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("greeter-1.0.dist-info/RECORD", "")


def repository(path):
    env = {**os.environ, "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": "",
           "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example"}
    write(f"{path}/file", "from the repository\n")
    for args in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "1"]):
        subprocess.run(["git", "-C", path, *args], env=env, check=True)


def seed(d):
    s = d.seed
    write(f"{s}/n.js", NODE)
    write(f"{s}/pool.py", POOL)
    write(f"{s}/hello.c", HELLO)
    write(f"{s}/Hello.java", JAVA)
    write(f"{s}/registry.js", REGISTRY)
    package(f"{s}/greeter.tgz")
    wheel(s)
    if shutil.which("git"):
        repository(f"{s}/repo")


def run(d, needs, what, command, want):
    """A shell's command; what it prints has all of want."""
    if not os.access(f"/usr/bin/{needs}", os.X_OK):
        tap.skip(what, f"no /usr/bin/{needs}")
        return
    rc, out, err = d.exec("/bin/sh", "-c", command)
    text = out.decode(errors="replace")
    tap.ok(rc == 0 and all(w in text for w in want), what,
           f"status {rc}\n{text[-2000:]}\n{err[-2000:].decode()}")


def looks(d):
    rc, out, err = d.exec("/bin/ls", "/")
    names = set(out.decode().split())
    tap.ok(rc == 0 and {"bin", "dev", "etc", "home", "proc", "tmp", "usr",
                        "workspace"} <= names
           and not names & {"root", "sys", "boot", "mnt"}, "ls / is sane",
           (out, err))
    rc, out, err = d.exec("/bin/ps", "-e", "-o", "pid=,comm=")
    pids = [x.split() for x in out.decode().splitlines()]
    tap.ok(rc == 0 and len(pids) == 2 and pids[0][0] == "1"
           and pids[1][1] == "ps", "ps shows what is inside", (out, err))
    rc, out, err = d.exec("/usr/bin/free", "-b")
    rows = [x.split() for x in out.decode().splitlines()]
    tap.ok(rc == 0 and int(rows[1][1]) > int(rows[1][2]) > 0,
           "free is sane", (out, err))
    rc, out, err = d.exec("/bin/sh", "-c", "df /workspace /tmp && id -un && "
                          "nproc && date && hostname && echo x > /dev/null && "
                          "head -c 4 /dev/urandom | wc -c")
    tap.ok(rc == 0 and not err, "so are df, id, nproc, date, /dev",
           (out, err))


def tools(d):
    run(d, "node", "node, a worker thread and a child", "node n.js",
        ["42 true true"])
    run(d, "python3", "python: pools by fork, spawn and forkserver, a queue, "
        "shared memory", "python3 pool.py", ["285\n285\n285\nqueued\n7"])
    run(d, "git", "git clones a local repository, and commits",
        "cd /tmp && git clone -q file:///workspace/repo c && cat c/file && "
        "cd c && git config user.email a@example && git config user.name a && "
        "echo more >> file && git commit -q -a -m more && git log --oneline |"
        " wc -l", ["from the repository", "2"])
    run(d, "gcc", "gcc, and what it made runs",
        "gcc -O2 -pthread -o /tmp/hello hello.c && /tmp/hello",
        ["compiled and run"])
    run(d, "npm", "npm installs from a local registry", "node registry.js",
        ["0 greetings"])
    run(d, "npm", "and from an archive", "mkdir /tmp/a && cd /tmp/a && "
        "npm install --offline --no-audit --no-fund /workspace/greeter.tgz && "
        "node -p \"require('greeter')\"", ["greetings"])
    run(d, "pip3", "pip installs from a file", "pip3 install -q --no-index "
        "--target /tmp/lib ./greeter-1.0-py3-none-any.whl && PYTHONPATH="
        "/tmp/lib python3 -c 'import greeter; print(greeter.WORD)'",
        ["greetings"])
    run(d, "java", "java", "java -version 2>&1", ["version"])
    run(d, "javac", "javac, and a thread", "javac -d /tmp/j Hello.java && "
        "java -cp /tmp/j Hello", ["a thread says so"])


with tempfile.TemporaryDirectory(prefix="sp-in-") as at:
    os.chmod(at, 0o755)
    see = [p for p in os.listdir("/etc") if p.startswith("java-")]
    with inside.Daemon(at, see=[f"/etc/{p}" for p in see], before=seed,
                       bounds="memory 2g; pids 512; cpu off;",
                       env={"SP_TEST_KEY": "k"}) as d:
        looks(d)
        tools(d)
        d.gone()
tap.done()
