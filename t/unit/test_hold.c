/*
 * core/helper/hold.c and grade.c: among keepers and a reactor that are played
 * here, with each allocation failing in turn.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/mem.h"
#include "helper/assets.h"
#include "helper/episodes_priv.h"
#include "ipc/wire.h"
#include "os/fd.h"
#include "tap.h"

enum { CALLS_MAX = 16, NUMBER = 7, SLOT = 3, GENERATION = 5 };

/* ---- the world -------------------------------------------------------------- */

static struct conf_environment env;
static struct conf_env_asset oracle;
static struct ep_env ep_env = { .name = "work", .env = &env, .assets_fd = -1 };
static struct episodes episodes;
static struct slot slot;
static struct ep ep;

/* What keepers were asked and have not answered. */
static struct call {
	enum message_type type;
	slot_answer *own;
	void *arg;
} calls[CALLS_MAX];
static size_t calls_n;

/* What was asked for, and what the reactor was told. */
static struct {
	unsigned exited, not_started, refused; /* the answers of one */
	unsigned frozen, thawed, freeze_failed;
	unsigned malformed, failed, again;
	bool build, run, end;
} got;

int
slot_ask_own(struct slot *s, uint8_t side, enum message_type type,
    struct view body, slot_answer *own, void *arg)
{
	void *room = mem_alloc(body.n + 1); /* as a queue needs it */

	(void)s;
	(void)side;
	if (room == NULL)
		return SP_E_NOMEM;
	mem_free(room);
	if (calls_n == CALLS_MAX)
		return SP_E_LIMIT;
	calls[calls_n++] =
	    (struct call){ .type = type, .own = own, .arg = arg };
	return SP_OK;
}

static void
discard(void *arg, const struct channel_msg *m, struct view rest, int fd)
{
	(void)arg;
	(void)m;
	(void)rest;
	fd_close(&fd);
}

void
slot_forget_own(struct slot *s, const void *arg)
{
	size_t i;

	(void)s;
	for (i = 0; i < calls_n; i++)
		if (calls[i].arg == arg)
			calls[i].own = discard;
}

void
slot_fail(struct slot *s, const char *why)
{
	(void)s;
	(void)why;
	got.failed++;
}

int
slot_oracle_start(struct slot *s, const char *assets)
{
	(void)assets;
	void *room = mem_alloc(1);

	if (room == NULL)
		return SP_E_NOMEM;
	mem_free(room);
	s->oracle = SLOT_ORACLE_STARTED;
	return SP_OK;
}

int
slot_oracle_build(struct slot *s, int upper_fd)
{
	void *room = mem_alloc(1);

	if (room == NULL)
		return SP_E_NOMEM;
	mem_free(room);
	TAP_NEVER(s->oracle != SLOT_ORACLE_STARTED || upper_fd < 0);
	got.build = true;
	return SP_OK;
}

void
slot_oracle_end(struct slot *s)
{
	if (s->oracle != SLOT_ORACLE_STARTED && s->oracle != SLOT_ORACLE_READY)
		return;
	s->oracle = SLOT_ORACLE_ENDING;
	got.end = true;
	got.build = got.run = false;
}

int
slot_run(struct slot *s, uint8_t side, uint32_t number, int run_fd)
{
	void *room = mem_alloc(1);

	(void)s;
	TAP_NEVER(side != SANDBOX_ORACLE || number != NUMBER || run_fd < 0);
	fd_close(&run_fd);
	if (room == NULL)
		return SP_E_NOMEM;
	mem_free(room);
	got.run = true;
	return SP_OK;
}

bool
slot_runs(const struct slot *s, uint32_t number)
{
	(void)s;
	(void)number;
	return false;
}

const char assets_inside[] = "/openenvd/assets";

const struct conf_env_asset *
assets_find(const struct conf_environment *e, struct view kind)
{
	(void)e;
	return view_eq(kind, oracle.kind) ? &oracle : NULL;
}

int
assets_check(const struct conf_environment *e, int dir,
    const struct conf_env_asset *a, bool run, struct buf *why)
{
	(void)e;
	(void)dir;
	(void)a;
	TAP_NEVER(!run);
	return buf_add_str(why, "a while");
}

