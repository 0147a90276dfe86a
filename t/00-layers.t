#!/usr/bin/python3
"""The tree keeps its own rules, and each of the rules can be broken."""
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
sys.dont_write_bytecode = True
import layers  # noqa: E402
import tap  # noqa: E402

BUILD = os.environ.get("SP_BUILDDIR", ROOT)

RULES = [
    (layers.direction, "includes go the way that the table says"),
    (layers.circles, "no circle of includes"),
    (layers.third_party, "third-party headers only in their folder"),
    (layers.unique, "file names are unique"),
    (layers.alone, "every header compiles alone"),
    (layers.banned, "no function that is not used here"),
    (layers.raw_memory, "all memory through base/mem.h"),
    (layers.file_sizes, f"files under {layers.FILE_MAX} lines"),
    (layers.function_sizes, f"functions of {layers.FUNCTION_MAX} lines and "
     f"{layers.PARAMETERS_MAX} parameters at most"),
]

# What breaks each rule: files, and words of the complaint.
LONG = "static int\nlong_one(int a)\n{\n" + "\ta++;\n" * 90 + "}\n"
MANY = "static int\nmany(int a, int b, int c, int d, int e, int f, int g)\n" \
       "{\n\treturn 0;\n}\n"
BROKEN = [
    (layers.direction, {"core/base/a.c": '#include "net/b.h"\n',
                        "core/net/b.h": ""}, "base may not include net/b.h"),
    (layers.direction, {"modules/llm_a.c": '#include "status.h"\n',
                        "modules/status.h": ""}, "another module's"),
    (layers.direction, {"core/base/a.c": '#include "base/gone.h"\n'},
     "is not there"),
    (layers.circles, {"core/base/a.h": '#include "base/b.h"\n',
                      "core/base/b.h": '#include "base/a.h"\n'},
     "base/a.h -> base/b.h -> base/a.h"),
    (layers.third_party, {"core/gate/a.c": "#include <event2/event.h>\n"},
     "core/event"),
    (layers.third_party, {"modules/a.c": "#include <yajl/yajl_parse.h>\n"},
     "core/json"),
    (layers.unique, {"core/base/a.c": "", "modules/a.c": ""}, "one name"),
    (layers.alone, {"core/base/a.h": "int f(size_t n);\n"}, "core/base/a.h"),
    (layers.banned, {"core/base/a.c": "int x(void)\n{ strcpy(a, b); }\n"},
     "a.c:2: strcpy()"),
    (layers.raw_memory, {"core/os/a.c": "p = malloc(1);\n"}, "malloc()"),
    (layers.file_sizes, {"core/os/a.c": "\n" * 1000}, "1000 lines"),
    (layers.function_sizes, {"core/os/a.c": LONG}, "93 lines"),
    (layers.function_sizes, {"core/os/a.c": MANY}, "7 parameters"),
]
# What looks like it and is fine.
FINE = {
    "core/base/a.c": '#include "base/a.h"\n/* malloc(1), strcpy(a, b) */\n'
                     'const char *s = "system(\\"ls\\")";\n',
    "core/base/a.h": "int a_b(int x);\n",
    "core/os/o.c": '#include "base/a.h"\nint\no_f(void)\n{\n'
                   "\treturn mem_free(x->free(1));\n}\n",
    "modules/llm_a.c": '#include "llm_b.h"\n#include "gate/g.h"\n',
    "modules/llm_b.h": "",
    "modules/modules.c": '#include "llm_b.h"\n',
    "core/gate/g.h": "",
}


def tree(d, content):
    for path, text in content.items():
        os.makedirs(os.path.join(d, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(d, path), "w") as f:
            f.write(text)


def can_fail():
    for rule, content, words in BROKEN:
        with tempfile.TemporaryDirectory() as d:
            tree(d, content)
            got = rule(d)
            tap.ok(len(got) == 1 and words in got[0],
                   f"{rule.__name__} notices: {words}", got)
    with tempfile.TemporaryDirectory() as d:
        tree(d, FINE)
        got = [x for rule, _ in RULES for x in rule(d)]
        tap.none(got, "what only looks like a breach is none")


def compiled_can_fail():
    with tempfile.TemporaryDirectory() as d:
        tree(d, {"core/base/a.c": "int a_good;\nint odd;\nint worse;\n",
                 "core/base/a.h": "extern int a_good, odd;\n"})
        obj = os.path.join(d, "core/base/liba_a-a.o")
        layers.subprocess.run(
            ["gcc", "-c", os.path.join(d, "core/base/a.c"), "-o", obj],
            check=True)
        got, n = layers.symbols(d, d)
        tap.ok(n == 1 and len(got) == 2 and "exports odd" in got[0] and
               "exports worse" in got[1],
               "symbols notices: names of no file, and undeclared ones", got)
        out = os.path.join(d, "linked")
        layers.subprocess.run(
            ["gcc", "-x", "c", "-", "-o", out, "-Wl,--no-as-needed", "-lz"],
            input="int main(void){return 0;}", text=True, check=True)
        tap.ok(layers.links(out, "z") == ["linked links libz.so.1"],
               "links notices: a library that is not for this program",
               layers.links(out, "z"))


def compiled():
    problems, n = layers.symbols(ROOT, BUILD)
    if n == 0:
        tap.skip("exported symbols", f"no objects in {BUILD}")
    else:
        tap.none(problems, f"symbols of {n} objects begin with the name of "
                 "their file or header")
    for name, pattern in layers.LINKS.items():
        path = os.path.join(BUILD, name)
        if os.path.exists(path):
            tap.none(layers.links(path, pattern),
                     f"{name} links nothing that is not for it")
        else:
            tap.skip(f"what {name} links", f"no {path}")


for need in ("gcc", "nm", "readelf"):
    if not layers.tool(need):
        tap.skip_all(f"no {need}")
can_fail()
compiled_can_fail()
for rule, what in RULES:
    tap.none(rule(ROOT), what)
compiled()
longest = []
layers.function_sizes(ROOT, longest)
longest.sort(reverse=True)
within = sum(1 for n, _ in longest if n <= 40)
if longest:
    tap.diag(f"{len(longest)} functions, {100 * within // len(longest)} % of "
             "40 lines at most; the longest:")
    for n, where in longest[:5]:
        tap.diag(f"  {n} lines: {where}")
tap.done()
