#!/usr/bin/python3
"""openenv.yaml: what -m prints of it, what it refuses, and the schema.

Each row is read by the program and by the JSON Schema: both must say the same.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
sys.dont_write_bytecode = True
import tap  # noqa: E402

try:
    import jsonschema
    import yaml
except ImportError as e:
    tap.skip_all(f"{e}: python3-jsonschema and python3-yaml are needed")

BIN = os.path.join(os.environ.get("SP_BUILDDIR", ROOT), "sallyport")
if not os.access(BIN, os.X_OK):
    tap.skip_all(f"{BIN} is not built")
with open(os.path.join(ROOT, "contrib", "openenv", "openenvd.schema.json"),
          encoding="utf-8") as f:
    SCHEMA = json.load(f)
jsonschema.Draft202012Validator.check_schema(SCHEMA)
VALID = jsonschema.Draft202012Validator(SCHEMA)
TMP = tempfile.TemporaryDirectory(prefix="sp-manifest-")
# no folder that a workload is shown
ASSETS = tempfile.TemporaryDirectory(prefix="sp-assets-")
os.mkdir(os.path.join(TMP.name, "assets"))
ENV = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}

HEAD = "name: echo\napp: server.app:app\nport: 8000\n"
# what it is, the block's text, None or a piece of the error
ROWS = [
    ("nothing", "", None),
    ("an empty block", "{}", None),
    ("enabled", "{enabled: true}", None),
    ("enabled in a word of YAML 1.1", "{enabled: yes}", None),
    ("enabled as text", '{enabled: "true"}', "neither true nor false"),
    ("an unknown key", "{enable: true}",
     'unknown key "enable"; expected one of enabled, '),
    ("a list for a block", "[]", "no mapping"),
    # first generation
    ("rules", "{network: {egress: [{cidr: 203.0.113.0/24, protocol: tcp, "
     "ports: [443, 80]}]}}", None),
    ("rules by themselves", "{network: [{cidr: 203.0.113.0/24, "
     "protocol: udp, ports: [53]}]}", None),
    ("rules beneath allow", "{network: {allow: [{cidr: 203.0.113.7/32, "
     "protocol: tcp, ports: [1]}]}}", None),
    ("no network", "{network: }", None),
    ("bits of a host", "{network: [{cidr: 203.0.113.1/24, protocol: tcp, "
     "ports: [443]}]}", "bad cidr"),
    ("a network without bits", "{network: [{cidr: 203.0.113.0, "
     "protocol: tcp, ports: [443]}]}", "bad cidr"),
    ("IPv6", '{network: [{cidr: "2001:db8::/32", protocol: tcp, '
     "ports: [443]}]}", "bad cidr"),
    ("another protocol", "{network: [{cidr: 203.0.113.0/24, protocol: icmp, "
     "ports: [443]}]}", "bad protocol"),
    ("a port too high", "{network: [{cidr: 203.0.113.0/24, protocol: tcp, "
     "ports: [65536]}]}", "bad port"),
    ("port 0", "{network: [{cidr: 203.0.113.0/24, protocol: tcp, "
     "ports: [0]}]}", "bad port"),
    ("a port as text", '{network: [{cidr: 203.0.113.0/24, protocol: tcp, '
     'ports: ["443"]}]}', "bad port"),
    ("a port that is true", "{network: [{cidr: 203.0.113.0/24, "
     "protocol: tcp, ports: [true]}]}", "bad port"),
    ("no ports", "{network: [{cidr: 203.0.113.0/24, protocol: tcp, "
     "ports: []}]}", "no ports"),
    ("ports left out", "{network: [{cidr: 203.0.113.0/24, protocol: tcp}]}",
     "ports is missing; expected a list"),
    ("a rule's unknown key", "{network: [{cidr: 203.0.113.0/24, "
     "protocol: tcp, ports: [1], x: 1}]}", "unknown key"),
    # second generation
    ("no egress", "{egress: {mode: none}}", None),
    ("hosts", "{egress: {mode: allowlist, allow: [{host: packages.example, "
     "port: 8443}, {host: \"*.example\"}]}}", None),
    ("a mode of its own", "{egress: {mode: all}}", "bad mode"),
    ("allowlist without rules", "{egress: {mode: allowlist}}",
     "allowlist has no rules"),
    ("none with rules", "{egress: {mode: none, allow: [{host: a.example}]}}",
     "none has rules"),
    ("binaries", "{egress: {mode: allowlist, allow: [{host: a.example, "
     "binaries: [/usr/bin/git]}]}}", "binaries cannot be expressed"),
    ("a star inside", "{egress: {mode: allowlist, "
     "allow: [{host: a.*.example}]}}", "cannot be expressed"),
    ("both generations", "{network: [], egress: {mode: none}}",
     "both network and egress"),
    ("OpenShell's own", "{openshell: {image: x, policy: {a: [1]}}}", None),
    ("enforcement", "{enforcement: local}", None),
    ("enforcement as a mapping", "{enforcement: {backend: openshell}}", None),
    ("enforcement as a mapping of nothing", "{enforcement: {}}", None),
    ("enforcement of the first generation", "{enforcement: linux}", None),
    ("another enforcement", "{enforcement: vm}", 'unknown enforcement "vm"; '
     "expected openshell, linux or kernel, which are one here, or local"),
    ("enforcement with another key",
     "{enforcement: {backend: linux, zzz: 1}}",
     'enforcement has an unknown key "zzz"; expected one of backend'),
    ("options of a workload", "{workload: {image: x}}",
     "workload.image cannot be expressed"),
    # surfaces
    ("four surfaces", "{surfaces: {orchestrator: {allow_lifecycle: true}, "
     "agent: {tools: [\"env.*\"]}, grader: {tools: [\"*\"], fs_read: "
     "[\"/workspace/**\"], allow_privileged_exec: true, allow_lifecycle: "
     "true}, observer: {stream: [process]}}}", None),
    ("its principal", "{surfaces: {agent: {principal: agent}}}", None),
    ("another's principal", "{surfaces: {agent: {principal: grader}}}",
     "principal is not"),
    ("another surface", "{surfaces: {root: {}}}", "unknown surface"),
    ("an agent with lifecycle", "{surfaces: {agent: {allow_lifecycle: "
     "true}}}", "may not have allow_lifecycle; expected it at the "
     "orchestrator's, without it here"),
    ("an observer with lifecycle", "{surfaces: {observer: "
     "{allow_lifecycle: true}}}", "may not have allow_lifecycle"),
    ("an agent with exec", "{surfaces: {agent: {allow_privileged_exec: "
     "true}}}", "may not have allow_privileged_exec"),
    ("an orchestrator with exec", "{surfaces: {orchestrator: "
     "{allow_privileged_exec: true}}}",
     "may not have allow_privileged_exec"),
    ("an agent that reads", "{surfaces: {agent: {fs_read: [\"/x\"]}}}",
     "may not have fs_read"),
    ("an observer that reads", "{surfaces: {observer: {fs_read: [\"/x\"]}}}",
     "may not have fs_read"),
    ("a grader with a stream", "{surfaces: {grader: {stream: [process]}}}",
     "may not have a stream"),
    ("an agent with a stream", "{surfaces: {agent: {stream: [process]}}}",
     "may not have a stream"),
    ("an observer with tools", "{surfaces: {observer: {tools: [x]}}}",
     "may not have tools"),
    ("another stream", "{surfaces: {observer: {stream: [model]}}}",
     "unknown stream"),
    ("tools that are numbers", "{surfaces: {agent: {tools: [1]}}}",
     "tools is no text"),
    ("tools that are no list", "{surfaces: {agent: {tools: x}}}", "no list"),
    # assets
    ("assets", "{privileged_assets: [{name: oracle, source: o.sh}, "
     "{name: my_rubric2, source: r/a.py}]}", None),
    ("assets by name", "{privileged_assets: {oracle: o.sh, "
     "solution: {source: s}}}", None),
    ("an asset outside", "{privileged_assets: {oracle: ../o.sh}}",
     "bad source"),
    ("an asset outside, later", "{privileged_assets: {oracle: a/../../o}}",
     "bad source"),
    ("an absolute asset", "{privileged_assets: {oracle: /o.sh}}",
     "bad source"),
    ("an asset's bad name", "{privileged_assets: {\"o-1\": o.sh}}",
     "bad name"),
    ("an asset named _", "{privileged_assets: {_: o.sh}}", "bad name"),
    ("an asset without source", "{privileged_assets: [{name: o}]}",
     "source of an asset is missing"),
    ("an asset that is a word of ours", "{privileged_assets: {include: o}}",
     "neither"),
    ("another one", "{privileged_assets: [{name: manifest, source: o}]}",
     "neither"),
    # processes
    ("processes", "{privileged_assets: {rubric: r.py}, processes: {harness: "
     "{trust: workload, argv: [/bin/echo, \"a b\"], env: {A: \"1\"}}, "
     "rubric: {trust: privileged, asset: rubric}}}", None),
    ("processes as a list", "{processes: [{name: h, trust: workload, "
     "command: [/bin/true]}]}", None),
    ("a process named worker", "{processes: {worker: {trust: workload, "
     "argv: [/bin/true]}}}", "bad name"),
    ("a process with a capital", "{processes: {Run: {trust: workload, "
     "argv: [/bin/true]}}}", "bad name"),
    ("a relative program", "{processes: {h: {trust: workload, "
     "argv: [true_]}}}", "absolute path"),
    ("no program", "{processes: {h: {trust: workload}}}", "absolute path"),
    ("a workload with an asset", "{processes: {h: {trust: workload, "
     "argv: [/bin/true], asset: x}}}", "names an asset"),
    ("a privileged one without", "{processes: {h: {trust: privileged}}}",
     "lacks an asset"),
    ("a privileged one with a command", "{processes: {h: {trust: "
     "privileged, asset: x, argv: [/bin/true]}}}", "its asset alone"),
    ("a reserved variable", "{processes: {h: {trust: workload, "
     "argv: [/bin/true], env: {OPENENVD_PORT: \"1\"}}}}", "bad variable"),
    ("a variable with a sign", "{processes: {h: {trust: workload, "
     "argv: [/bin/true], env: {\"A-B\": \"1\"}}}}", "bad variable"),
    ("no trust", "{processes: {h: {argv: [/bin/true]}}}",
     "trust is missing; expected"),
    ("no host", "{egress: {mode: allowlist, allow: [{port: 1}]}}",
     "host is missing; expected"),
    ("another trust", "{processes: {h: {trust: root, argv: [/bin/true]}}}",
     "bad trust"),
]
# what a schema has no words for
ONLY_READER = {"bits of a host"}


def write(text, name="openenv.yaml"):
    path = os.path.join(TMP.name, name)
    mode = "wb" if isinstance(text, bytes) else "w"
    with open(path, mode) as f_:
        f_.write(text)
    return path


def run(*args, env=None):
    return subprocess.run([BIN, *args], capture_output=True, text=True,
                          cwd=TMP.name, env={**ENV, **(env or {})},
                          check=False, timeout=60)


def rows():
    for what, block, error in ROWS:
        text = HEAD + (f"openenvd: {block}\n" if block else "")
        r = run("-m", write(text), "--asset-root", ASSETS.name)
        good = VALID.is_valid(yaml.safe_load(text))
        if error is None:
            tap.ok(r.returncode == 0 and r.stdout, f"{what}: taken",
                   r.stderr)
            tap.ok(good, f"{what}: the schema takes it")
            continue
        if what in ONLY_READER:
            tap.ok(r.returncode == 1 and "bad cidr" in r.stderr,
                   f"{what}: refused", r.stdout + r.stderr)
            continue
        tap.ok(r.returncode == 1 and error in r.stderr and
               "openenv.yaml:4:" in r.stderr and not r.stdout,
               f"{what}: refused, with its line", r.stdout + r.stderr)
        tap.ok(not good, f"{what}: the schema refuses it")


def broken():
    for what, text, error in (
            ("no YAML", "a: [1\n", "openenv.yaml:"),
            ("an empty file", "", "is empty"),
            ("a comment alone", "# x\n", "no mapping"),
            ("a list", "- a\n", "no mapping"),
            ("two documents", "a: 1\n---\nb: 1\n", "second document"),
            ("an alias", "a: &x [1]\nb: *x\n", ":2: an alias"),
            ("an alias into itself", "a: &x [*x]\n", "an alias"),
            ("a key twice", "name: a\nname: b\n",
             ':2: the key "name" stands twice'),
            ("an app without an attribute", "app: my_env\n",
             ':1: bad app "my_env"; expected MODULE:ATTR'),
            ("a list as key", "? [a]\n: b\n", "a key is no word"),
            ("too deep", "a: " + "[" * 200 + "]" * 200 + "\n", "too deep"),
            ("too large", "a: " + "x" * 300000 + "\n", "too large"),
            ("control characters", b"a: \x01\n", "openenv.yaml:"),
            ("no UTF-8", b"a: \xff\n", "openenv.yaml:"),
            ("a NUL", b"a: \0\n", "openenv.yaml:")):
        r = run("-m", write(text))
        tap.ok(r.returncode == 1 and error in r.stderr and
               r.stderr.count("\n") == 1, f"{what}: one line",
               r.stdout + r.stderr)
    tap.ok(not VALID.is_valid({"app": "my_env"}) and
           VALID.is_valid({"app": None, "port": None}) and
           VALID.is_valid({"app": "a.b:c"}), "the schema knows an app")
    r = run("-m", "/no/such/openenv.yaml")
    tap.ok(r.returncode == 2 and "No such file" in r.stderr, "no file",
           r.stderr)
    r = run("-m", TMP.name)
    tap.ok(r.returncode == 1 and "cannot read" in r.stderr, "a folder",
           r.stderr)


FULL = HEAD.replace("echo", "my env") + """openenvd:
  enabled: true
  network:
    egress:
      - {cidr: 203.0.113.0/24, protocol: tcp, ports: [443, 80]}
      - {cidr: 203.0.113.53/32, protocol: udp, ports: [53]}
  surfaces:
    orchestrator: {allow_lifecycle: true}
    agent: {tools: ["env.*", echo_message]}
    grader:
      tools: ["env.*", "grader.*"]
      fs_read: ["/workspace/**", "/openenvd/assets/**"]
      allow_privileged_exec: true
    observer: {stream: [harness_events, network]}
  privileged_assets: {oracle: grade.sh, rubric: r.py}
  processes:
    harness: {trust: workload, argv: [/bin/echo, 'say "hi"; x'], env: {A: b c}}
    rubric: {trust: privileged, asset: rubric}
