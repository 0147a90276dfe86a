// Node's ws against an echo: a JSON line for each check.
import { createRequire } from "node:module";

const WebSocket = createRequire(import.meta.url)(process.env.WS_MODULE);
const url = process.argv[2];

function ok(good, what, detail) {
  console.log(JSON.stringify({ ok: !!good, what, detail: String(detail) }));
}

function open(to, ...more) {
  return new Promise((resolve, reject) => {
    const c = new WebSocket(to, ...more);
    c.waiting = [];
    c.had = [];
    c.on("message", (data, binary) => {
      const next = c.waiting.shift();
      next ? next(data.toString()) : c.had.push(data.toString());
    });
    c.closed = new Promise((done) =>
      c.on("close", (code, reason) => done([code, reason.toString()])));
    c.next = () => c.had.length > 0 ? Promise.resolve(c.had.shift())
      : new Promise((done) => c.waiting.push(done));
    c.on("open", () => resolve(c));
    c.on("error", reject);
  });
}

let c = await open(url, "mcp", { maxPayload: 0 });
ok(c.protocol === "mcp", "the subprotocol", c.protocol);
ok(c.extensions === "", "no extension", c.extensions);
for (const n of [0, 125, 126, 65535, 65536, 16 << 20]) {
  c.send("a".repeat(n));
  ok(await c.next() === "a".repeat(n), `${n} bytes`);
}
c.send("one,", { fin: false });
c.send("two,", { fin: false });
c.ping("within");
c.send("three", { fin: true });
ok(await c.next() === "one,two,three", "a message in pieces");
const pong = new Promise((done) => c.on("pong", (d) => done(d.toString())));
c.ping("again");
const first = await pong;
ok(first === "within" || first === "again", "a ping is answered", first);
for (let i = 0; i < 1000; i++) c.send(String(i));
let good = true;
for (let i = 0; i < 1000; i++) good = await c.next() === String(i) && good;
ok(good, "1,000 before a reply");
c.close(1000, "bye");
ok((await c.closed)[0] === 1000, "closed");
c = await open(url);
c.send("close");
ok(String(await c.closed) === "4000,as you like", "closed by the server");
c = await open(url);
c.send(Buffer.from([0]));
ok((await c.closed)[0] === 1003, "a binary message");
try {
  await open(url + "/nowhere");
  ok(false, "another path");
} catch (e) {
  ok(/404/.test(e.message), "another path", e.message);
}
try {
  await open(url, { protocolVersion: 8 });
  ok(false, "version 8");
} catch (e) {
  ok(/426/.test(e.message), "version 8", e.message);
}
