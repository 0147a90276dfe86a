// An MCP server with what the conformance suite and the tests ask for:
//   node mcp_fixtures.mjs stdio | http PORTFILE
// One implementation behind both transports, so that what a door shows can be
// compared with what the server itself does.
import {createServer} from 'node:http';
import {randomUUID} from 'node:crypto';
import {writeFileSync, renameSync} from 'node:fs';
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const require = createRequire(process.env.SP_MCP_MODULES + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)));
const {McpServer, ResourceTemplate} =
	await load('@modelcontextprotocol/sdk/server/mcp.js');
const {StdioServerTransport} =
	await load('@modelcontextprotocol/sdk/server/stdio.js');
const {StreamableHTTPServerTransport} =
	await load('@modelcontextprotocol/sdk/server/streamableHttp.js');
const types = await load('@modelcontextprotocol/sdk/types.js');
const {z} = await load('zod');

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk' +
	'+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';
const text = (t) => ({type: 'text', text: t});
const later = (ms) => new Promise((r) => setTimeout(r, ms));
const resource = (uri) =>
	({type: 'resource', resource: {uri, mimeType: 'text/plain', text: uri}});

function tools(s) {
	const tool = (name, description, inputSchema, run) =>
		s.registerTool(name, {description, inputSchema}, run);
	const plain = (name, ...content) =>
		tool(name, name, {}, async () => ({content}));

	plain('test_simple_text', text('This is a simple text response.'));
	plain('test_image_content',
		{type: 'image', data: PNG, mimeType: 'image/png'});
	plain('test_audio_content',
		{type: 'audio', data: WAV, mimeType: 'audio/wav'});
	plain('test_embedded_resource', resource('test://embedded-resource'));
	plain('test_multiple_content_types', text('Several:'),
		{type: 'image', data: PNG, mimeType: 'image/png'},
		resource('test://mixed-content-resource'));
	tool('test_error_handling', 'fails', {}, async () =>
		({isError: true, content: [text('This tool fails.')]}));
	tool('test_tool_with_logging', 'logs', {}, async (_, x) => {
		for (const data of ['started', 'processing', 'completed']) {
			await x.sendNotification({method: 'notifications/message',
				params: {level: 'info', data}});
			await later(50);
		}
		return {content: [text('logged')]};
	});
	tool('test_tool_with_progress', 'tells', {}, async (_, x) => {
		const progressToken = x._meta?.progressToken;
		for (const progress of [0, 50, 100]) {
			if (progressToken !== undefined)
				await x.sendNotification({
					method: 'notifications/progress', params: {
						progressToken, progress, total: 100}});
			await later(50);
		}
		return {content: [text('done')]};
	});
	tool('test_sampling', 'asks the model', {prompt: z.string()},
		async ({prompt}, x) => {
			const r = await x.sendRequest({method: 'sampling/createMessage',
				params: {maxTokens: 100, messages: [
					{role: 'user', content: text(prompt)}]}},
			types.CreateMessageResultSchema);
			return {content: [text(JSON.stringify(r.content))]};
		});
	elicitations(tool);
	tool('echo', 'says it again', {text: z.string()},
		async (a) => ({content: [text(a.text)]}));
	tool('env.secret', 'for graders', {}, async () =>
		({content: [text('the solution')]}));
}

function elicitations(tool) {
	const ask = (name, shape, message, properties, required) =>
		tool(name, name, shape, async (a, x) => {
			const r = await x.sendRequest({method: 'elicitation/create',
				params: {mode: 'form', message: a.message ?? message,
					requestedSchema: {type: 'object', properties,
						required}}}, types.ElicitResultSchema);
			return {content: [text(JSON.stringify(r))]};
		});
	ask('test_elicitation', {message: z.string()}, '', {username: {
		type: 'string', description: 'name'}, email: {type: 'string',
		description: 'address'}}, ['username', 'email']);
	ask('test_elicitation_sep1034_defaults', {}, 'defaults', {
		name: {type: 'string', default: 'John Doe'},
		age: {type: 'integer', default: 30},
		score: {type: 'number', default: 95.5},
		status: {type: 'string', default: 'active',
			enum: ['active', 'inactive', 'pending']},
		verified: {type: 'boolean', default: true}}, []);
	const titled = ['1', '2', '3'].map((n) =>
		({const: 'value' + n, title: 'Option ' + n}));
	ask('test_elicitation_sep1330_enums', {}, 'enums', {
		untitledSingle: {type: 'string', enum: ['a', 'b', 'c']},
		titledSingle: {type: 'string', oneOf: titled},
		legacyEnum: {type: 'string', enum: ['opt1', 'opt2'],
			enumNames: ['Option 1', 'Option 2']},
		untitledMulti: {type: 'array', items: {type: 'string',
			enum: ['a', 'b', 'c']}},
		titledMulti: {type: 'array', items: {anyOf: titled}}}, []);
}

