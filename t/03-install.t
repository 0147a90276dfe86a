#!/usr/bin/python3
"""make install: what lands where, hardened, and at work from there."""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import layers  # noqa: E402
import tap  # noqa: E402

PROGRAMS = ["sbin/sallyport", "bin/sallyportctl",
            "libexec/sallyport/sallyport-reactor",
            "libexec/sallyport/sallyport-recorder",
            "libexec/sallyport/sallyport-trace",
            "libexec/sallyport/sallyport-init"]
EXAMPLES = ["share/doc/sallyport/examples/" + x for x in (
    "minimal.conf", "sallyport.conf", "sallyport.service",
    "sallyport.socket")] + ["share/sallyport/verify_trace.py"]
PAGES = ["share/man/man8/sallyport.8", "share/man/man5/sallyport.conf.5",
         "share/man/man1/sallyportctl.1"]


def readelf(path, *args):
    return subprocess.run(["readelf", "-W", *args, path], text=True,
                          capture_output=True, check=True).stdout


def hardened(path):
    """What of it is missing."""
    head, dynamic = readelf(path, "-h"), readelf(path, "-d")
    segments = readelf(path, "-l")
    # a static one has what it needs in itself
    symbols = readelf(path, "--dyn-syms" if "INTERP" in segments else "-s")
    stack = re.search(r"GNU_STACK.*", segments)
    return [name for name, good in (
        ("PIE", "DYN" in re.search(r"Type:.*", head).group(0)),
        ("RELRO", "GNU_RELRO" in segments),
        ("immediate binding", "NOW" in dynamic),
        ("a stack that is not executable",
         stack and "RWE" not in stack.group(0)),
        ("stack protector", "__stack_chk_fail" in symbols),
        ("fortified functions", re.search(r"__\w+_chk\b", symbols)),
        ("no RPATH", "RPATH" not in dynamic and "RUNPATH" not in dynamic),
    ) if not good]


if not os.path.exists(os.path.join(gate.BUILD, "Makefile")):
    tap.skip_all("this build has no makefile")
if not layers.tool("readelf"):
    tap.skip_all("readelf is not installed")
with tempfile.TemporaryDirectory(prefix="sp-") as d:
    os.chmod(d, 0o755)
    r = subprocess.run(["make", "-C", gate.BUILD, "install", f"DESTDIR={d}",
                        "MAKEFLAGS="], text=True, capture_output=True)
    tap.ok(r.returncode == 0, "make install with DESTDIR",
           r.stdout[-1500:] + r.stderr[-1500:])
    top = os.path.join(d, "usr/local")
    for path in PROGRAMS:
        full = os.path.join(top, path)
        there = os.path.exists(full)
        tap.ok(there and os.stat(full).st_mode & 0o7777 == 0o755,
               f"{path} is there")
        if there and gate.VARIANT == "release":
            tap.none(hardened(full), f"{path} is hardened")
    for path in PAGES + EXAMPLES:
        full = os.path.join(top, path)
        tap.ok(os.path.exists(full), f"{path} is there")
    found = [os.path.relpath(os.path.join(a, f), top)
             for a, _, files in os.walk(d) for f in files]
    known = re.compile(r"sbin/|bin/|libexec/sallyport/|share/man/"
                       r"|share/doc/sallyport/|share/sallyport/|etc/sallyport/"
                       r"|lib/systemd/|\.\./\.\./etc/sallyport/")
    tap.none([f for f in found if not known.match(f)],
             "nothing else is put anywhere")
    for path in PAGES + EXAMPLES[:3]:
        with open(os.path.join(top, path), encoding="utf-8") as f:
            text = f.read()
        tap.none(re.findall(r"(?<!/usr/local)(?:/etc/sallyport/|/usr/share/)"
                            r".*|/usr/local/var.*", text),
                 f"{path} names the paths that were configured")
    gate.BUILD = os.path.join(top, "sbin")
    # the roles stand where they were configured to: beside it for this
    for role in ("sallyport-reactor", "sallyport-recorder"):
        os.symlink(os.path.join(top, "libexec/sallyport", role),
                   os.path.join(gate.BUILD, role))
    with gate.Gate("server { listen 127.0.0.1:0; location /health "
                   "{ health; } }") as g:
        r = g.get("/health")
        tap.ok(r.status == 200, "the installed programs serve", r.body)
    r = subprocess.run([os.path.join(top, "sbin/sallyport"), "-V"],
                       text=True, capture_output=True)
    want = "confinement: built in" if gate.VARIANT == "release" else \
        "confinement"
    tap.ok(r.returncode == 0 and want in r.stdout,
           "-V tells how it was built", r.stdout + r.stderr)
tap.done()
