#!/usr/bin/python3
"""Format and lint of everything that is written by hand."""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
sys.dont_write_bytecode = True
import layers  # noqa: E402
import tap  # noqa: E402

C = layers.files(ROOT, ["core", "modules", "contrib", "t"])
SCRIPTS = {"sh": [], "python": [], "perl": []}


def sort_scripts():
    """By what their first line says."""
    named = layers.files(ROOT, ["t"], (".t", ".py"))
    for top in ("contrib", ".ci", "."):
        for path in sorted(glob.glob(os.path.join(ROOT, top, "*"))):
            if os.path.isfile(path) and "." not in os.path.basename(path):
                named.append(os.path.relpath(path, ROOT))
    named += [p for p in ("autogen.sh",) if os.path.exists(p)]
    named += layers.files(ROOT, ["contrib"], (".sh", ".py", ".pl"))
    for path in sorted(set(os.path.normpath(p) for p in named)):
        with open(os.path.join(ROOT, path), "rb") as f:
            first = f.readline()
        if path in ("configure", "configure~"):
            continue
        if re.match(rb"#!.*\b(ba)?sh\b", first):
            SCRIPTS["sh"].append(path)
        elif re.match(rb"#!.*python", first) or path.endswith(".py"):
            SCRIPTS["python"].append(path)
        elif re.match(rb"#!.*perl", first):
            SCRIPTS["perl"].append(path)


def run(what, argv, items):
    """argv over all items."""
    if not layers.tool(argv[0]):
        tap.skip(what, f"{argv[0]} is not installed")
        return
    if not items:
        tap.skip(what, "there are none")
        return
    r = subprocess.run(argv + items, cwd=ROOT, text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    tap.ok(r.returncode == 0, f"{what}: {len(items)} files", r.stdout)


def clang_format():
    if not layers.tool("clang-format"):
        tap.skip("clang-format", "not installed")
        return
    r = subprocess.run(["clang-format", "--dry-run"] + C, cwd=ROOT, text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    places = re.findall(r"^(\S+?:\d+):\d+: (?:warning|error)", r.stdout, re.M)
    tap.none(sorted(set(places)), f"clang-format: {len(C)} files")


def cppcheck():
    """
    autoVariables: a pointer to a local that is taken back before the end is
    how the parser keeps its place.  uninitvar: it does not know mem_calloc;
    compilers, clang's analyser and valgrind look at that.
    """
    queue = subprocess.run(
        ["gcc", "-E", "-M", "-x", "c", "-"], text=True, capture_output=True,
        input="#include <sys/queue.h>\n").stdout
    queue = re.search(r"\S+/sys/queue\.h", queue)
    argv = ["cppcheck", "--enable=warning,performance,portability",
            "--std=c11", "--quiet", "--inline-suppr", "-j2", "-Icore",
            "-Imodules", "--suppress=missingInclude",
            "--suppress=autoVariables", "--suppress=uninitvar",
            "--error-exitcode=1"]
    if queue:
        argv.append("--include=" + queue.group(0))
    run("cppcheck", argv, ["core", "modules", "contrib"])


def helps():
    """Who asks for help gets words, and nothing is done."""
    for path in ("contrib/quickstart", "contrib/install-packages"):
        r = subprocess.run([os.path.join(ROOT, path), "--help"], text=True,
                           capture_output=True)
        tap.ok(r.returncode == 0 and r.stdout.startswith("usage: " + path) and
               len(r.stdout.splitlines()) < 10, f"{path} --help",
               r.stdout + r.stderr)


def python():
    problems = []
    for path in SCRIPTS["python"]:
        try:
            compile(layers.read(os.path.join(ROOT, path)), path, "exec")
        except SyntaxError as e:
            problems.append(f"{path}: {e}")
    tap.none(problems, f"python: {len(SCRIPTS['python'])} files compile")


def words():
    """What an author leaves for later does not belong into the tree."""
    later = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
    problems = []
    tops = ["core", "modules", "contrib", "t", "man", "conf"]
    for path in layers.files(ROOT, tops, ("",)):
        if path.startswith(("t/fuzz/corpus", "t/fixtures")) or \
                "__pycache__" in path:
            continue
        for i, line in enumerate(
                layers.read(os.path.join(ROOT, path)).splitlines(), 1):
            if later.search(line):
                problems.append(f"{path}:{i}: {line.strip()[:100]}")
    tap.none(problems, "nothing is left for later")


def can_fail():
    """The tools that are there do object."""
    with tempfile.TemporaryDirectory() as d:
        cases = [
            ("clang-format", ["--dry-run", "-Werror", "--style=file:"
                              + os.path.join(ROOT, ".clang-format")],
             "a.c", "int   f( int a ){return a ;}\n"),
            ("cppcheck", ["--error-exitcode=1", "--quiet"], "b.c",
             "int f(void){int a[2]; return a[5];}\n"),
            ("shellcheck", [], "c.sh", "#!/bin/sh\nrm $1\n"),
            ("mandoc", ["-Tlint", "-Wwarning"], "d.1", ".Dd x\n.Sh NAMES\n"),
        ]
        for tool, args, name, text in cases:
            path = os.path.join(d, name)
            with open(path, "w") as f:
                f.write(text)
            if not layers.tool(tool):
                tap.skip(f"{tool} objects to what is bad", "not installed")
                continue
            r = subprocess.run([tool] + args + [path], capture_output=True)
            tap.ok(r.returncode != 0, f"{tool} objects to what is bad")


sort_scripts()
can_fail()
helps()
clang_format()
cppcheck()
run("shellcheck", ["shellcheck", "-x", "-e", "SC2317"], SCRIPTS["sh"])
for path in SCRIPTS["perl"]:
    run(f"perl -c {path}", ["perl", "-c"], [path])
python()
run("mandoc -Tlint", ["mandoc", "-Tlint", "-Wwarning"],
    [os.path.relpath(p, ROOT)
     for p in sorted(glob.glob(os.path.join(ROOT, "man", "*.[1-9]")))])
run("promtool check rules", ["promtool", "check", "rules"],
    sorted(glob.glob("contrib/prometheus/*.yml", root_dir=ROOT)))
words()
tap.done()