function resources(s) {
	const contents = (c) => async (uri) =>
		({contents: [{uri: uri.href ?? uri, ...c}]});
	s.registerResource('static-text', 'test://static-text',
		{mimeType: 'text/plain'},
		contents({mimeType: 'text/plain', text: 'static text'}));
	s.registerResource('static-binary', 'test://static-binary',
		{mimeType: 'image/png'}, contents({mimeType: 'image/png', blob: PNG}));
	s.registerResource('watched', 'test://watched-resource',
		{mimeType: 'text/plain'},
		contents({mimeType: 'text/plain', text: 'watched'}));
	s.registerResource('template', new ResourceTemplate(
		'test://template/{id}/data', {list: undefined}),
	{mimeType: 'application/json'}, async (uri, {id}) =>
		({contents: [{uri: uri.href, mimeType: 'application/json',
			text: JSON.stringify({id, templateTest: true})}]}));
	s.server.setRequestHandler(types.SubscribeRequestSchema, () => ({}));
	s.server.setRequestHandler(types.UnsubscribeRequestSchema, () => ({}));
}

function prompts(s) {
	const say = (...content) => ({messages: content.map((c) =>
		({role: 'user', content: c}))});
	s.registerPrompt('test_simple_prompt', {description: 'simple'},
		() => say(text('A simple prompt.')));
	s.registerPrompt('test_prompt_with_arguments',
		{description: 'with arguments',
			argsSchema: {arg1: z.string(), arg2: z.string()}},
		(a) => say(text(`${a.arg1} and ${a.arg2}`)));
	s.registerPrompt('test_prompt_with_embedded_resource',
		{description: 'with a resource',
			argsSchema: {resourceUri: z.string()}},
		(a) => say(resource(a.resourceUri), text('process it')));
	s.registerPrompt('test_prompt_with_image', {description: 'image'}, () =>
		say({type: 'image', data: PNG, mimeType: 'image/png'},
			text('look')));
	s.server.setRequestHandler(types.CompleteRequestSchema, () =>
		({completion: {values: ['test1', 'test2'], total: 2,
			hasMore: false}}));
	s.server.setRequestHandler(types.SetLevelRequestSchema, () => ({}));
}

function make() {
	const s = new McpServer({name: 'fixtures', version: '1.0.0'},
		{instructions: 'Fixtures of tests.', capabilities: {tools: {
			listChanged: true}, resources: {subscribe: true,
			listChanged: true}, prompts: {listChanged: true}, logging: {},
		completions: {}}});
	tools(s);
	resources(s);
	prompts(s);
	return s;
}

const sessions = new Map();

async function body(req) {
	const parts = [];
	for await (const p of req)
		parts.push(p);
	try {
		return JSON.parse(Buffer.concat(parts).toString() || 'null');
	} catch {
		return undefined;
	}
}

async function serve(req, res, port) {
	const id = req.headers['mcp-session-id'];
	let t = sessions.get(id);
	const message = req.method === 'POST' ? await body(req) : undefined;
	if (t === undefined && (id === undefined || req.method !== 'POST' ||
	    types.isInitializeRequest(message))) {
		t = new StreamableHTTPServerTransport({
			sessionIdGenerator: () => randomUUID(),
			enableDnsRebindingProtection: true,
			allowedHosts: [`127.0.0.1:${port}`, `localhost:${port}`],
			allowedOrigins: [`http://127.0.0.1:${port}`,
				`http://localhost:${port}`],
			onsessioninitialized: (sid) => sessions.set(sid, t)});
		await make().connect(t);
	} else if (t === undefined) {
		res.writeHead(404, {'content-type': 'application/json'});
		res.end(JSON.stringify({jsonrpc: '2.0', id: null,
			error: {code: -32001, message: 'Session not found'}}));
		return;
	}
	await t.handleRequest(req, res, message);
}

if (process.argv[2] === 'stdio') {
	await make().connect(new StdioServerTransport());
} else {
	const server = createServer((req, res) =>
		serve(req, res, server.address().port).catch((e) => {
			console.error(e);
			res.destroy();
		}));
	// a number, or a file that is told the one that was chosen
	const where = process.argv[3];
	const fixed = /^[0-9]+$/.test(where);
	server.listen(fixed ? Number(where) : 0, '127.0.0.1', () => {
		if (fixed)
			return;
		writeFileSync(where + '.new', String(server.address().port));
		renameSync(where + '.new', where);
	});
}
