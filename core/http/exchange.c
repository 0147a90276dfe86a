#include "config.h"

#include "http/exchange.h"

int
exchange_continue(struct exchange *x)
{
	if (x->state != EXCHANGE_REQUEST)
		return SP_E_STATE;
	return x->backend->interim(x, 100);
}

int
exchange_head(struct exchange *x, const struct head_reply *head)
{
	int rc;

	/* interim replies have a call of their own */
	if (x->state != EXCHANGE_REQUEST || head->status < 200 ||
	    head->status > 999)
		return SP_E_STATE;
	/* RFC 9110 s6.4.1 */
	x->reply_bodyless = view_eq(x->request.method, VIEW("HEAD")) ||
	    head->status == 204 || head->status == 304;
	x->reply_length = head->content_length;
	rc = x->backend->head(x, head);
	if (rc == 0)
		x->state = EXCHANGE_HEAD;
	return rc;
}

int
exchange_upgrade(struct exchange *x, const struct head_reply *head)
{
	int rc;

	if (x->state != EXCHANGE_REQUEST || x->request.upgrade.n == 0)
		return SP_E_STATE;
	if (x->backend->upgrade == NULL)
		return SP_E_UNSUPPORTED;
	rc = x->backend->upgrade(x, head);
	if (rc != 0)
		return rc;
	x->state = EXCHANGE_HEAD;
	x->reply_length = -1;
	x->reply_bodyless = false;
	x->upgraded = x->patient = x->request.has_body = true;
	return 0;
}

int
exchange_datav(struct exchange *x, const struct view *v, size_t n)
{
	uint64_t total = 0;
	size_t i;
	int rc;

	if (x->state != EXCHANGE_HEAD)
		return SP_E_STATE;
	for (i = 0; i < n; i++)
		total += v[i].n;
	if (total == 0)
		return 0;
	if (x->reply_bodyless ||
	    (x->reply_length >= 0 &&
		total > (uint64_t)x->reply_length - x->sent_bytes))
		return SP_E_STATE;
	rc = x->backend->data(x, v, n);
	if (rc == 0)
		x->sent_bytes += total;
	return rc;
}

int
exchange_data(struct exchange *x, struct view data)
{
	return exchange_datav(x, &data, 1);
}

int
exchange_end(struct exchange *x)
{
	int rc;

	if (x->state != EXCHANGE_HEAD)
		return SP_E_STATE;
	if (!x->reply_bodyless && x->reply_length >= 0 &&
	    x->sent_bytes != (uint64_t)x->reply_length)
		return SP_E_STATE;
	/* nothing more comes: what there is has to be taken in time */
	x->patient = false;
	rc = x->backend->end(x);
	if (rc == 0)
		x->state = EXCHANGE_ENDED;
	return rc;
}

int
exchange_simple(struct exchange *x, unsigned status, struct view type,
    struct view body)
{
	struct head_field field = { VIEW("Content-Type"), type };
	struct head_reply head = { .status = status,
		.content_length = (int64_t)body.n,
		.fields = { .v = &field, .n = type.n != 0, .cap = 1 } };
	int rc = exchange_head(x, &head);

	if (rc == 0 && !x->reply_bodyless)
		rc = exchange_data(x, body);
	return rc != 0 ? rc : exchange_end(x);
}

void
exchange_abort(struct exchange *x)
{
	if (x->state != EXCHANGE_ENDED)
		x->backend->reset(x);
}

void
exchange_drop(struct exchange *x)
{
	if (x->backend->drop != NULL)
		x->backend->drop(x);
	else
		exchange_abort(x);
}

void
exchange_credit(struct exchange *x, size_t n)
{
	if (n != 0)
		x->backend->credit(x, n);
}

size_t
exchange_room(const struct exchange *x)
{
	return x->backend->room(x);
}

size_t
exchange_queued(const struct exchange *x)
{
	return x->backend->queued != NULL ? x->backend->queued(x) : 0;
}

void
exchange_set_probe(struct exchange *x, struct view bytes)
{
	x->probe = bytes;
}
