#include "config.h"

#include <string.h>

#include "ipc/session_msg.h"

/* The texts in the order of the wire, each with its bound. */
static const struct {
	size_t at, max;
} texts[] = {
	{ offsetof(struct session_msg, id), SESSION_MSG_ID_MAX },
	{ offsetof(struct session_msg, capture), SESSION_MSG_NAME_MAX },
	{ offsetof(struct session_msg, upstream), SESSION_MSG_NAME_MAX },
	{ offsetof(struct session_msg, model), SESSION_MSG_MODEL_MAX },
	{ offsetof(struct session_msg, purpose), SESSION_MSG_WORD_MAX },
	{ offsetof(struct session_msg, sampling), SESSION_MSG_SAMPLING_MAX },
	{ offsetof(struct session_msg, metadata), SESSION_MSG_META_MAX },
};
static const size_t numbers[] = {
	offsetof(struct session_msg, max_calls),
	offsetof(struct session_msg, max_tokens),
	offsetof(struct session_msg, max_wall_ms),
	offsetof(struct session_msg, created_us),
	offsetof(struct session_msg, calls),
	offsetof(struct session_msg, tokens),
};

enum {
	TEXTS_N = sizeof(texts) / sizeof(texts[0]),
	NUMBERS_N = sizeof(numbers) / sizeof(numbers[0]),
};

int
session_msg_put(struct buf *b, const struct session_msg *m)
{
	const char *base = (const char *)m;
	struct view v;
	uint64_t n;
	size_t i;
	int rc;

	rc = wire_put_bytes(b, view_of(m->key, sizeof(m->key)));
	for (i = 0; i < TEXTS_N && rc == 0; i++) {
		memcpy(&v, base + texts[i].at, sizeof(v));
		rc = v.n > texts[i].max ? SP_E_LIMIT : wire_put_bytes(b, v);
	}
	for (i = 0; i < NUMBERS_N && rc == 0; i++) {
		memcpy(&n, base + numbers[i], sizeof(n));
		rc = wire_put_u64(b, n);
	}
	return rc;
}

void
session_msg_get(struct wire *w, struct session_msg *m)
{
	char *base = (char *)m;
	struct view v = wire_bytes(w);
	uint64_t n;
	size_t i;

	memset(m, 0, sizeof(*m));
	if (v.n == sizeof(m->key))
		memcpy(m->key, v.p, sizeof(m->key));
	else
		w->bad = 1;
	for (i = 0; i < TEXTS_N; i++) {
		v = wire_bytes(w);
		if (v.n > texts[i].max)
			w->bad = 1;
		*(struct view *)(void *)(base + texts[i].at) = v;
	}
	for (i = 0; i < NUMBERS_N; i++) {
		n = wire_u64(w);
		memcpy(base + numbers[i], &n, sizeof(n));
	}
}

bool
session_msg_word(struct view v, size_t max)
{
	size_t i;

	for (i = 0; i < v.n; i++)
		if (v.p[i] <= ' ' || v.p[i] > '~' || v.p[i] == '"' ||
		    v.p[i] == '\\')
			return false;
	return v.n <= max;
}
