// What the AI SDK makes of it.  Arguments: its folder, two base URLs.
import { createRequire } from "node:module";

const [folder, base, direct] = process.argv.slice(2);
const require = createRequire(folder + "/package.json");
const { streamText, generateText, tool, stepCountIs } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { z } = require("zod");

function ok(good, what, detail) {
	console.log(JSON.stringify({ ok: Boolean(good), what,
		detail: good ? undefined
			: String(JSON.stringify(detail)).slice(0, 1500) }));
}

function model(url, script) {
	return createOpenAICompatible({ name: "sp", baseURL: url, apiKey: "none",
		includeUsage: true, headers: script ? { "X-Script": script } : {},
	}).chatModel("m");
}

function tools(calls) {
	const t = (name, inputSchema) => tool({ description: name, inputSchema,
		execute: async (input) => {
			calls.push([name, input]);
			return "done";
		} });
	return {
		write: t("write", z.object({ filePath: z.string(),
			content: z.string() })),
		bash: t("bash", z.object({ command: z.string(),
			description: z.string() })),
	};
}

async function agent(url) {
	const calls = [], parts = [];
	const r = streamText({ model: model(url), tools: tools(calls),
		stopWhen: stepCountIs(5), maxRetries: 0, onError: () => {},
		prompt: "Write hello.py and run it." });
	for await (const p of r.fullStream)
		parts.push(p.type);
	return { calls, parts, text: await r.text,
		reason: await r.finishReason, usage: await r.totalUsage };
}

const a = await agent(base), b = await agent(direct);
ok(a.calls.length === 2 && a.calls[0][0] === "write" &&
   a.calls[1][0] === "bash", "streamText: two tool calls", a);
ok(a.reason === "stop" && a.text.length > 0 && a.usage.outputTokens > 0,
	"streamText: text, reason and usage", a);
ok(JSON.stringify(a) === JSON.stringify(b),
	"streamText: part by part as without a gateway", [a, b]);

const g = await generateText({ model: model(base), maxRetries: 0,
	prompt: "hello" });
ok(g.text.includes("hello"), "generateText", g.text);

let error = null;
const broken = streamText({ model: model(base, "error in the stream"),
	maxRetries: 0, prompt: "x", onError: () => {} });
let text = "";
for await (const p of broken.fullStream) {
	if (p.type === "text-delta")
		text += p.text;
	if (p.type === "error")
		error = p.error;
}
ok(text === "some" && error !== null,
	"an error within a stream comes after the text before it", [text, error]);

try {
	await generateText({ model: model(base, "slow down"), maxRetries: 0,
		prompt: "x" });
	ok(false, "429 throws");
} catch (e) {
	ok(e.statusCode === 429 && e.isRetryable &&
	   e.responseHeaders["retry-after"] === "1",
		"429 throws, retryable, with its fields", e);
}
const again = await generateText({ model: model(base, "slow down once"),
	maxRetries: 2, prompt: "x" });
ok(again.text === "again", "the SDK's retry succeeds", again.text);

const stop = new AbortController();
const left = streamText({ model: model(base, "long"), maxRetries: 0,
	prompt: "x", abortSignal: stop.signal, onError: () => {} });
let seen = 0;
try {
	for await (const p of left.fullStream)
		if (p.type === "text-delta" && ++seen === 3)
			stop.abort();
} catch (e) {
	seen += 0;
}
ok(seen >= 3, "an aborted call", seen);
