#include "config.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/sbox_filter.h"
#include "init/sbox_filter_rows.h"

/*
 * The programs are written here, row by row, as each sandbox has its own
 * keeper: libseccomp, which knows the numbers of the calls, takes two
 * milliseconds for what is a few hundred instructions.  Calls whatever their
 * arguments are remembered by the kernel and cost nothing at run time, so
 * that the order of rows matters little.
 */
enum {
	FILTER_INSNS_MAX = 1024,
/* int arguments: the kernel does not look at the upper half either */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	ARG_LOW = 4,
#else
	ARG_LOW = 0,
#endif
	X32_BIT = 0x40000000, /* of a call's number on x86-64 */
	SOCKET_TYPE = 0xf, /* below SOCK_CLOEXEC and SOCK_NONBLOCK */
};

struct program {
	struct sock_filter insn[FILTER_INSNS_MAX];
	size_t n;
	bool full;
};

static void
emit(struct program *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
	const struct sock_filter insn = { code, yes, no, k };

	if (p->n == FILTER_INSNS_MAX)
		p->full = true;
	else
		p->insn[p->n++] = insn;
}

static void
load(struct program *p, size_t at)
{
	emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)at, 0, 0);
}

static void
load_arg(struct program *p, unsigned arg)
{
	load(p,
	    offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t) +
		ARG_LOW);
}

static void
answer(struct program *p, uint32_t action)
{
	emit(p, BPF_RET | BPF_K, action, 0, 0);
}

static void
refuse(struct program *p, const struct sbox_filter_row *row)
{
	answer(p, SECCOMP_RET_ERRNO | (uint32_t)row->en);
}

/* Another architecture's numbers mean other calls. */
static void
begin(struct program *p)
{
	memset(p, 0, sizeof(*p));
	load(p, offsetof(struct seccomp_data, arch));
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, seccomp_arch_native(), 1, 0);
	answer(p, SECCOMP_RET_KILL_PROCESS);
	load(p, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
	emit(p, BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
	answer(p, SECCOMP_RET_KILL_PROCESS);
#endif
}

/* Refused when the condition that was emitted last falls through. */
static void
condition(struct program *p, const struct sbox_filter_row *row)
{
	unsigned bit;

	load_arg(p, row->arg);
	switch (row->when) {
	case SBOX_FILTER_ALWAYS:
		break;
	case SBOX_FILTER_EQUAL:
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, row->value, 0, 1);
		break;
	case SBOX_FILTER_ANY_BIT:
		emit(p, BPF_JMP | BPF_JSET | BPF_K, row->value, 0, 1);
		break;
	case SBOX_FILTER_FAMILY:
		for (bit = 0; bit < 32; bit++)
			if (row->value & (1U << bit))
				/* allowed: over the rest of these, and RET */
				emit(p, BPF_JMP | BPF_JEQ | BPF_K, bit,
				    (uint8_t)__builtin_popcount(
					row->value >> bit),
				    0);
		break;
	case SBOX_FILTER_SOCKET:
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, row->value, 0,
		    row->second != 0 ? 4 : 3);
		load_arg(p, row->second != 0 ? 1 : 2);
		if (row->second != 0) {
			emit(p, BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE, 0, 0);
			emit(p, BPF_JMP | BPF_JEQ | BPF_K, row->second, 0, 1);
		} else {
			emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
		}
		break;
	}
}

static void
add_row(struct program *p, const struct sbox_filter_row *row)
{
	int nr = seccomp_syscall_resolve_name(row->call);
	size_t jump;

	/* not known to this library, or not there on this processor */
	if (nr < 0)
		return;
	jump = p->n;
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 1);
	if (row->when == SBOX_FILTER_ALWAYS) {
		refuse(p, row);
		return;
	}
	condition(p, row);
	refuse(p, row);
	load(p, offsetof(struct seccomp_data, nr));
	if (!p->full)
		p->insn[jump].jf = (uint8_t)(p->n - jump - 1);
}

static int
finish(struct sbox_why *w, const struct program *p, struct buf *out)
{
	int rc;

	if (p->full)
		return sbox_why_errno(w, E2BIG, "filter");
	buf_init(out, sizeof(p->insn));
	rc = buf_add(out, p->insn, p->n * sizeof(p->insn[0]));
	return rc == SP_OK ? rc : sbox_why_rc(w, rc, "filter");
}

int
sbox_filter_compile(struct sbox_why *w, struct buf *out)
{
	const struct sbox_filter_row *rows;
	struct program p;
	size_t i, n;

	rows = sbox_filter_rows(&n);
	begin(&p);
	for (i = 0; i < n; i++)
		add_row(&p, &rows[i]);
	answer(&p, SECCOMP_RET_ALLOW);
	return finish(w, &p, out);
}

int
sbox_filter_compile_init(struct sbox_why *w, struct buf *out)
{
	/* init1.c from there on, and nothing else */
	static const char *const calls[] = { "ppoll", "wait4", "rt_sigreturn",
		"restart_syscall", "exit_group", "exit", "sendmsg" };
	struct program p;
	size_t i;
	int nr;

	begin(&p);
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		nr = seccomp_syscall_resolve_name(calls[i]);
		if (nr < 0)
			continue;
		emit(&p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 1);
		answer(&p, SECCOMP_RET_ALLOW);
	}
	answer(&p, SECCOMP_RET_KILL_PROCESS);
	return finish(w, &p, out);
}

int
sbox_filter_load(struct sbox_why *w, struct view program)
{
	struct sock_fprog prog;

	prog.len = (unsigned short)(program.n / sizeof(struct sock_filter));
	prog.filter = (struct sock_filter *)(uintptr_t)program.p;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) != 0)
		return sbox_why_errno(w, errno, "filter");
	return SP_OK;
}
