/* Limits, inherited from main to server or inside to location. */
#include "conf/core_conf.h"

#define LIMIT(field) offsetof(struct conf_limits, field)

enum {
	OUTER = CONF_MAIN | CONF_SERVER | CONF_INSIDE,
	ALL = OUTER | CONF_LOCATION
};

#define MS_DAY 86400000
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

const struct conf_directive core_conf_limits[] = {
	{ .name = "client_header_timeout",
	    .scopes = OUTER,
	    .type = CONF_DURATION,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(client_header_timeout_ms),
	    .min = 1,
	    .max = MS_DAY,
	    .def = "15s",
	    .args = "TIME",
	    .doc = "How long a client may take to send a request's head." },
	{ .name = "client_body_timeout",
	    .scopes = ALL,
	    .type = CONF_DURATION,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(client_body_timeout_ms),
	    .min = 1,
	    .max = MS_DAY,
	    .def = "60s",
	    .args = "TIME",
	    .doc = "How long a client may be silent while it sends a body, or "
		   "a message of a\nWebSocket, in one frame or in fragments: "
		   "that one is closed with 1008.\nPings, and fragments of "
		   "nothing, do not count." },
	{ .name = "client_body_rate",
	    .scopes = ALL,
	    .type = CONF_SIZE,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(client_body_rate),
	    .max = GIB,
	    .def = "1k",
	    .args = "SIZE",
	    .doc =
		"Bytes that have to come of a body, or of a WebSocket's "
		"message, in a second: less\nof them on the average of a "
		"client_body_timeout is answered with 408, or closed\nwith "
		"1008, however regularly they come.\n0 asks for none.\nWhile "
		"nothing is read, as memory is short, it does not count." },
	{ .name = "send_timeout",
	    .scopes = ALL,
	    .type = CONF_DURATION,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(send_timeout_ms),
	    .min = 1,
	    .max = MS_DAY,
	    .def = "60s",
	    .args = "TIME",
	    .doc = "How long a client may take no byte of a reply." },
	{ .name = "keepalive_timeout",
	    .scopes = OUTER,
	    .type = CONF_DURATION,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(keepalive_timeout_ms),
	    .min = 1,
	    .max = MS_DAY,
	    .def = "75s",
	    .args = "TIME",
	    .doc = "How long an idle connection of a client stays open." },
	{ .name = "keepalive_requests",
	    .scopes = OUTER,
	    .type = CONF_NUMBER,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(keepalive_requests),
	    .min = 1,
	    .max = 1000000000,
	    .def = "100000",
	    .args = "NUMBER",
	    .doc = "Most requests on one connection of a client." },
	{ .name = "client_max_body",
	    .scopes = ALL,
	    .type = CONF_SIZE,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(client_max_body_bytes),
	    .min = 1,
	    .max = GIB,
	    .def = "64m",
	    .args = "SIZE",
	    .doc =
		"Largest body of a request; a larger one is answered with "
		"413.\nAt doors whose requests a worker is told (mcp_agent, "
		"mcp_grader, lifecycle_plain)\nno more than it is told at "
		"once, 16 MiB less 4 KiB, whatever is larger here;\nthere it "
		"bounds messages of a WebSocket as well (1009).\nWhat an "
		"agent may send costs everybody, in memory and in time: a "
		"body is read\nwhole before it is looked at, and one of 256 "
		"KiB or more takes its turn, one in a\nturn of the event "
		"loop, listeners one after the other." },
	{ .name = "header_line_max",
	    .scopes = OUTER,
	    .type = CONF_SIZE,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(header_line_max_bytes),
	    .min = 256,
	    .max = MIB,
	    .def = "16k",
	    .args = "SIZE",
	    .doc = "Longest line of a request's head." },
	{ .name = "header_max",
	    .scopes = OUTER,
	    .type = CONF_SIZE,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(header_max_bytes),
	    .min = KIB,
	    .max = 16 * MIB,
	    .def = "64k",
	    .args = "SIZE",
	    .doc = "Largest head of a request." },
	{ .name = "header_max_n",
	    .scopes = OUTER,
	    .type = CONF_NUMBER,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(header_max_n),
	    .min = 1,
	    .max = 10000,
	    .def = "100",
	    .args = "NUMBER",
	    .doc = "Most header fields of a request." },
	{ .name = "max_connections",
	    .scopes = OUTER,
	    .type = CONF_NUMBER,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(max_connections),
	    .max = 1000000,
	    .def = "0",
	    .args = "NUMBER",
	    .doc =
		"Most connections at once at each address that the server "
		"listens on; 0 sets\nno limit, but inside of an "
		"episode a sixteenth of connections.\nRequests on one too many "
		"get 503; /health and /status are answered all the "
		"same.\nOf servers that share an address the first "
		"counts." },
	{ .name = "max_connections_per_address",
	    .scopes = OUTER,
	    .type = CONF_NUMBER,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(max_connections_per_address),
	    .max = 1000000,
	    .def = "0",
	    .args = "NUMBER",
	    .doc = "The same of each client's address (of IPv6 ones: of each "
		   "/64).\nRequests on one too many get 429." },
	{ .name = "sockets",
	    .scopes = ALL,
	    .type = CONF_NUMBER,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(sockets),
	    .min = 1,
	    .max = 1000000,
	    .def = "4096",
	    .args = "NUMBER",
	    .doc = "Most WebSockets and event streams open at once at each "
		   "location of a door\n(lifecycle, mcp_agent, mcp_grader, "
		   "observe); of a listener inside, in each\nepisode.\nOne too "
		   "many is refused with 429." },
	{ .name = "max_calls_per_second",
	    .scopes = ALL,
	    .type = CONF_NUMBER,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(max_calls_per_second),
	    .max = 1000000,
	    .def = "0",
	    .args = "NUMBER",
	    .doc = "Most operations in a second at each such location, "
		   "counted likewise; 0 sets no\nlimit.\nOne too many is "
		   "refused with 429, over a WebSocket with an error; the "
		   "socket\nstays open." },
	{ .name = "output_buffer",
	    .scopes = ALL,
	    .type = CONF_SIZE,
	    .flags = CONF_INHERITS,
	    .offset = LIMIT(output_buffer_bytes),
	    .min = 4 * KIB,
	    .max = GIB,
	    .def = "256k",
	    .args = "SIZE",
	    .doc = "Bytes of a reply that wait for a slow client before its "
		   "upstream is\npaused." },
	{ .name = NULL },
};
