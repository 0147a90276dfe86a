#!/usr/bin/python3
"""The worker of frames beside OpenEnv's own server, in both of its lines."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import peer  # noqa: E402
import tap  # noqa: E402

LINES = (("openenv-0.10", "{'hello': 1}"), ("openenv-0.3", "None"))


def main():
    for name, venv in [(n, peer.need(n)) for n, _ in LINES]:
        r = peer.run([os.path.join(venv, "bin", "python"), "-B",
                      os.path.join(ROOT, "t", "peers", "openenv_frames.py"),
                      os.path.join(ROOT, "contrib", "python",
                                   "sallyport_worker.py")])
        peer.results(name, r)
        tap.ok(f"metadata of this line: {dict(LINES)[name]}\n" in r.stdout,
               f"{name}: metadata as this line has it", r.stdout)
    tap.done()


main()
