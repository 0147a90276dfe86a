"""Rules of the tree that no compiler checks.  Each returns what breaks it."""
import os
import re
import shutil
import subprocess

BASE = {"base"}
MAY = {
    "base": set(),
    "os": BASE,
    "crypt": BASE | {"os"},
    "codec": BASE | {"os"},
    "ipc": BASE | {"os"},
    "conf": BASE | {"os"},
    "json": BASE,
    "event": BASE | {"os"},
    "net": BASE | {"os", "crypt", "event"},
    "http": BASE | {"os", "crypt", "codec", "event", "net"},
    "gate": BASE | {"os", "crypt", "codec", "event", "net", "http", "ipc",
                    "conf", "json"},
    "helper": BASE | {"os", "ipc", "conf"},
    "init": BASE | {"os", "ipc", "conf"},
    "recorder": BASE | {"os", "crypt", "codec", "ipc", "conf", "json"},
    "reactor": BASE | {"os", "crypt", "codec", "event", "net", "http", "ipc",
                       "conf", "json", "gate"},
    # what verifies a trace is the recorder's own code
    "ctl": BASE | {"os", "crypt", "json", "http", "recorder", "conf"},
    "modules": BASE | {"json", "conf", "http", "gate"},
}
# The lists of all modules.
LISTS = {"modules.c", "modules_conf.c", "modules.h"}

# third-party headers, and the only folders that may see them
THIRD = [
    (r"event2/|event\.h", {"core/event"}),
    (r"openssl/", {"core/crypt", "core/net"}),
    (r"nghttp2/|wslay/", {"core/http"}),
    (r"seccomp\.h", {"core/os", "core/init"}),
    (r"linux/landlock\.h", {"core/os", "core/init"}),
    (r"yajl/", {"core/json", "core/ctl"}),
    (r"zlib\.h|brotli/|zstd\.h", {"core/codec"}),
    (r"yaml\.h", {"core/helper"}),
    (r"libmnl/|libnftnl/|libnetfilter_", {"core/helper", "core/net"}),
]
BANNED = ("strcpy strncpy strcat strncat sprintf vsprintf strtok atoi atol "
          "atoll atof gets system popen alloca pthread_create tmpnam mktemp "
          "asctime ctime gethostbyname").split()
MEMORY = "malloc calloc realloc reallocarray free strdup strndup asprintf " \
         "vasprintf posix_memalign".split()
FILE_MAX = 1000
FUNCTION_MAX = 80
PARAMETERS_MAX = 6
# a callback whose shape is a library's, not ours
FOREIGN_SHAPE = "nghttp2_data_source *"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.M)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def files(root, tops, exts=(".c", ".h")):
    out = []
    for top in tops:
        for d, dirs, names in os.walk(os.path.join(root, top)):
            dirs.sort()
            out += [os.path.relpath(os.path.join(d, n), root)
                    for n in sorted(names) if n.endswith(exts)]
    return out