struct ep *
episodes_find(struct episodes *e, uint32_t number, uint32_t generation)
{
	(void)e;
	return number == SLOT && generation == GENERATION ? &ep : NULL;
}

void
episodes_tell_refused(struct episodes *e, uint32_t request, unsigned why,
    struct view what)
{
	(void)e;
	(void)what; /* empty when there is no memory for words */
	TAP_NEVER(request != NUMBER);
	got.malformed += why == 0;
	got.refused++;
}

void
episodes_tell_frozen(struct ep *p, uint32_t request, enum sandbox_frozen how)
{
	(void)p;
	TAP_NEVER(request != NUMBER);
	got.frozen += how == SANDBOX_FROZEN;
	got.thawed += how == SANDBOX_THAWED;
	got.freeze_failed +=
	    how == SANDBOX_FROZEN_FAILED || how == SANDBOX_FROZEN_NEVER;
}

/* Read as the reactor reads it: a message that is cut ends the helper. */
void
episodes_tell_process(struct ep *p, enum message_type type, struct view body)
{
	struct wire w;
	unsigned i;

	(void)p;
	wire_init(&w, body);
	got.malformed += wire_u32(&w) != NUMBER;
	if (type == MESSAGE_PROCESS_NOT_STARTED) {
		(void)wire_u8(&w);
		(void)wire_u32(&w);
		(void)wire_bytes(&w);
		got.not_started++;
	} else {
		(void)wire_u8(&w);
		(void)wire_u8(&w);
		for (i = 0; i < 3; i++)
			(void)wire_u64(&w);
		got.exited++;
	}
	got.malformed += wire_done(&w) != SP_OK;
}

/* ---- playing ---------------------------------------------------------------- */

static unsigned
descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d != NULL && readdir(d) != NULL)
		n++;
	if (d != NULL)
		closedir(d);
	return n;
}