"""


def text():
    path = write(FULL)
    r = run("-m", path, "--asset-root", "assets", "--factory", "a.b:make",
            "--workspace", "assets", "--uid", "300000", "--timeout", "1.5",
            "--port", "9000", "--host", "::1")
    lines = [x.strip() for x in r.stdout.splitlines()]
    for want in (
            "environment my_env {",
            "factory a.b:make;", "worker_directory /workspace;",
            "action_class openenv.core.env_server.mcp_types:"
            "CallToolAction;",
            "allow tcp 203.0.113.0/24 443;", "allow tcp 203.0.113.0/24 80;",
            "allow udp 203.0.113.53/32 53;", "oracle grade.sh;",
            "rubric r.py;", "uid 300000 64;", "timeout 1500ms;",
            f"workspace {TMP.name}/assets;", f"assets {TMP.name}/assets {{",
            'process harness { trust workload; command /usr/bin/env "A=b c" '
            '/bin/echo "say \\"hi\\"; x"; }',
            "process rubric { trust privileged; asset rubric; }",
            "listen [::1]:9000;", "location /ws {", "lifecycle;",
            "shared on;", "allow_lifecycle on;",
            "token env:OPENENVD_ORCHESTRATOR_TOKEN;", "location /mcp {",
            "tools env.* echo_message;", "location /mcp/grader {",
            "token env:OPENENVD_GRADER_TOKEN;", "tools env.* grader.*;",
            "fs_read /workspace/** /openenvd/assets/**;",
            "privileged_exec on;", "location /observe {",
            "stream harness_events network;", "location /health { health; }"):
        tap.ok(want in lines, f"-m prints {want}", r.stdout + r.stderr)
    r = run("-m", path, "--asset-root", "assets")
    tap.ok("worker http 8000 /usr/bin/python3 -m uvicorn server.app:app" in
           r.stdout, "without a factory the app itself is the worker")
    r = run("-m", path)
    tap.ok(r.returncode == 1 and "--asset-root" in r.stderr,
           "assets need their directory", r.stderr)
    r = run("-m", write("name: a\nopenenvd: {enabled: true}\n"))
    tap.ok(r.returncode == 1 and "--factory" in r.stderr,
           "no app and no factory", r.stderr)
    r = run("-m", write("name: a\napp: a:b\nport: 80\n"))
    tap.ok(r.returncode == 1 and "below 1024" in r.stderr, "a low port",
           r.stderr)
    for tool in "*", "reset", "grader.*":
        r = run("-m", write(f"name: a\napp: a:b\nport: 8000\nopenenvd:\n"
                            "  enabled: true\n  surfaces:\n    agent: "
                            f"{{tools: ['{tool}']}}\n"))
        line = re.search(r"manifest:(\d+): ", r.stderr)
        tap.ok(r.returncode == 1 and line and "location /mcp" in
               r.stdout.split("\n")[int(line[1]) - 1],
               f"-m says that agents' {tool} would not be taken, and where",
               r.stdout + r.stderr)
    r = run("-m", write(FULL), "--asset-root", "assets",
            env={"VIRTUAL_ENV": "/opt/venv"})
    tap.ok("/opt/venv/bin/python3 -m uvicorn" in r.stdout and
           " /opt/venv" in r.stdout, "an active venv is used, and bound")


def base_python():
    """What a venv's python and pyvenv.cfg lead to is shown, link by link."""
    os.makedirs(os.path.join(TMP.name, "py", "3.11.7", "bin"))
    os.makedirs(os.path.join(TMP.name, "py", "3.11.7", "lib", "python3.11"))
    os.makedirs(os.path.join(TMP.name, "venv", "bin"))
    os.makedirs(os.path.join(TMP.name, "bare", "bin"))
    os.symlink("3.11.7", os.path.join(TMP.name, "py", "3.11"))
    for where in ("py/3.11.7", "bare"):
        path = os.path.join(TMP.name, where, "bin", "python3")
        with open(path, "w", encoding="utf-8") as f_:
            f_.write("#!/bin/sh\n")
        os.chmod(path, 0o755)
    at = os.path.join(TMP.name, "venv", "bin", "python3")
    os.symlink("python", at)

    def shown(to, cfg=""):
        link = os.path.join(TMP.name, "venv", "bin", "python")
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(to, link)
        with open(os.path.join(TMP.name, "venv", "pyvenv.cfg"), "w",
                  encoding="utf-8") as f_:
            f_.write(cfg)
        r = run("-m", write(FULL), "--asset-root", "assets", "--python", at)
        row = next(x for x in r.stdout.splitlines() if "read_only" in x)
        # the manifest's folder and that of the bootstrap stand there anyway
        return [x[len(TMP.name):] for x in row.strip(" ;").split()
                if x.startswith(TMP.name + "/")]

    tap.eq(shown("../../py/3.11/bin/python3"),
           ["/venv", "/py/3.11", "/py/3.11.7"],
           "the base of a venv, and a link to it")
    tap.eq(shown("/usr/bin/python3"), ["/venv"], "the system's is there")
    tap.eq(shown("/usr/bin/python3", "x = y\nHOME=" + TMP.name +
                 "/py/3.11/bin\n"), ["/venv", "/py/3.11", "/py/3.11.7"],
           "that of pyvenv.cfg, too")
    tap.eq(shown("../../bare/bin/python3"), ["/venv"],
           "no folder that python is not installed in")
    os.symlink("round", os.path.join(TMP.name, "round"))
    tap.eq(shown("/usr/bin/python3", f"home = {TMP.name}/round\n"), ["/venv"],
           "a link in a circle")
    r = run("-m", "none.yaml")
    tap.ok(r.returncode == 2 and "for -m: No such file" in r.stderr and
           "expected a path" in r.stderr, "what is not there", r.stderr)