def bare(text):
    """The code without comments, strings and character constants."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'
                  r"'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)


def folder(path):
    """core/json/x.c: json; modules/x.c: modules"""
    parts = path.split("/")
    return parts[1] if parts[0] == "core" else parts[0]


def family(name):
    """llm_request.c and llm_intercept_conf.h are both of llm"""
    return re.split(r"[_.]", name)[0]


def module_include(path, target):
    """What a file of modules/ may name without a folder."""
    name = os.path.basename(path)
    if name in LISTS or target == "modules.h":
        return True
    return family(name) == family(target)


def direction(root):
    bad = []
    for path in files(root, ["core", "modules"]):
        own = folder(path)
        if own not in MAY:
            bad.append(f"{path}: folder {own} is not in the table")
            continue
        for kind, target in INCLUDE.findall(read(os.path.join(root, path))):
            if kind == "<" or target == "config.h":
                continue
            if "/" not in target:
                if own == "modules" and module_include(path, target):
                    continue
                if own in ("reactor", "helper", "ctl") and \
                        target == "modules.h":
                    continue
                bad.append(f"{path}: includes {target}, which is "
                           "another module's or lacks its folder")
                continue
            other = target.split("/")[0]
            if other != own and other not in MAY[own]:
                bad.append(f"{path}: {own} may not include {target}")
            elif not os.path.exists(os.path.join(root, "core", target)):
                bad.append(f"{path}: {target} is not there")
    return bad


def circles(root):
    edges = {}
    for path in files(root, ["core", "modules"], (".h",)):
        name = path.split("/", 1)[1]
        edges[name] = [t for k, t in
                       INCLUDE.findall(read(os.path.join(root, path)))
                       if k == '"']
    bad, state = [], {}

    def visit(n, trail):
        if state.get(n) == 2 or n not in edges:
            return
        if state.get(n) == 1:
            bad.append(" -> ".join(trail[trail.index(n):] + [n]))
            return
        state[n] = 1
        for m in edges[n]:
            visit(m, trail + [n])
        state[n] = 2
    for n in sorted(edges):
        visit(n, [])
    return bad


def third_party(root):
    bad = []
    for path in files(root, ["core", "modules"]):
        where = os.path.dirname(path)
        for kind, target in INCLUDE.findall(read(os.path.join(root, path))):
            for pattern, allowed in THIRD:
                if re.match(pattern, target) and kind == "<" and \
                        where not in allowed:
                    bad.append(f"{path}: <{target}> belongs to "
                               + ", ".join(sorted(allowed)))
    return bad


def unique(root):
    seen, bad = {}, []
    for path in files(root, ["core", "modules", "contrib"]):
        other = seen.setdefault(os.path.basename(path), path)
        if other != path:
            bad.append(f"{path} and {other} have one name")
    return bad


def alone(root, cc="gcc", build=None):
    """Every header compiles by itself."""
    bad = []
    flags = [cc, "-fsyntax-only", "-x", "c", "-std=gnu11", "-Wall",
             "-Werror", "-Wno-unused-function", "-Wno-pragma-once-outside-header",
             "-D_GNU_SOURCE", "-I" + os.path.join(root, "core"),
             "-I" + os.path.join(root, "modules")]
    if build:
        flags.append("-I" + build)
    for path in files(root, ["core", "modules"], (".h",)):
        r = subprocess.run(flags + [os.path.join(root, path)],
                           capture_output=True, text=True)
        if r.returncode:
            bad.append(f"{path}: {r.stderr.strip().splitlines()[0]}")
    return bad


def calls(text, names):
    """(line, name) of each call of one of them."""
    code = bare(text)
    for m in re.finditer(r"(?<![\w.>])(" + "|".join(names) + r")\s*\(", code):
        yield code.count("\n", 0, m.start()) + 1, m.group(1)


def banned(root):
    bad = []
    for path in files(root, ["core", "modules", "contrib", "t"]):
        for line, name in calls(read(os.path.join(root, path)), BANNED):
            bad.append(f"{path}:{line}: {name}()")
    return bad


def raw_memory(root):
    bad = []
    for path in files(root, ["core", "modules"]):
        if folder(path) == "base":
            continue
        for line, name in calls(read(os.path.join(root, path)), MEMORY):
            bad.append(f"{path}:{line}: {name}(), which is base/mem.h's")
    return bad


def file_sizes(root):
    bad = []
    for path in files(root, ["core", "modules", "contrib", "t"],
                      (".c", ".h", ".t", ".py")):
        n = read(os.path.join(root, path)).count("\n")
        if n >= FILE_MAX:
            bad.append(f"{path}: {n} lines, of {FILE_MAX} at most")
    return bad


DEFINITION = re.compile(r"^([a-z_]\w*)\(", re.M)


def functions(text):
    """(name, first line, lines, parameters) as the format lays them out."""
    code = bare(text)
    for m in DEFINITION.finditer(code):
        depth, i, commas = 0, m.end() - 1, 0
        while i < len(code):
            if code[i] == "(":
                depth += 1
            elif code[i] == ")":
                depth -= 1
                if depth == 0:
                    break
            elif code[i] == "," and depth == 1:
                commas += 1
            i += 1
        if code[i + 1:i + 3] != "\n{":
            continue
        end = code.find("\n}", i)
        if end < 0:
            continue
        inner = code[m.end():i].strip()
        parameters = 0 if inner in ("", "void") else commas + 1
        if FOREIGN_SHAPE in inner:
            parameters = min(parameters, PARAMETERS_MAX)
        first = code.count("\n", 0, m.start()) + 1
        last = code.count("\n", 0, end + 1) + 1
        yield m.group(1), first, last - first + 1, parameters


def function_sizes(root, longest=None):
    bad = []
    for path in files(root, ["core", "modules", "contrib", "t"]):
        for name, line, n, p in functions(read(os.path.join(root, path))):
            if longest is not None:
                longest.append((n, f"{path}:{line}: {name}"))
            if n > FUNCTION_MAX:
                bad.append(f"{path}:{line}: {name} has {n} lines, of "
                           f"{FUNCTION_MAX} at most")
            if p > PARAMETERS_MAX:
                bad.append(f"{path}:{line}: {name} has {p} parameters, of "
                           f"{PARAMETERS_MAX} at most")
    return bad


def header_of(root, source, symbol):
    """Base name of the header in the same folder that declares it."""
    where = os.path.join(root, os.path.dirname(source))
    for name in sorted(os.listdir(where)):
        if name.endswith(".h") and re.search(
                r"\b" + re.escape(symbol) + r"\b", bare(
                    read(os.path.join(where, name)))):
            return name[:-2]
    return None


def symbols(root, build):
    """
    An exported symbol begins with its file's base name, or with that of the
    header which declares it when several files stand behind one header.
    """
    bad, n = [], 0
    sources = {os.path.splitext(p)[0]: p
               for p in files(root, ["core", "modules"], (".c",))}
    for path in files(build, ["core", "modules"], (".o",)):
        where, name = os.path.split(path[:-2])
        source = sources.get(os.path.join(where, re.sub(r"^\w+-", "", name)))
        if source is None:
            continue
        n += 1
        out = subprocess.run(["nm", "-g", "--defined-only",
                              os.path.join(build, path)],
                             capture_output=True, text=True).stdout
        base = os.path.basename(source)[:-2]
        for line in out.splitlines():
            symbol = line.split()[-1]
            if symbol == "main" or symbol.startswith(("__", base)):
                continue
            # gate_modules, conf_modules: gate and conf name what they want
            if base + ".c" in LISTS and symbol.endswith("_modules"):
                continue
            header = header_of(root, source, symbol)
            if header is None:
                bad.append(f"{source}: exports {symbol}, which no header of "
                           "its folder declares")
            elif not symbol.startswith(re.sub(r"_priv$", "", header)):
                bad.append(f"{source}: exports {symbol}, which is named "
                           f"neither after it nor after {header}.h")
    return bad, n


LINKS = {
    "sallyport": "event|ssl|crypto|yajl|nghttp2|wslay|z|brotli|zstd",
    "sallyport-recorder": "event|ssl|nghttp2|wslay|mnl|nftnl|netfilter_log|yaml",
    "sallyportctl": "event|ssl|crypto|nghttp2|wslay|seccomp|mnl|nftnl|"
                    "netfilter_log|yaml",
}


def links(binary, pattern):
    out = subprocess.run(["readelf", "-d", binary], capture_output=True,
                         text=True, check=True).stdout
    return [f"{os.path.basename(binary)} links {lib}" for lib in
            re.findall(r"\(NEEDED\).*\[(.+?)\]", out)
            if re.match(rf"lib({pattern})[-_.0-9a-z]*\.so", lib)]


def tool(name):
    return shutil.which(name) is not None
