#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/sbox_filter.h"
#include "init/sbox_filter_rows.h"

/* Not in every system's headers. */
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

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
	case SBOX_FILTER_PAIR:
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, row->value, 0, 3);
		load_arg(p, row->arg + 1);
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, row->second, 0, 1);
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

/* One call that a process of ours makes; any other kills it. */
struct own_call {
	const char *call;
	unsigned arg; /* of its arguments, from 0, this one */
	uint32_t mask, value; /* has these bits so; no mask: whatever it is */
};

static void
add_own(struct program *p, const struct own_call *c)
{
	int nr = seccomp_syscall_resolve_name(c->call);

	if (nr < 0)
		return;
	if (c->mask == 0) {
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 1);
		answer(p, SECCOMP_RET_ALLOW);
		return;
	}
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 5);
	load_arg(p, c->arg);
	emit(p, BPF_ALU | BPF_AND | BPF_K, c->mask, 0, 0);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, c->value, 0, 1);
	answer(p, SECCOMP_RET_ALLOW);
	answer(p, SECCOMP_RET_KILL_PROCESS);
}

static int
compile_own(struct sbox_why *w, const struct own_call *calls, size_t n,
    struct buf *out)
{
	struct program p;
	size_t i;

	begin(&p);
	for (i = 0; i < n; i++)
		add_own(&p, &calls[i]);
	answer(&p, SECCOMP_RET_KILL_PROCESS);
	return finish(w, &p, out);
}

int
sbox_filter_compile_init(struct sbox_why *w, struct buf *out)
{
	/* init1.c from there on, and nothing else */
	static const struct own_call calls[] = {
		{ "ppoll", 0, 0, 0 },
		{ "wait4", 0, 0, 0 },
		{ "rt_sigreturn", 0, 0, 0 },
		{ "restart_syscall", 0, 0, 0 },
		{ "exit_group", 0, 0, 0 },
		{ "exit", 0, 0, 0 },
		{ "sendmsg", 0, 0, 0 },
	};

	return compile_own(w, calls, sizeof(calls) / sizeof(calls[0]), out);
}

int
sbox_filter_compile_watch(struct sbox_why *w, struct buf *out)
{
	static const struct own_call calls[] = {
		/* what the kernel tells, and saying it */
		{ "read", 0, 0, 0 },
		{ "sendto", 0, 0, 0 },
		/*
		 * A directory's place.  The capability would open any file of
		 * the file system: none is, for nothing but its path.
		 */
		{ "open_by_handle_at", 2, UINT32_MAX, O_PATH | O_CLOEXEC },
		{ "readlinkat", 0, 0, 0 },
		{ "fstat", 0, 0, 0 },
		{ "fstat64", 0, 0, 0 },
		{ "newfstatat", 0, 0, 0 },
		{ "fstatat64", 0, 0, 0 },
		{ "statx", 0, 0, 0 },
		{ "close", 0, 0, 0 },
		/* the seed of its table of directories */
		{ "getrandom", 0, 0, 0 },
		/* memory, none of which is ever code */
		{ "brk", 0, 0, 0 },
		{ "mmap", 2, PROT_EXEC, 0 },
		{ "mmap2", 2, PROT_EXEC, 0 },
		{ "mprotect", 2, PROT_EXEC, 0 },
		{ "mremap", 0, 0, 0 },
		{ "munmap", 0, 0, 0 },
		{ "madvise", 0, 0, 0 },
		/* names of its areas, by the C library */
		{ "prctl", 0, UINT32_MAX, PR_SET_VMA },
		/* its end, and after a signal */
		{ "rt_sigreturn", 0, 0, 0 },
		{ "restart_syscall", 0, 0, 0 },
		{ "exit_group", 0, 0, 0 },
		{ "exit", 0, 0, 0 },
#ifdef SP_SANITIZED /* for its own sake */
		{ "futex", 0, 0, 0 },
		{ "getpid", 0, 0, 0 },
		{ "gettid", 0, 0, 0 },
		{ "sched_yield", 0, 0, 0 },
		{ "sigaltstack", 0, 0, 0 },
		{ "write", 0, 0, 0 },
#endif
	};

	return compile_own(w, calls, sizeof(calls) / sizeof(calls[0]), out);
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