static int
some_fd(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int cannot_freeze; /* errno of a keeper that does not */
static bool cannot_build; /* the oracle's sandbox */

/* The oldest of what keepers were asked is answered. */
static void
answer(void)
{
	struct call c = calls[0];
	struct channel_msg m = { .type = MESSAGE_KEEPER_FROZEN, .fd = -1 };
	char mem[16] = { 0 };

	calls_n--;
	memmove(calls, calls + 1, calls_n * sizeof(calls[0]));
	if (c.type == MESSAGE_KEEPER_FREEZE) {
		mem[1] = (char)cannot_freeze;
		c.own(c.arg, &m, view_of(mem, 5), -1);
		return;
	}
	m.type = MESSAGE_KEEPER_FILE_DATA;
	c.own(c.arg, &m, VIEW_NONE, some_fd());
	m.type = MESSAGE_KEEPER_FILE_DONE;
	c.own(c.arg, &m, view_of(mem, 13), -1);
}

static void
hear(uint16_t type, size_t n)
{
	const struct channel_msg m = { .type = type, .fd = -1 };
	char mem[64] = { 0 };

	TAP_NEVER(!grade_heard(&ep, &m, NUMBER, view_of(mem, n)) &&
	    type != MESSAGE_KEEPER_STARTED);
}

static void
news(enum slot_oracle_news what)
{
	char words[500];

	if (what == SLOT_ORACLE_CLEAN)
		slot.oracle = SLOT_ORACLE_NONE;
	memset(words, 'w', sizeof(words));
	grade_on_oracle(NULL, &slot, what, view_of(words, sizeof(words)));
}

/* One thing that is due happens: whether there was one. */
static bool
step(void)
{
	if (calls_n > 0) {
		answer();
	} else if (got.build) {
		got.build = false;
		slot.oracle = SLOT_ORACLE_READY;
		if (cannot_build)
			slot_oracle_end(&slot);
		news(cannot_build ? SLOT_ORACLE_LOST : SLOT_ORACLE_BUILT);
	} else if (got.run) {
		got.run = false;
		hear(MESSAGE_KEEPER_STARTED, 0);
		hear(MESSAGE_KEEPER_EXITED, 26);
	} else if (got.end) {
		got.end = false;
		news(SLOT_ORACLE_EMPTY);
		news(SLOT_ORACLE_CLEAN);
	} else {
		return false;
	}
	return true;
}

static void
play(void)
{
	unsigned i;

	for (i = 0; i < 100 && step(); i++)
		continue;
	TAP_NEVER(i == 100);
}

/* ---- one pass --------------------------------------------------------------- */

static struct {
	struct poller *p;
	unsigned fds;
	size_t live;
} before;

static void
begin(void)
{
	memset(&got, 0, sizeof(got));
	calls_n = 0;
	memset(&slot, 0, sizeof(slot));
	slot.number = SLOT;
	slot.generation = GENERATION;
	slot.env = &env;
	slot.state = SLOT_READY;
	slot.owner = &ep;
	slot.keepers[0].side = SANDBOX_AGENT;
	slot.keepers[1].side = SANDBOX_WORKER;
	ep_env.e = &episodes;
	episodes.p = before.p;
	memset(&ep, 0, sizeof(ep));
	ep.e = &episodes;
	ep.slot = &slot;
	ep.env = &ep_env;
	ep.use = EP_OWNED;
	TAILQ_INIT(&ep.grades);
	before.fds = descriptors();
	before.live = mem_live();
	ep.hold = hold_new(before.p, &ep);
}

/* Nothing is held, and nothing was lost; words of what is not so. */
static const char *
end(void)
{
	const char *wrong = NULL;

	mem_fail_after(0, 0);
	play();
	if (got.malformed != 0)
		wrong = "a message makes no sense";
	else if (!TAILQ_EMPTY(&ep.grades))
		wrong = "a grading is left";
	grade_drop(&ep);
	hold_free(ep.hold);
	if (wrong == NULL && descriptors() != before.fds)
		wrong = "a descriptor is lost";
	if (wrong == NULL && mem_live() != before.live)
		wrong = "memory is lost";
	return wrong;
}

/* Whether the allocation that was to fail was asked for. */
static bool
reached(unsigned long from, unsigned long n)
{
	return mem_count() - from >= n;
}

static int
ask(const char *name)
{
	struct channel_msg m = { .type = MESSAGE_EPISODE_GRADE, .fd = -1 };
	static char mem[64];
	struct buf b = BUF_INIT(64);
	struct view v;
	int rc = wire_put_u32(&b, NUMBER);

	if (rc == SP_OK)
		rc = wire_put_u32(&b, SLOT);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, GENERATION);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, view_str(name));
	v = buf_view(&b);
	if (rc == SP_OK && v.p != NULL) {
		m.body = view_of(mem, v.n);
		memcpy(mem, v.p, v.n);
	}
	buf_clear(&b);
	return rc != SP_OK ? rc : grade_ask(&episodes, &m);
}

/* ---- gradings --------------------------------------------------------------- */

static void
grading_is_answered(void)
{
	begin();
	tap_is_int(ask(""), SP_OK, "a grading");
	play();
	tap_ok(got.exited == 1 && got.refused + got.not_started == 0,
	    "has its verdict");
	tap_ok(end() == NULL, "and leaves nothing");
}

static void
grading_fails(void)
{
	unsigned long n, from;
	const char *wrong;
	unsigned answers;
	bool more = true;

	for (n = 1; more && n < 200; n++) {
		begin();
		TAP_NEVER(ask("none such") != SP_OK || got.refused != 1);
		got.refused = 0;
		from = mem_count();
		mem_fail_after(n, 0);
		if (ask("") == SP_E_NOMEM) {
			mem_fail_after(0, 0);
			got.refused = 1; /* the test's own had none */
		}
		play();
		more = reached(from, n);
		answers = got.exited + got.not_started + got.refused;
		wrong = end();
		if (answers != 1 || wrong != NULL)
			tap_ok(false, "allocation %lu: %u answers, %s", n,
			    answers, wrong != NULL ? wrong : "nothing lost");
	}
	tap_ok(n > 10 && n < 200,
	    "each of %lu allocations of a grading fails (%d)", n,
	    cannot_freeze + cannot_build);
}