def flags():
    path = write(FULL)
    for args, error in (
            (["--port", "x"], "--port"), (["--uid", "0"], "--uid"),
            (["--uid", "12"], "--uid"), (["--gid", "0"], "--gid"),
            (["--timeout", "0"], "--timeout"), (["--host", "a b"], "--host"),
            (["--workspace", "/no/such"], "--workspace"),
            (["--factory", "nope"],
             'bad value "nope" for --factory; expected MODULE:ATTR'),
            (["--action-class", "a:"],
             'bad value "a:" for --action-class; expected MODULE:CLASS'),
            (["--python", "python3"], "--python"), (["stray"], "stray"),
            (["--cgroup-root", "/no/such"], "--cgroup-root")):
        r = run("-m", path, *args)
        tap.ok(r.returncode == 2 and error in r.stderr,
               "refused: " + " ".join(args), r.stderr)
    r = run("--manifest", path, "--help")
    tap.ok(r.returncode == 0 and "--action-class" in r.stdout, "--help")


def unchanged():
    """Not enabled: the app runs as it is."""
    with open(os.path.join(TMP.name, "python"), "w",
              encoding="utf-8") as f_:
        f_.write('#!/bin/sh\necho "$PWD|$PYTHONPATH|$*"\n')
    os.chmod(f_.name, 0o755)
    path = write(HEAD)
    r = run("--manifest", path, "--python", f_.name)
    tap.eq(r.stdout.strip(), f"{TMP.name}|{TMP.name}|-m uvicorn "
           "server.app:app --host 127.0.0.1 --port 8000",
           "the app runs unchanged")
    r = run("--manifest", path, "--python", f_.name, "--port", "8101",
            "--host", "0.0.0.0", env={"PYTHONPATH": "/x"})
    tap.eq(r.stdout.strip(), f"{TMP.name}|{TMP.name}:/x|-m uvicorn "
           "server.app:app --host 0.0.0.0 --port 8101",
           "with the flags' address")
    said = (f'{path} has no openenvd with "enabled: true": its app runs as '
            "it is")
    tap.ok(said in r.stderr and "without a sandbox" in r.stderr,
           "which is said", r.stderr)
    off = write(HEAD + "openenvd: {enabled: false}\n")
    for args in (["--workspace", "assets"], ["--uid", "300000"],
                 ["--gid", "3000"], ["-g", "error_log stderr;"],
                 ["--asset-root", "assets"], ["--timeout", "3"],
                 ["--factory", "a:b"], ["--action-class", "a:b"]):
        r = run("--manifest", off, "--python", f_.name, *args)
        tap.ok(r.returncode == 1 and not r.stdout and
               f"sallyport: {args[0]} has no effect" in r.stderr and
               f"or no {args[0]}\n" in r.stderr,
               f"{args[0]} would have no effect", r.stdout + r.stderr)
    r = run("--manifest", off, "-t", "--python", f_.name)
    tap.ok(said in r.stderr, "-t says so, too", r.stdout + r.stderr)
    r = run("--manifest", write(HEAD + "openenvd: {enabled: true}\n"), "-t",
            "--python", f_.name, "--workspace", "assets")
    tap.ok("no openenvd" not in r.stderr, "of one that is enabled nothing",
           r.stderr)
    path = write(HEAD)
    r = run("-m", path)
    tap.ok(r.stdout.startswith("# openenvd.enabled is not true"),
           "-m says that it is not enabled")
    r = run("--manifest", write("name: a\n"))
    tap.ok(r.returncode == 1 and 'no "app"' in r.stderr, "nothing to run",
           r.stderr)


