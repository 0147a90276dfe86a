#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/sbox_filter.h"
#include "init/sbox_filter_rows.h"
#include "os/fd.h"

enum { FILTER_MAX = BPF_MAXINSNS * sizeof(struct sock_filter) };

/*
 * Arguments that are ints in the kernel are compared in their low 32 bits:
 * the upper ones, which the kernel does not look at, must not hide them.
 */
static const scmp_datum_t LOW = 0xffffffffU;

static int
add(scmp_filter_ctx ctx, const struct sbox_filter_row *row, unsigned n,
    const struct scmp_arg_cmp *cmp)
{
	int nr = seccomp_syscall_resolve_name(row->call);

	/* not known to this library, or not there on this processor */
	if (nr == __NR_SCMP_ERROR || nr < 0)
		return 0;
	return seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((uint16_t)row->en),
	    nr, n, cmp);
}

/* Any of the bits of the argument. */
static int
add_bits(scmp_filter_ctx ctx, const struct sbox_filter_row *row)
{
	struct scmp_arg_cmp cmp;
	int rc = 0, bit;

	for (bit = 0; bit < 32 && rc == 0; bit++) {
		if (!(row->value & (1U << bit)))
			continue;
		cmp = SCMP_CMP(row->arg, SCMP_CMP_MASKED_EQ, 1U << bit,
		    1U << bit);
		rc = add(ctx, row, 1, &cmp);
	}
	return rc;
}

/*
 * A domain that is not on the list: each number below 32 by itself, above by
 * any bit that only those have.
 */
static int
add_families(scmp_filter_ctx ctx, const struct sbox_filter_row *row)
{
	struct scmp_arg_cmp cmp;
	unsigned i;
	int rc = 0;

	for (i = 0; i < 32 && rc == 0; i++) {
		if (row->value & (1U << i))
			continue;
		cmp = SCMP_CMP(row->arg, SCMP_CMP_MASKED_EQ, LOW, i);
		rc = add(ctx, row, 1, &cmp);
	}
	for (i = 5; i < 32 && rc == 0; i++) {
		cmp = SCMP_CMP(row->arg, SCMP_CMP_MASKED_EQ, 1U << i, 1U << i);
		rc = add(ctx, row, 1, &cmp);
	}
	return rc;
}

/* socket(value, second): or, with second 0, any third argument but 0. */
static int
add_socket(scmp_filter_ctx ctx, const struct sbox_filter_row *row)
{
	struct scmp_arg_cmp cmp[2];
	int rc = 0, bit;

	cmp[0] = SCMP_CMP(0, SCMP_CMP_MASKED_EQ, LOW, row->value);
	if (row->second != 0) {
		/* the type, below SOCK_CLOEXEC and SOCK_NONBLOCK */
		cmp[1] = SCMP_CMP(1, SCMP_CMP_MASKED_EQ, 0xf, row->second);
		return add(ctx, row, 2, cmp);
	}
	for (bit = 0; bit < 32 && rc == 0; bit++) {
		cmp[1] = SCMP_CMP(2, SCMP_CMP_MASKED_EQ, 1U << bit, 1U << bit);
		rc = add(ctx, row, 2, cmp);
	}
	return rc;
}

static int
add_row(scmp_filter_ctx ctx, const struct sbox_filter_row *row)
{
	struct scmp_arg_cmp cmp;

	switch (row->when) {
	case SBOX_FILTER_ALWAYS:
		return add(ctx, row, 0, NULL);
	case SBOX_FILTER_EQUAL:
		cmp = SCMP_CMP(row->arg, SCMP_CMP_MASKED_EQ, LOW, row->value);
		return add(ctx, row, 1, &cmp);
	case SBOX_FILTER_ANY_BIT:
		return add_bits(ctx, row);
	case SBOX_FILTER_FAMILY:
		return add_families(ctx, row);
	case SBOX_FILTER_SOCKET:
		return add_socket(ctx, row);
	}
	return -EINVAL;
}

static int
export_program(struct sbox_why *w, scmp_filter_ctx ctx, struct buf *out)
{
	int fd, rc;

	fd = memfd_create("filter", MFD_CLOEXEC);
	if (fd < 0)
		return sbox_why_errno(w, errno, "memfd");
	rc = seccomp_export_bpf(ctx, fd);
	if (rc != 0) {
		rc = sbox_why_errno(w, -rc, "seccomp_export_bpf");
	} else {
		buf_init(out, FILTER_MAX);
		rc = lseek(fd, 0, SEEK_SET) < 0 ? err_from_errno(errno)
						: fd_read_all(fd, out);
		if (rc != SP_OK)
			rc = sbox_why_rc(w, rc, "filter");
	}
	fd_close(&fd);
	return rc;
}

int
sbox_filter_compile(struct sbox_why *w, struct buf *out)
{
	const struct sbox_filter_row *rows;
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	size_t i, n;
	int rc;

	rows = sbox_filter_rows(&n);
	if (ctx == NULL)
		return sbox_why_errno(w, ENOMEM, "libseccomp");
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH,
	    SCMP_ACT_KILL_PROCESS);
	for (i = 0; i < n && rc == 0; i++)
		rc = add_row(ctx, &rows[i]);
	if (rc != 0)
		rc = sbox_why_errno(w, -rc, "rule for %s",
		    i > 0 ? rows[i - 1].call : "another architecture");
	else
		rc = export_program(w, ctx, out);
	seccomp_release(ctx);
	return rc;
}

int
sbox_filter_compile_init(struct sbox_why *w, struct buf *out)
{
	/* init1.c from there on, and nothing else */
	static const int calls[] = { SCMP_SYS(ppoll), SCMP_SYS(wait4),
		SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall),
		SCMP_SYS(exit_group), SCMP_SYS(exit), SCMP_SYS(sendmsg) };
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	size_t i;
	int rc = 0;

	if (ctx == NULL)
		return sbox_why_errno(w, ENOMEM, "libseccomp");
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]) && rc == 0; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
	if (rc != 0)
		rc = sbox_why_errno(w, -rc, "filter of pid 1");
	else
		rc = export_program(w, ctx, out);
	seccomp_release(ctx);
	return rc;
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
