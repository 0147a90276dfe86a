#!/usr/bin/python3
"""Python's websockets, an old and a new one, and Node's ws as clients."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "t", "lib"))
import gate  # noqa: E402
import peer  # noqa: E402
import tap  # noqa: E402

ECHO = os.path.join(gate.BUILD, "t/unit/websock_echo")
pythons = [(n, peer.need(n)) for n in ("websockets-10", "websockets-17")]
node = peer.need("ws")
env = {k: v for k, v in os.environ.items()
       if k.startswith(("LC_", "PATH", "HOME", "PYTHONDONT"))}

echo = subprocess.Popen([ECHO, "100"], text=True, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE)
url = f"ws://127.0.0.1:{int(echo.stdout.readline())}/ws"
for name, folder in pythons:
    peer.results(name, peer.run([
        os.path.join(folder, "bin", "python"),
        os.path.join(ROOT, "t", "peers", "websocket.py"), url], env=env))
peer.results("ws", peer.run([
    "node", os.path.join(ROOT, "t", "peers", "websocket.mjs"), url],
    env={**env, "WS_MODULE": os.path.join(node, "node_modules", "ws")}))
echo.stdin.close()
tap.eq(echo.wait(60), 0, "the server ends as it should")
tap.done()
