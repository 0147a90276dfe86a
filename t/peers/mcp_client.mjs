// The MCP SDK's client against a door: node mcp_client.mjs URL [header=value]
// Prints JSON lines {ok, what, detail}.
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const require = createRequire(process.env.SP_MCP_MODULES + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)));
const {Client} = await load('@modelcontextprotocol/sdk/client/index.js');
const {StreamableHTTPClientTransport} =
	await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = await load('@modelcontextprotocol/sdk/types.js');

let failed = 0;
function ok(good, what, detail) {
	failed += good ? 0 : 1;
	console.log(JSON.stringify({ok: !!good, what,
		detail: good ? undefined : String(JSON.stringify(detail))}));
}

const [url, ...fields] = process.argv.slice(2);
const headers = Object.fromEntries(fields.map((f) => f.split('=')));

async function connect(capabilities = {}) {
	const c = new Client({name: 'test', version: '1'}, {capabilities});
	const t = new StreamableHTTPClientTransport(new URL(url),
		{requestInit: {headers}});
	c.onerror = () => {};
	await c.connect(t);
	return {c, t};
}

async function main() {
	const {c, t} = await connect({sampling: {}});
	ok(c.getServerVersion().name === 'fixtures', 'the server names itself',
		c.getServerVersion());
	ok(c.getInstructions() === 'Fixtures of tests.', 'its instructions');
	ok(typeof t.sessionId === 'string', 'there is a session');
	const names = (await c.listTools()).tools.map((x) => x.name);
	ok(names.includes('echo') && names.includes('test_sampling'),
		'tools are listed', names);
	ok(!names.includes('env.secret'), 'and the hidden one is not', names);
	const hidden = await c.callTool({name: 'env.secret', arguments: {}})
		.then((r) => r, (e) => ({code: e.code, message: e.message}));
	const unknown = await c.callTool({name: 'env.nothing', arguments: {}})
		.then((r) => r, (e) => ({code: e.code, message: e.message}));
	ok(JSON.stringify(hidden).replaceAll('env.secret', 'env.nothing') ===
		JSON.stringify(unknown), 'called, it does not exist',
	[hidden, unknown]);
	const said = await c.callTool({name: 'echo', arguments: {text: 'hé"\n'}});
	ok(said.content[0].text === 'hé"\n', 'a call', said);
	const seen = [];
	await c.callTool({name: 'test_tool_with_progress', arguments: {}},
		undefined, {onprogress: (p) => seen.push(p.progress)});
	ok(seen.join() === '0,50,100', 'progress', seen);
	const logs = [];
	c.setNotificationHandler(types.LoggingMessageNotificationSchema,
		(n) => logs.push(n.params.data));
	await c.setLoggingLevel('info');
	await c.callTool({name: 'test_tool_with_logging', arguments: {}});
	ok(logs.length === 3, 'log messages', logs);
	c.setRequestHandler(types.CreateMessageRequestSchema, () => ({
		model: 'm', role: 'assistant', content: {type: 'text', text: 'yes'}}));
	const sampled = await c.callTool({name: 'test_sampling',
		arguments: {prompt: 'p'}});
	ok(sampled.content[0].text.includes('yes'), 'sampling', sampled);
	const failing = await c.callTool({name: 'test_error_handling',
		arguments: {}});
	ok(failing.isError === true, 'a tool that fails');
	ok((await c.listResources()).resources.length === 3, 'resources');
	ok((await c.readResource({uri: 'test://static-text'}))
		.contents[0].text === 'static text', 'a resource');
	ok((await c.listPrompts()).prompts.length === 4, 'prompts');
	await c.ping();
	const gone = await c.callTool({name: 'test_tool_with_progress',
		arguments: {}}, undefined, {timeout: 60}).catch((e) => e);
	ok(gone instanceof Error, 'a call given up', gone);
	ok((await c.callTool({name: 'echo', arguments: {text: 'x'}}))
		.content[0].text === 'x', 'and the next one works');
	const many = await Promise.all(Array.from({length: 20}, (_, i) =>
		c.callTool({name: 'echo', arguments: {text: String(i)}})));
	ok(many.every((r, i) => r.content[0].text === String(i)),
		'twenty at once, each its own answer');
	const other = await connect();
	const refused = await other.c.callTool({name: 'test_sampling',
		arguments: {prompt: 'p'}}).catch((e) => ({message: e.message}));
	ok(refused.isError === true || refused.message,
		'who cannot sample is not asked', refused);
	ok(other.t.sessionId !== t.sessionId, 'sessions differ');
	await other.t.terminateSession();
	await t.terminateSession();
	await c.close();
	await other.c.close();
}

await main().catch((e) => ok(false, 'no exception', e.stack));
process.exit(failed ? 1 : 0);
