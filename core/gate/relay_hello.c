#include "config.h"

#include <stdint.h>

#include "base/mem.h"
#include "event/hosts.h"
#include "gate/relay_hello.h"

_Static_assert((int)RELAY_HELLO_NAME_MAX == (int)HOSTS_NAME_MAX, "a name");

enum {
	HELLO_RECORD_HEAD = 5,
	HELLO_HEAD = 4,
	HELLO_HANDSHAKE = 22, /* content type */
	HELLO_CLIENT = 1, /* message type */
	HELLO_MAJOR = 3, /* of every version from SSL 3.0 on */
	HELLO_RANDOM = 32,
	HELLO_SESSION_MAX = 32,
	HELLO_SERVER_NAME = 0, /* extension */
	HELLO_HOST_NAME = 0, /* type of a name */
	HELLO_EXTENSIONS_MAX = 256,
};

/* ---- a cursor --------------------------------------------------------------- */

struct hello {
	struct view v;
	bool bad;
};

static struct view
hello_take(struct hello *h, size_t n)
{
	struct view got = view_sub(h->v, 0, n);

	if (n > h->v.n) {
		h->bad = true;
		return VIEW_NONE;
	}
	h->v = view_from(h->v, n);
	return got;
}

/* An integer of so many bytes. */
static size_t
hello_number(struct hello *h, size_t bytes)
{
	struct view v = hello_take(h, bytes);
	size_t i, x = 0;

	for (i = 0; i < v.n; i++)
		x = x << 8 | (uint8_t)v.p[i];
	return x;
}

/* A vector behind its length of so many bytes. */
static struct view
hello_vector(struct hello *h, size_t bytes)
{
	return hello_take(h, hello_number(h, bytes));
}

/* ---- the message ------------------------------------------------------------ */

/*
 * RFC 6066 s3: a list of names of different types, of which there is one.
 * A list with another one, or with more than one, is refused.
 */
static int
hello_server_name(struct view data, char *name, size_t *n)
{
	struct hello h = { .v = data };
	struct hello list = { .v = hello_vector(&h, 2) };
	size_t type = hello_number(&list, 1);
	struct view host = hello_vector(&list, 2);

	if (h.bad || list.bad || h.v.n > 0 || list.v.n > 0 ||
	    type != HELLO_HOST_NAME || host.n > HOSTS_NAME_MAX ||
	    view_ends(host, VIEW(".")))
		return SP_E_SYNTAX;
	*n = hosts_name(host, name);
	return *n > 0 ? SP_OK : SP_E_SYNTAX;
}

static int
hello_extensions(struct view data, char *name, size_t *n)
{
	struct hello h = { .v = data };
	unsigned i;
	int rc = SP_OK;

	for (i = 0; h.v.n > 0 && !h.bad && rc == SP_OK; i++) {
		size_t type = hello_number(&h, 2);
		struct view body = hello_vector(&h, 2);

		if (i == HELLO_EXTENSIONS_MAX)
			return SP_E_LIMIT;
		if (h.bad || type != HELLO_SERVER_NAME)
			continue;
		/* RFC 8446 s4.2: not twice */
		rc = *n > 0 ? SP_E_SYNTAX : hello_server_name(body, name, n);
	}
	return h.bad ? SP_E_SYNTAX : rc;
}

/* RFC 8446 s4.1.2 */
static int
hello_body(struct view body, char *name, size_t *n)
{
	struct hello h = { .v = body };
	size_t major = hello_number(&h, 1);
	struct view session, suites, compression, extensions;

	(void)hello_number(&h, 1);
	(void)hello_take(&h, HELLO_RANDOM);
	session = hello_vector(&h, 1);
	suites = hello_vector(&h, 2);
	compression = hello_vector(&h, 1);
	if (h.bad || major != HELLO_MAJOR || session.n > HELLO_SESSION_MAX ||
	    suites.n < 2 || suites.n % 2 != 0 || compression.n == 0)
		return SP_E_SYNTAX;
	/* versions before 1.3 may do without */
	if (h.v.n == 0)
		return SP_OK;
	extensions = hello_vector(&h, 2);
	if (h.bad || h.v.n > 0)
		return SP_E_SYNTAX;
	return hello_extensions(extensions, name, n);
}

