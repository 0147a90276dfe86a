#!/usr/bin/python3
"""The four doors of README.md, as who reads it pastes them."""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import tap  # noqa: E402
import walls  # noqa: E402


def block(first, last):
    """The lines of code from one to another, and all between."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        text = f.read()
    got = re.search(rf"(?ms)^    {re.escape(first)}.*?^    "
                    rf"{re.escape(last)}[^\n]*\n", text)
    return re.sub("(?m)^    ", "", got.group(0))


def main():
    walls.needed()
    path = {os.path.dirname(gate.program(x))
            for x in ("sallyport", "sallyportctl")}
    with tempfile.TemporaryDirectory(prefix="sp-readme-",
                                     dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(os.path.join(ROOT, "contrib", "examples"),
                        os.path.join(folder, "contrib", "examples"))
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        text = block("mkdir -m 700 assets", "sallyportctl env check")
        tap.ok("127.0.0.1:8100" in text, "the block of the four doors", text)
        text = text.replace("127.0.0.1:8100", f"127.0.0.1:{port}")
        r = subprocess.run(
            ["timeout", "-k", "30", "250", "/bin/bash", "-c", text + "\nrc=$?; kill $!; wait; exit $rc"],
            cwd=folder, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=300,
            env={**os.environ, "PATH": ":".join(path) + ":"
                 + os.environ["PATH"]})
        tap.ok(r.returncode == 0 and "it works" in r.stdout,
               "pasted as one, it tries the environment out and it works",
               r.stdout + r.stderr)
    tap.done()


main()
