#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "init/sbox_why.h"

int
sbox_why_stage(struct sbox_why *w, enum sandbox_stage stage)
{
	w->stage = stage;
	w->en = 0;
	w->what[0] = '\0';
#if !SP_CONFINEMENT
	const char *fail = getenv("SP_FAIL_STAGE");
	char name[48];

	(void)snprintf(name, sizeof(name), "stage.%s",
	    sandbox_msg_stage(stage));
	failpoint_reach(name);
	if (fail != NULL && strcmp(fail, sandbox_msg_stage(stage)) == 0)
		return sbox_why_errno(w, EPERM, "injected");
#endif
	return SP_OK;
}

static void printf_like(2, 0)
    why_text(struct sbox_why *w, const char *fmt, va_list ap)
{
	if (vsnprintf(w->what, sizeof(w->what), fmt, ap) < 0)
		w->what[0] = '\0';
}

int
sbox_why_errno(struct sbox_why *w, int en, const char *fmt, ...)
{
	va_list ap;
	int rc = err_from_errno(en);

	va_start(ap, fmt);
	why_text(w, fmt, ap);
	va_end(ap);
	w->en = en;
	return rc != SP_OK ? rc : SP_E_SYS;
}

int
sbox_why_rc(struct sbox_why *w, int rc, const char *fmt, ...)
{
	size_t n;
	va_list ap;

	va_start(ap, fmt);
	why_text(w, fmt, ap);
	va_end(ap);
	w->en = 0;
	n = strlen(w->what);
	(void)snprintf(w->what + n, sizeof(w->what) - n, ": %s", err_str(rc));
	return rc != SP_OK ? rc : SP_E_SYS;
}