/* With every allocation from the nth on. */
static void
grading_starves(void)
{
	const char *wrong;
	unsigned long n;
	unsigned answers;

	for (n = 4; n < 60; n++) {
		begin();
		mem_fail_after(n, 1);
		if (ask("") == SP_E_NOMEM)
			got.refused = 1;
		play();
		answers = got.exited + got.not_started + got.refused;
		wrong = end();
		if (answers != 1 || wrong != NULL)
			tap_ok(false, "none from %lu on: %u answers, %s", n,
			    answers, wrong != NULL ? wrong : "nothing lost");
	}
	tap_ok(n == 60, "and all from one on");
}

/* After each of its steps: it is taken back, the slot ends, nobody listens. */
enum how { TAKEN_BACK, SLOT_ENDS, NOBODY_LISTENS, HOWS };

static bool
cut_short(enum how how, unsigned after)
{
	unsigned i, answers;
	const char *wrong;
	bool more = true;

	begin();
	TAP_NEVER(ask("") != SP_OK);
	for (i = 0; i < after && more; i++)
		more = step();
	/* with its last step it is over */
	if (how == TAKEN_BACK && !TAILQ_EMPTY(&ep.grades)) {
		TAP_NEVER(!grade_signal(&ep, NUMBER, SIGKILL));
		/* what was ended is gone before the other keeper answers */
		if (got.end) {
			got.end = false;
			news(SLOT_ORACLE_EMPTY);
			news(SLOT_ORACLE_CLEAN);
		}
	} else if (how == SLOT_ENDS) {
		grade_drop(&ep);
		hold_drop(ep.hold);
		slot.state = SLOT_ENDING;
		calls_n = 0;
		got.build = got.run = got.end = false;
	} else if (how == NOBODY_LISTENS) {
		grade_reactor_lost(&ep);
		hold_reactor_lost(ep.hold);
	}
	answers = how == TAKEN_BACK;
	wrong = end();
	if (wrong != NULL ||
	    (how == TAKEN_BACK &&
		got.exited + got.not_started + got.refused != answers))
		tap_ok(false, "cut short (%d) after %u steps: %s", how, after,
		    wrong != NULL ? wrong : "not one answer");
	return more;
}

static void
grading_is_cut_short(void)
{
	unsigned how, after;

	for (how = 0; how < HOWS; how++) {
		for (after = 0; after < 50; after++)
			if (!cut_short((enum how)how, after))
				break;
		tap_ok(after > 5 && after < 50,
		    "cut short after each of %u steps (%u)", after, how);
	}
}

static void
gradings_wait(void)
{
	begin();
	TAP_NEVER(ask("") != SP_OK);
	tap_is_int(ask(""), SP_E_PROTO, "a number that is in use");
	tap_ok(end() == NULL, "takes nothing along");
}

/* ---- holding ---------------------------------------------------------------- */

static int
run_again(struct episodes *e, struct channel_msg *m)
{
	(void)e;
	fd_close(&m->fd);
	got.again++;
	return SP_OK;
}

static void
on_held(void *arg, bool frozen)
{
	bool *held = arg;

	*held = frozen;
}

static struct channel_msg
a_run(char *mem)
{
	struct channel_msg m = { .type = MESSAGE_PROCESS_RUN, .fd = some_fd() };

	memset(mem, 0, 13);
	mem[9] = NUMBER;
	m.body = view_of(mem, 13);
	return m;
}