/* ---- the records ------------------------------------------------------------ */

/*
 * The next record's part of the message; what is there of one that is not
 * whole, with *whole false.
 */
static int
hello_record(struct hello *h, struct view *part, bool *whole)
{
	struct hello head = { .v = view_sub(h->v, 0, HELLO_RECORD_HEAD) };
	bool have = h->v.n >= HELLO_RECORD_HEAD;
	size_t type, major, n;

	*part = VIEW_NONE;
	*whole = false;
	/* who speaks something else is told so by the first bytes */
	if (h->v.n > 0 && (uint8_t)h->v.p[0] != HELLO_HANDSHAKE)
		return SP_E_SYNTAX;
	if (h->v.n > 1 && (uint8_t)h->v.p[1] != HELLO_MAJOR)
		return SP_E_SYNTAX;
	if (!have)
		return SP_OK;
	type = hello_number(&head, 1);
	major = hello_number(&head, 1);
	(void)hello_number(&head, 1);
	n = hello_number(&head, 2);
	/* RFC 8446 s5.1: handshake records are not empty, nor above 2^14 */
	if (type != HELLO_HANDSHAKE || major != HELLO_MAJOR || n == 0 ||
	    n > 1 << 14)
		return SP_E_SYNTAX;
	h->v = view_from(h->v, HELLO_RECORD_HEAD);
	*whole = h->v.n >= n;
	*part = view_sub(h->v, 0, n);
	h->v = view_from(h->v, n);
	return SP_OK;
}

/* Where message bytes are put together when a record does not hold all. */
struct hello_message {
	char *mem; /* NULL: in one piece so far */
	struct view v;
};

static int
hello_join(struct hello_message *m, struct view part)
{
	size_t n = m->v.n;

	if (n == 0) {
		m->v = part;
		return SP_OK;
	}
	if (part.n == 0)
		return SP_OK;
	if (part.n > HELLO_HEAD + RELAY_HELLO_MAX - n)
		return SP_E_SYNTAX;
	if (m->mem == NULL) {
		m->mem = mem_alloc(HELLO_HEAD + RELAY_HELLO_MAX);
		if (m->mem == NULL)
			return SP_E_NOMEM;
		memcpy(m->mem, m->v.p, n);
	}
	memcpy(m->mem + n, part.p, part.n);
	m->v = view_of(m->mem, n + part.n);
	return SP_OK;
}

/* 0: *want bytes are the message with its head, once its head is there. */
static int
hello_want(struct view got, size_t *want)
{
	struct hello h = { .v = got };
	size_t n;

	*want = SIZE_MAX;
	if (got.n > 0 && got.p[0] != HELLO_CLIENT)
		return SP_E_SYNTAX;
	if (got.n < HELLO_HEAD)
		return SP_OK;
	(void)hello_number(&h, 1);
	n = hello_number(&h, 3);
	if (n > RELAY_HELLO_MAX)
		return SP_E_LIMIT;
	*want = HELLO_HEAD + n;
	return SP_OK;
}

static int
hello_gather(struct hello *h, struct hello_message *m)
{
	unsigned i;
	int rc;

	for (i = 0; i < RELAY_HELLO_RECORDS; i++) {
		struct view part;
		size_t want;
		bool whole;

		rc = hello_record(h, &part, &whole);
		if (rc == SP_OK)
			rc = hello_join(m, part);
		if (rc == SP_OK)
			rc = hello_want(m->v, &want);
		if (rc != SP_OK)
			return rc;
		/* RFC 8446 s5.1: nothing else is in its last record */
		if (m->v.n > want)
			return SP_E_SYNTAX;
		if (m->v.n == want)
			return whole ? SP_OK : SP_E_SYNTAX;
		if (!whole)
			return SP_E_AGAIN;
	}
	return SP_E_LIMIT;
}

int
relay_hello_read(struct view bytes, char *name, size_t *n)
{
	struct hello h = { .v = bytes };
	struct hello_message m = { .mem = NULL };
	int rc = hello_gather(&h, &m);

	*n = 0;
	if (rc == SP_OK)
		rc = hello_body(view_from(m.v, HELLO_HEAD), name, n);
	mem_free(m.mem);
	return rc;
}
