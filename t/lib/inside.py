"""A sallyport with one environment, and programs in its sandboxes."""
import os
import subprocess
import sys

import gate
import tap
import walls

HOST = "/usr /bin /sbin /lib /lib64 /etc/ssl /etc/alternatives"
# Every file that can be read, /proc with it, for a word that is said backwards.
HUNT = """
import os, sys
words = [w.encode()[::-1] for w in sys.argv[1:]]
found = []
looked = 0
for top in ("/proc", "/etc", "/tmp", "/var", "/workspace", "/home", "/dev"):
    for at, _, files in os.walk(top):
        if at.startswith("/etc/ssl"):
            continue
        for f in files:
            path = os.path.join(at, f)
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                text = os.read(fd, 1 << 20)
                looked += 1
                if any(w in text for w in words):
                    found.append(path)
            except OSError:
                pass
            finally:
                os.close(fd)
print(found, looked > 100)
"""


def scratch_beside(*paths):
    """A folder for what is written that covers none of these."""
    for top in ("/tmp", "/var/tmp", "/mnt"):
        if not any(os.path.realpath(p).startswith(top + "/") for p in paths):
            return top
    raise RuntimeError(f"no folder to write to beside {paths}")


class Daemon(gate.Gate):
    """
    Its environment is called work.  see: what else of the host is seen;
    before: fills the seed; also: of the environment; locations: of the server;
    uid: of the ordinary user whose it is, who has asked walls.user_refused().
    """

    def __init__(self, folder, url="http://127.0.0.1:9", see=(), bounds="",
                 before=None, also="", locations="", **kw):
        self.user = kw.get("uid")
        if self.user is None:
            walls.needed()
        else:
            os.chown(folder, self.user, self.user)
        self.socket = os.path.join(folder, "control")
        self.seed = os.path.join(folder, "seed")
        os.makedirs(self.seed, exist_ok=True)
        if before:
            before(self)
        uid = 400000 + os.getpid() % 1000 * 8192
        scratch = scratch_beside(*see)
        more = "".join(f' "{os.path.realpath(p)}"' for p in see
                       if not os.path.realpath(p).startswith("/usr/"))
        super().__init__(
            f"upstream u {{ server {url}/v1; api_key env:SP_TEST_KEY; }}\n"
            "capture c { level tokens; trace traces/$session.jsonl; }\n"
            "environment work {\n"
            f"  workspace {self.seed}; episodes 2; {also}\n"
            f"  sandbox {{ read_only {HOST}{more}; read_write {scratch};\n"
            f"    env TMPDIR={scratch}; uid {uid} 4096; {bounds} }}\n"
            "  inside 127.0.0.1:7000 { location /v1 { llm_intercept;\n"
            "    upstream u; capture c; keys open; } }\n}\n"
            "server { listen 127.0.0.1:0; location /health { health; }\n"
            f"  {locations} }}",
            main=f"control {self.socket};", **kw)
        rc, _, err = self.exec("/bin/true")
        if rc == 125 and self.user is None:
            self.stop()
            tap.skip_all("no sandbox here: "
                         + err.decode(errors="replace").strip())

    def ctl(self, *args, stdin=b"", timeout=300):
        r = subprocess.run([gate.program("sallyportctl"), "-S", self.socket,
                            *args], input=stdin, capture_output=True,
                           check=False, timeout=timeout)
        return r.returncode, r.stdout, r.stderr

    def exec(self, *args, options=("work",), **kw):
        return self.ctl("exec", *options, "--", *args, **kw)

    def create(self):
        rc, out, err = self.ctl("episodes", "create", "work")
        if rc != 0:
            sys.exit(f"no episode: {err}")
        return out.decode().rstrip("\n")

    def uids(self):
        """
        Processes of the sandboxes' users, anywhere on the host: an ordinary
        user's are the daemon's own, so there it is pid 1 of each that counts.
        """
        if self.user is not None:
            return self.inits()
        first = 400000 + os.getpid() % 1000 * 8192
        out = []
        for p in os.listdir("/proc"):
            try:
                if p.isdigit() and \
                        first <= os.stat(f"/proc/{p}").st_uid < first + 4096:
                    out.append(int(p))
            except OSError:
                pass
        return out

    def inits(self):
        """Those whose number in the innermost of several namespaces is 1."""
        out = []
        for p in os.listdir("/proc"):
            try:
                with open(f"/proc/{p}/status", encoding="ascii") as f:
                    said = dict(x.split(":\t", 1) for x in f if ":\t" in x)
                if said["Uid"].split()[0] == str(self.user) and \
                        said["NSpid"].split()[1:] == ["1"]:
                    out.append(int(p))
            except (OSError, KeyError, ValueError):
                pass
        return out

    def gone(self):
        """Nothing runs, nothing is mounted, no episode is there."""
        try:  # an end takes a moment longer than its last answer
            gate.until(lambda: not self.uids())
        except TimeoutError:
            pass
        left = [f"process {p}" for p in self.uids()]
        rc, out, err = self.ctl("episodes")
        if rc != 0 or len(out.splitlines()) != 1:
            left.append(f"episodes {out} {err}")
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            left += [x for x in f if self.seed in x or self.state in x]
        tap.none(left, "and nothing of it is left")
