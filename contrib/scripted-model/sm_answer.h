/* From a request to the reply that is played to it. */
#ifndef SP_SM_ANSWER_H
#define SP_SM_ANSWER_H

#include "sm_http.h"
#include "sm_reply.h"
#include "sm_script.h"
#include "sm_token.h"

enum {
	SM_REFUSE_LOGPROBS = 1,
	SM_REFUSE_IDS = 2,
	SM_REFUSE_MAX_TOKENS = 4,
	SM_REFUSE_TOOL_LOGPROBS = 8, /* logprobs with tools and stream */
	SM_ANSWER_CACHED = 32
};

struct sm_answer {
	struct sm_script *script; /* owned; NULL: the embedded default */
	enum sm_shape shape;
	unsigned refuse; /* SM_REFUSE_* */
	struct view model; /* said when the request names none */
	int64_t max_model_len;
	double pace; /* tokens a second, 0 unpaced */
	long write_n; /* as in struct sm_frame */
	unsigned delay_ms; /* before each reply to a completion */
	struct view key; /* the API key; none when p is NULL */
	uint64_t bulk_events; /* 0: off */
	uint64_t unary_bytes; /* 0: off */
	int bulk_top;
	bool bulk_stamp; /* "created" says when it was sent */
	uint64_t serial;
	struct sm_reply *cache[SM_ANSWER_CACHED]; /* of bulk replies */
};

/*
 * Context: any, does not block.
 * Owner:   *out has one reference, the caller's; sm_answer_clear() frees what
 *          the struct owns.
 * Returns: 0; SP_E_NOMEM; SP_E_LIMIT.
 */
int sm_answer_request(struct sm_answer *s, const struct sm_http *h,
    struct sm_reply **out) must_check;
/* An OpenAI error object that ends the connection. */
int sm_answer_error(int status, const char *message,
    struct sm_reply **out) must_check;
/* The name's bit, 0 when it is none. */
unsigned sm_answer_refuse_bit(struct view name);
bool sm_answer_shape(struct view name, enum sm_shape *out);
void sm_answer_clear(struct sm_answer *s);

#endif
