"""What the tests of the doors have in common: who enters, and their episodes."""
import os

import inside

FIXTURES = os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "fixtures", "worker")
HOSTILE = f"stdio /usr/bin/python3 {FIXTURES}/hostile.py"
TOKENS = {n: f"{n.lower()}-token-{os.getpid():07d}-0123456789"
          for n in ("AGENT", "GRADER", "ORCHESTRATOR", "OBSERVER")}


def bearer(name):
    return {"Authorization": f"Bearer {TOKENS[name]}"}


def environment(name, i, worker=HOSTILE, timeout="10s", words=""):
    """The i-th of a configuration; words: what else stands in it."""
    scratch = inside.scratch_beside(FIXTURES)
    uid = 400000 + os.getpid() % 1000 * 32768 + i * 4096
    return (f"environment {name} {{ episodes 4; workspace_size 16m;\n"
            f"  worker {worker};\n  {words}\n"
            f"  sandbox {{ read_only {inside.HOST} {FIXTURES};\n"
            f"    read_write {scratch}; memory 256m; tmp_size 16m;\n"
            f"    shm_size 16m; timeout {timeout}; env TMPDIR={scratch};\n"
            f"    uid {uid} 4096; }} }}\n")
