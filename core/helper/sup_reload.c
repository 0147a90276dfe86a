#include "config.h"

#include "base/log.h"
#include "helper/complain.h"
#include "helper/notify.h"
#include "helper/outcome.h"
#include "helper/supervisor_priv.h"
#include "ipc/wire.h"

/*
 * A reload in two steps.  Both roles make ready what they are handed, and
 * nothing changes until both have: then it is decided, and whoever dies from
 * there on is started with the new configuration.
 */

enum { SUP_RELOAD_ANSWER_MS = 30 * 1000, SUP_RELOAD_WHY_MAX = 8192 };

static void
sup_reload_tell(struct supervisor *s, struct sup_role *r,
    enum message_type type)
{
	struct buf b = BUF_INIT(16);

	if (r->ready && wire_put_u32(&b, s->r->generation.number) == SP_OK)
		(void)!supervisor_send(r, type, buf_view(&b), -1);
	buf_clear(&b);
}

/* One that was asked for meanwhile comes from the timer, in its own turn. */
static void
sup_reload_over(struct supervisor *s)
{
	s->reload_phase = SUP_RELOAD_NONE;
	s->reload_waits = 0;
	poller_timer_stop(s->reload_timer);
	/* also of one that failed: it serves on */
	notify_send("READY=1");
	if (s->reload_wanted)
		poller_timer_set(s->reload_timer, 0);
}

/* To the log, and to whoever waits for the outcome. */
static void __attribute__((format(printf, 2, 3)))
sup_reload_say(struct supervisor *s, const char *fmt, ...)
{
	struct buf b = BUF_INIT(SUP_RELOAD_WHY_MAX);
	struct view v = VIEW("out of memory");
	va_list ap;

	va_start(ap, fmt);
	if (buf_vprintf(&b, fmt, ap) == SP_OK)
		v = buf_view(&b);
	va_end(ap);
	log_error("%.*s", VIEW_ARG(v));
	/* what does not fit is in the log */
	(void)!buf_printf(&s->reload_why, "%.*s\n", VIEW_ARG(v));
	buf_clear(&b);
}

static void
sup_reload_refused(struct supervisor *s)
{
	log_error("the configuration is not reloaded; nothing has changed");
	outcome_write(s->w->site->state_fd, s->reload_number, OUTCOME_REFUSED,
	    buf_view(&s->reload_why));
	sup_reload_over(s);
}

static void
sup_reload_give_up(struct supervisor *s)
{
	sup_reload_tell(s, &s->recorder, MESSAGE_ABANDON);
	sup_reload_tell(s, &s->reactor, MESSAGE_ABANDON);
	reload_drop(s->r);
	sup_reload_refused(s);
}

static void
sup_reload_done(struct supervisor *s)
{
	if (s->reload_logs)
		supervisor_send_logs(s);
	log_notice("the configuration is reloaded (generation %u)",
	    s->w->now.number);
	outcome_write(s->w->site->state_fd, s->reload_number, OUTCOME_TAKEN,
	    VIEW_NONE);
	sup_reload_over(s);
}

/* Both can: nothing from here on may fail. */
static void
sup_reload_decide(struct supervisor *s)
{
	s->reload_logs = s->r->set.error_fd >= 0 || s->r->set.access_fd >= 0;
	reload_take(s->r, s->w);
	s->reload_phase = SUP_RELOAD_COMMITTING;
	s->reload_waits = MESSAGE_REACTOR | MESSAGE_RECORDER;
	poller_timer_set(s->reload_timer, SUP_RELOAD_ANSWER_MS);
	/* the recorder first: turns of it may come at once */
	sup_reload_tell(s, &s->recorder, MESSAGE_COMMIT);
	sup_reload_tell(s, &s->reactor, MESSAGE_COMMIT);
}

static void
sup_reload_begin(struct supervisor *s)
{
	struct sup_role *both[] = { &s->recorder, &s->reactor };
	size_t i;

	s->reload_wanted = false;
	s->reload_number++;
	buf_truncate(&s->reload_why, 0);
	outcome_write(s->w->site->state_fd, s->reload_number, OUTCOME_PENDING,
	    VIEW_NONE);
	complain_copy(&s->reload_why);
	notify_reloading();
	if (reload_make(s->r, s->w) != SP_OK) {
		complain_copy(NULL);
		sup_reload_refused(s);
		return;
	}
	complain_copy(NULL);
	s->reload_phase = SUP_RELOAD_PREPARING;
	s->reload_waits = MESSAGE_REACTOR | MESSAGE_RECORDER;
	poller_timer_set(s->reload_timer, SUP_RELOAD_ANSWER_MS);
	for (i = 0; i < 2; i++) {
		int rc = SP_E_GONE;

		if (both[i]->c != NULL)
			rc = rolerun_prepare(&s->r->generation, both[i]->who,
			    both[i]->c);
		if (rc == SP_OK)
			continue;
		/* with half of it, it is of no use any more */
		log_error("%s cannot be handed the configuration: %s",
		    rolerun_name(both[i]->who), err_str(rc));
		supervisor_kill(both[i]);
	}
}

