/*
 * What anybody may send to scripted-model, and a script that it may be given:
 * the first byte says how the requests after it are answered.
 */
#include <stdint.h>
#include <unistd.h>

#include "sm_answer.h"
#include "sm_brain.h"
#include "sm_render.h"

enum {
	SCRIPT = 0x80, /* the bytes are a turn of a script */
	IN_MAX = 1 << 20,
	REQUESTS = 8
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char answers[] =
    "POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 98\r\n\r\n"
    "{\"stream\":true,\"logprobs\":true,\"top_logprobs\":2,"
    "\"return_token_ids\":true,\"n\":2,\"messages\":[],\"z\":12345}";

/* The marks of a reply lie in it, in order. */
static void
check_reply(struct sm_reply *r)
{
	size_t i, off = 0;

	for (i = 0; i < r->marks.n; i++) {
		err_assert(r->marks.v[i].off >= off);
		off = r->marks.v[i].off;
	}
	sm_reply_unref(r);
}

static void
run_requests(struct sm_answer *s, struct view v)
{
	struct buf in = BUF_INIT(IN_MAX);
	struct sm_reply *r = NULL;
	struct sm_http h;
	int i, rc = buf_add_view(&in, v);

	for (i = 0; i < REQUESTS && rc == 0; i++) {
		sm_http_init(&h, 65536);
		rc = sm_http_feed(&h, &in);
		if (rc == 0 && sm_answer_request(s, &h, &r) == 0)
			check_reply(r);
		sm_http_reset(&h);
	}
	buf_clear(&in);
}

/* The same, with the bytes as the only turn of a script. */
static void
run_script(struct sm_answer *s, struct view v)
{
	struct buf in = BUF_INIT(IN_MAX);
	struct arena *a = arena_new(IN_MAX * 4);
	struct sm_json *turn;
	struct sm_payload p;
	struct sm_http h;
	struct sm_ask ask = { 0 };

	sm_http_init(&h, 65536);
	if (a != NULL && sm_json_parse(a, v, &turn, NULL, 0) == 0 &&
	    sm_render_check(turn) == NULL &&
	    buf_add(&in, answers, sizeof(answers) - 1) == 0 &&
	    sm_http_feed(&h, &in) == 0 &&
	    sm_ask_parse(&ask, &h, NULL, 0) == 0) {
		struct sm_render r = { &ask, turn, s->shape, s->model, 1,
			true };

		sm_reply_payload_init(&p);
		if (sm_render_turn(&r, &p) != 0)
			err_assert(sm_json_get(turn, "steps") != NULL);
		sm_reply_payload_clear(&p);
	}
	sm_ask_clear(&ask);
	sm_http_reset(&h);
	arena_free(a);
	buf_clear(&in);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct sm_answer s = { .model = VIEW("m"), .max_model_len = 100 };

	if (n == 0)
		return 0;
	s.shape = (enum sm_shape)(data[0] & 3);
	s.refuse = data[0] & 4 ? SM_REFUSE_IDS | SM_REFUSE_MAX_TOKENS : 0;
	if (data[0] & 8)
		s.bulk_events = s.unary_bytes = 9;
	if (data[0] & SCRIPT)
		run_script(&s, view_of(data + 1, n - 1));
	else
		run_requests(&s, view_of(data + 1, n - 1));
	sm_answer_clear(&s);
	return 0;
}