/* Held, asked to start something, let go: what waited is started once. */
static void
holding_fails(void)
{
	struct channel_msg m;
	struct hold_wait w;
	unsigned long n, from;
	const char *wrong;
	bool held, waits, more = true;
	char mem[13];

	for (n = 1; more && n < 100; n++) {
		begin();
		held = false;
		memset(&w, 0, sizeof(w));
		w.done = on_held;
		w.arg = &held;
		from = mem_count();
		mem_fail_after(n, 0);
		TAP_NEVER(hold_take(ep.hold, &w) != SP_OK);
		m = a_run(mem);
		waits = hold_defer(ep.hold, &m, run_again);
		TAP_NEVER(waits != (m.fd < 0));
		fd_close(&m.fd);
		play();
		hold_release(ep.hold, &w);
		play();
		more = reached(from, n);
		wrong = end();
		if (wrong == NULL && waits != (got.again == 1))
			wrong = "what waited is not started";
		if (wrong != NULL || got.failed > 1)
			tap_ok(false, "allocation %lu of a hold: %s", n, wrong);
	}
	tap_ok(n > 3 && n < 100, "each of %lu allocations of a hold fails", n);
}

/* The same by the reactor, who is told each time, and of a start in between. */
static void
freezing_fails(void)
{
	struct channel_msg m;
	unsigned long n, from;
	const char *wrong;
	bool more = true;
	char mem[13];

	for (n = 1; more && n < 100; n++) {
		begin();
		from = mem_count();
		mem_fail_after(n, 0);
		hold_ask(ep.hold, NUMBER, true);
		m = a_run(mem);
		/* the reactor froze it: its own start is for it to mind */
		TAP_NEVER(got.freeze_failed == 0 &&
		    hold_defer(ep.hold, &m, run_again));
		fd_close(&m.fd);
		play();
		hold_ask(ep.hold, NUMBER, false);
		play();
		more = reached(from, n);
		wrong = end();
		/* one that cannot be thawed ends, which answers all */
		if (wrong == NULL &&
		    got.frozen + got.thawed + got.freeze_failed + got.failed !=
			2)
			wrong = "not one answer to each";
		if (wrong != NULL)
			tap_ok(false, "allocation %lu of a freeze: %s", n,
			    wrong);
	}
	tap_ok(n > 3 && n < 100, "each of %lu allocations of a freeze fails",
	    n);
}

static void
waiting_is_forgotten(void)
{
	struct hold_wait w = { .done = on_held };
	struct channel_msg m;
	bool held = false;
	char mem[13];
	unsigned i;

	w.arg = &held;
	for (i = 0; i < 3; i++) {
		begin();
		TAP_NEVER(hold_take(ep.hold, &w) != SP_OK);
		m = a_run(mem);
		tap_ok(hold_defer(ep.hold, &m, run_again), "a start waits");
		if (i == 0)
			tap_ok(hold_forget_run(ep.hold, NUMBER) &&
				!hold_forget_run(ep.hold, NUMBER),
			    "is taken back, once");
		else if (i == 1)
			hold_reactor_lost(ep.hold);
		else
			hold_drop(ep.hold);
		if (i < 2) {
			play();
			hold_release(ep.hold, &w);
		} else {
			calls_n = 0;
		}
		tap_ok(end() == NULL && got.again == 0,
		    "it is not started, and nothing is lost");
	}
}

static void
no_hold(void)
{
	unsigned long n;

	struct hold *h = hold_new(before.p, &ep);

	/* the poller's own room is there from now on */
	hold_free(h);
	before.live = mem_live();
	for (n = 1; n < 10; n++) {
		mem_fail_after(n, 0);
		h = hold_new(before.p, &ep);
		mem_fail_after(0, 0);
		if (h != NULL) {
			hold_free(h);
			break;
		}
	}
	tap_ok(n > 1 && n < 10 && mem_live() == before.live,
	    "no memory for a hold: none, after %lu", n);
}

int
main(void)
{
	env.name = VIEW("work");
	oracle.kind = VIEW("oracle");
	oracle.path = VIEW("oracle.sh");
	before.p = poller_new();
	if (before.p == NULL)
		return 1;
	no_hold();
	grading_is_answered();
	gradings_wait();
	grading_fails();
	grading_starves();
	cannot_freeze = EOPNOTSUPP;
	grading_fails();
	grading_starves();
	cannot_freeze = 0;
	cannot_build = true;
	grading_fails();
	grading_starves();
	cannot_build = false;
	grading_is_cut_short();
	holding_fails();
	freezing_fails();
	waiting_is_forgotten();
	poller_free(before.p);
	return tap_done();
}