def dumped(block):
    conf = write(f"environment e {{ {block} }}\nstate_dir /no/such/state;\n"
                 "server { listen 127.0.0.1:0; location /h { health; } }\n",
                 "a.conf")
    r = run("-T", "-c", conf)
    lines = [x.strip() for x in r.stdout.splitlines()]
    return lines, r.stdout + r.stderr


def beside():
    """What is written beside a manifest goes before what it gives."""
    write(FULL)
    own = ("episodes 3; worker_start_timeout 5s; workspace_size 2g; sandbox "
           "{ memory 300m; timeout 7s; env A=1 PYTHONPATH=/x; read_only /usr "
           "/srv; } egress { connections 3; allow tcp 203.0.113.9/32 25; } "
           "process harness { trust workload; command /bin/true; } "
           "inside 127.0.0.1:8000 { location /x { mcp_agent; } } "
           "assets /no/such/assets { rubric own.py; } "
           "require asset_isolation;")
    for order in (f"manifest openenv.yaml; {own}",
                  f"{own} manifest openenv.yaml;"):
        lines, said = dumped(order)
        for want in ("episodes 3;", "worker_start_timeout 5s;",
                     "workspace_size 2g;", "memory 300m;", "timeout 7s;",
                     "env A=1 PYTHONPATH=/x OPENENVD_AGENT_PORT=8000;",
                     "connections 3;", "allow tcp 203.0.113.9/32 25;",
                     "allow tcp 203.0.113.0/24 443;", "command /bin/true;",
                     "location /x {", "assets /no/such/assets {",
                     "oracle grade.sh;", "rubric own.py;",
                     "process rubric {", "require asset_isolation;"):
            tap.ok(want in lines, f"beside a manifest: {want}", said)
        only = next((x for x in lines if x.startswith("read_only ")), "")
        tap.ok(only.startswith("read_only /usr /srv /bin ") and
               f" {TMP.name};" in only, "read_only is added to", said)
        tap.ok("location /mcp {" not in lines and "rubric r.py;" not in lines
               and lines.count("process harness {") == 1,
               "the manifest's own is gone", said)
    lines, said = dumped("manifest openenv.yaml;")
    tap.ok("manifest(" + TMP.name + "/openenv.yaml):" in said and
           "the directory of the assets is not known" in said,
           "assets need their directory here, too", said)
    lines, said = dumped("manifest openenv.yaml; enforcement local; "
                         "assets /no/such/assets { }")
    tap.ok("enforcement local;" in lines and "oracle grade.sh;" in lines,
           "local keeps no guarantees, and no inside", said)
    lines, said = dumped("manifest openenv.yaml; episodes 1; episodes 2;")
    tap.ok('duplicate directive "episodes"' in said,
           "what is written twice is an error still", said)
    write(HEAD + "openenvd: {surfaces: {agent: {tools: [\"r*\"]}}}\n")
    lines, said = dumped("manifest openenv.yaml;")
    r = run("-m", os.path.join(TMP.name, "openenv.yaml"))
    at = 1 + r.stdout.splitlines().index("        location /mcp {")
    tap.ok(f"manifest({TMP.name}/openenv.yaml):{at}: pattern" in said,
           "an error has the line of what -m prints", said)


def inside():
    """environment NAME { manifest PATH; }"""
    write(HEAD + "openenvd: {network: [{cidr: 203.0.113.0/24, protocol: tcp,"
          " ports: [443]}]}\n")
    conf = write("environment e { manifest openenv.yaml; warm 1; }\n"
                 "state_dir /no/such/state;\n"
                 "server { listen 127.0.0.1:0; location /h { health; } }\n",
                 "a.conf")
    r = run("-T", "-c", conf)
    tap.ok("allow tcp 203.0.113.0/24 443" in r.stdout and
           "warm 1;" in r.stdout, "a manifest in an environment",
           r.stdout + r.stderr)
    write(HEAD + "openenvd: {x: 1}\n")
    r = run("-T", "-c", conf)
    tap.ok(r.returncode == 1 and "openenv.yaml:4: openenvd has an unknown" in
           r.stderr, "its errors have its line", r.stderr)
    beside()
    conf = write("environment e { manifest; }\n", "a.conf")
    r = run("-T", "-c", conf)
    tap.ok(r.returncode == 1 and 'expected "manifest PATH;"' in r.stderr,
           "a manifest without a path", r.stderr)


rows()
broken()
text()
base_python()
flags()
unchanged()
inside()
TMP.cleanup()
tap.done()