void
sup_reload_ready(struct supervisor *s)
{
	if (s->reload_wanted && s->phase == SUP_SERVING &&
	    s->reload_phase == SUP_RELOAD_NONE && s->reactor.ready &&
	    s->recorder.ready)
		sup_reload_begin(s);
}

void
sup_reload_ask(struct supervisor *s)
{
	if (supervisor_stopping(s)) {
		log_notice("on the way out: no reload");
		return;
	}
	s->reload_wanted = true;
	sup_reload_ready(s);
	if (s->reload_wanted)
		log_notice("the reload comes when both roles serve");
}

void
sup_reload_lost(struct sup_role *r)
{
	struct supervisor *s = r->s;

	if (s->reload_phase == SUP_RELOAD_PREPARING) {
		sup_reload_say(s,
		    "%s died over the new configuration, or meanwhile",
		    rolerun_name(r->who));
		sup_reload_give_up(s);
	} else if (s->reload_phase == SUP_RELOAD_COMMITTING) {
		/* its successor is handed the new one */
		s->reload_waits &= ~r->who;
		if (s->reload_waits == 0)
			sup_reload_done(s);
	}
}

void
sup_reload_stop(struct supervisor *s)
{
	s->reload_wanted = false;
	if (s->reload_phase == SUP_RELOAD_PREPARING)
		sup_reload_give_up(s);
}

int
sup_reload_prepared(struct sup_role *r, const struct channel_msg *m)
{
	struct supervisor *s = r->s;
	uint32_t number;
	struct view why;
	struct wire w;

	wire_init(&w, m->body);
	number = wire_u32(&w);
	why = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	/* of one that was given up while it worked on it */
	if (s->reload_phase != SUP_RELOAD_PREPARING ||
	    number != s->r->generation.number)
		return number <= s->r->last ? SP_OK : SP_E_PROTO;
	if (!(s->reload_waits & r->who))
		return SP_E_PROTO;
	s->reload_waits &= ~r->who;
	if (why.n > 0) {
		sup_reload_say(s, "%s refuses the configuration: %.*s",
		    rolerun_name(r->who), VIEW_ARG(why));
		sup_reload_give_up(s);
	} else if (s->reload_waits == 0) {
		sup_reload_decide(s);
	}
	return SP_OK;
}

int
sup_reload_committed(struct sup_role *r, const struct channel_msg *m)
{
	struct supervisor *s = r->s;
	uint32_t number;
	struct wire w;

	wire_init(&w, m->body);
	number = wire_u32(&w);
	if (wire_done(&w) != SP_OK ||
	    s->reload_phase != SUP_RELOAD_COMMITTING ||
	    number != s->r->generation.number || !(s->reload_waits & r->who))
		return SP_E_PROTO;
	s->reload_waits &= ~r->who;
	if (s->reload_waits == 0)
		sup_reload_done(s);
	return SP_OK;
}

static void
sup_reload_on_timer(void *arg)
{
	struct supervisor *s = arg;
	struct sup_role *both[] = { &s->recorder, &s->reactor };
	unsigned late = s->reload_waits;
	size_t i;

	if (s->reload_phase == SUP_RELOAD_NONE) {
		sup_reload_ready(s);
		return;
	}
	for (i = 0; i < 2; i++)
		if (late & both[i]->who) {
			sup_reload_say(s,
			    "%s did not answer for the configuration in time "
			    "and is killed",
			    rolerun_name(both[i]->who));
			supervisor_kill(both[i]);
		}
	if (s->reload_phase == SUP_RELOAD_PREPARING)
		sup_reload_give_up(s);
}

int
sup_reload_init(struct supervisor *s)
{
	buf_init(&s->reload_why, SUP_RELOAD_WHY_MAX);
	outcome_begin(s->w->site->state_fd);
	s->reload_timer = poller_timer_new(s->p, sup_reload_on_timer, s);
	return s->reload_timer != NULL ? SP_OK : SP_E_NOMEM;
}

void
sup_reload_clear(struct supervisor *s)
{
	poller_timer_free(s->reload_timer);
	s->reload_timer = NULL;
	buf_clear(&s->reload_why);
}
