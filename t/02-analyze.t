#!/usr/bin/python3
"""clang-tidy and gcc -fanalyzer; a file that did not change is not redone."""
import concurrent.futures
import hashlib
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
sys.dont_write_bytecode = True
import layers  # noqa: E402
import tap  # noqa: E402

BUILD = os.environ.get("SP_BUILDDIR", ROOT)
CACHE = os.path.join(os.environ.get("SP_CACHEDIR",
                                    os.path.join(BUILD, "cache")), "analyze")
FLAGS = ["-std=gnu11", "-Icore", "-Imodules", "-Icontrib/scripted-model",
         "-I" + BUILD, "-DSP_LIBEXECDIR=\"/x\"", "-DSP_SYSCONFDIR=\"/x\"",
         "-DSP_STATEDIR=\"/x\"", "-DSP_RUNDIR=\"/x\"",
         "-DSP_DOCDIR=\"/x\"", "-DSP_PKGDATADIR=\"/x\""]
# Where bytes that somebody else chose are taken apart, and what privileged
# programs do with them.
PARSERS = ("core/json", "core/http", "core/ipc", "core/conf", "core/codec",
           "core/recorder", "core/helper", "core/init", "core/os",
           "core/base", "modules")


def digest(path, tool, extra):
    """Of the text after preprocessing, and of how it is looked at."""
    r = subprocess.run(["gcc", "-E", "-P"] + FLAGS + [path], cwd=ROOT,
                       capture_output=True)
    if r.returncode:
        return None
    h = hashlib.sha256(r.stdout + b"\0" + tool.encode() + extra)
    # comments carry NOLINT
    with open(os.path.join(ROOT, path), "rb") as f:
        h.update(f.read())
    return h.hexdigest()


def look(path, tool, argv, extra):
    key = digest(path, tool, extra)
    stamp = os.path.join(CACHE, f"{key}.{tool}")
    if key and os.path.exists(stamp):
        return path, ""
    r = subprocess.run(argv, cwd=ROOT, text=True, stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL if tool == "clang-tidy"
                       else subprocess.STDOUT)
    out = r.stdout.strip()
    if r.returncode == 0 and not out and key:
        with open(stamp, "w"):
            pass
        return path, ""
    # the notes that lead there are to be had by running it on that file
    said = [x.replace(ROOT + "/", "") for x in out.splitlines()
            if re.search(r": (error|warning): ", x)]
    return path, "\n".join(said) or f"{path}: status {r.returncode}"


def over(tool, items, argv_of, extra=b""):
    if not layers.tool(tool):
        tap.skip(tool, "not installed")
        return
    workers = min(2, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(look, p, tool, argv_of(p), extra) for p in items]
        results = [j.result() for j in jobs]
    bad = [out for _, out in results if out]
    tap.ok(not bad, f"{tool}: {len(results)} files", "\n".join(bad))


if not os.path.exists(os.path.join(BUILD, "config.h")):
    tap.skip_all(f"no config.h in {BUILD}; name a build in SP_BUILDDIR")
os.makedirs(CACHE, exist_ok=True)
with open(os.path.join(ROOT, ".clang-tidy"), "rb") as f:
    RULES = f.read()
SOURCES = layers.files(ROOT, ["core", "modules", "contrib"], (".c",))
over("clang-tidy", SOURCES,
     lambda p: ["clang-tidy", "--quiet", p, "--"] + FLAGS, RULES)
# That a view with bytes has a pointer is beyond gcc 12; clang's analyser looks
# at null pointers, too.
ANALYZER = ["-O1", "-fanalyzer", "-Wno-analyzer-null-argument",
            "-Wno-analyzer-null-dereference"]
over("gcc", [p for p in SOURCES if p.startswith(PARSERS)],
     lambda p: ["gcc", *ANALYZER, "-c", "-o", "/dev/null"] + FLAGS + [p],
     " ".join(ANALYZER).encode())
tap.done()
