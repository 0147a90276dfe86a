/* What relay*.c share; nobody else includes it. */
#ifndef SP_GATE_RELAY_PRIV_H
#define SP_GATE_RELAY_PRIV_H

#include <sys/queue.h>

#include "base/buf.h"
#include "event/hosts.h"
#include "gate/relay.h"
#include "gate/relay_hello.h"
#include "http/h1_parse.h"
#include "net/dial.h"
#include "net/listener.h"
#include "net/stream.h"

enum {
	RELAY_HELD_MAX = 32 * 1024, /* bytes, each way */
	RELAY_EXTRA = 16, /* connections that are told they are too many */
	RELAY_LINGER_MS = 2000, /* until who was refused has read it */
};

struct relay_place;

struct relay {
	struct relay_world w;
	LIST_HEAD(, relay_place) places;
	size_t conns_n;
	int probe; /* of relay_rules_is_local() */
	uint64_t *verdicts[RELAY_VERDICTS][RELAY_WAYS];
	uint64_t *bytes[2]; /* sent, received */
	uint64_t *open;
};

/* An episode where it is now: its listeners, and who came through them. */
struct relay_place {
	LIST_ENTRY(relay_place) link;
	struct relay *relay;
	struct episode *ep;
	struct episode_watch watch;
	struct listener *doors[RELAY_WAYS]; /* NULL: none */
	LIST_HEAD(, relay_conn) conns;
	unsigned conns_n;
	/* lines of the log in this second */
	uint64_t second, lines_n, skipped;
};

enum relay_state {
	RELAY_ST_HEAD, /* CONNECT is read */
	RELAY_ST_REACH, /* nothing is read */
	RELAY_ST_HELLO, /* the ClientHello is read */
	RELAY_ST_BYTES,
	RELAY_ST_LINGER, /* refused in words */
};

/* One direction of a connection. */
struct relay_flow {
	struct buf held; /* read, and not written yet */
	bool eof; /* the reader has seen its end */
	bool shut; /* and the writer's side was ended */
	uint64_t bytes;
};

struct relay_conn {
	LIST_ENTRY(relay_conn) link;
	struct relay_place *place;
	enum relay_way way;
	enum relay_state state;
	bool told; /* a verdict was */
	bool replied; /* CONNECT: 200 is on its way */
	struct stream *in, *out; /* the episode's, the world's or NULL */
	struct relay_flow up, down; /* from the episode, to it */
	struct loop_timer *timer;
	struct resolver_query *query;
	struct dial *dial;
	struct h1_scan scan;
	uint32_t addr;
	uint16_t port;
	size_t name_n;
	char name[HOSTS_NAME_MAX];
	uint64_t lingered; /* bytes thrown away */
};

/* ---- relay.c ---------------------------------------------------------------- */

/* The verdict about c; once, and for one that was allowed at its end again. */
void relay_tell(struct relay_conn *c, enum relay_verdict v, const char *why,
    bool ended);
/* It is over: closes both sides, told as reset unless graceful. */
void relay_conn_free(struct relay_conn *c, bool graceful);
/*
 * Refuses it: with a reply where one is understood, else by a reset.  c may
 * be gone.
 * Parameters: why, a word; status and line, of the reply.
 */
void relay_refuse(struct relay_conn *c, enum relay_verdict v, const char *why,
    unsigned status, const char *line);
struct view relay_conn_name(const struct relay_conn *c);
/* Today's rules of its episode, or NULL. */
const struct conf_environment *relay_conn_rules(const struct relay_conn *c);
uint64_t relay_ms(uint64_t set, uint64_t usual);

/* ---- relay_connect.c: what comes before bytes are carried -------------------- */

/* Right after accept: what is read first.  c may be gone. */
void relay_connect_begin(struct relay_conn *c);
void relay_connect_ready(void *arg, struct stream *s, unsigned what);
/* The other side is there.  c may be gone. */
void relay_connect_reached(struct relay_conn *c);

/* ---- relay_reach.c ---------------------------------------------------------- */

/* Finds the name's address, or takes c->addr, and connects. */
void relay_reach_name(struct relay_conn *c);
void relay_reach_addr(struct relay_conn *c);

/* ---- relay_pipe.c ----------------------------------------------------------- */

/* From now on bytes are carried.  c may be gone. */
void relay_pipe_begin(struct relay_conn *c);
/* Reads into what is held, at most so many: 0; SP_E_AGAIN, SP_E_EOF, ... */
int relay_pipe_fill(struct stream *from, struct relay_flow *f,
    size_t max) must_check;
/* Writes what is held: 0 also when some is left; SP_E_GONE. */
int relay_pipe_flush(struct stream *to, struct relay_flow *f) must_check;

#endif
