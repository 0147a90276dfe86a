#include "config.h"

#include <stdio.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "base/buf.h"
#include "conf/directive.h"
#include "helper/show.h"
#include "ipc/message.h"
#include "os/confine.h"

enum { SHOW_DUMP_MAX = 8 * 1024 * 1024 };

void
show_version(void)
{
	const char *library = confine_library();

	printf("sallyport %s\n", PACKAGE_VERSION);
#ifdef __clang__
	printf("compiler: clang %s\n", __clang_version__);
#else
	printf("compiler: gcc %s\n", __VERSION__);
#endif
	printf("processor: %s\n", SP_HOST);
	printf("confinement: %s\n",
	    confine_built()
		? "built in (seccomp, Landlock)"
		: "not built in (--disable-confinement): for tests only");
#ifdef SP_SANITIZED
	printf("sanitizers: address, undefined\n");
#endif
	printf("programs: %s\n", SP_LIBEXECDIR);
#ifdef __GLIBC__
	printf("libraries: glibc %s", gnu_get_libc_version());
#else
	printf("libraries: libc");
#endif
	printf("%s%s\n", library != NULL ? ", " : "",
	    library != NULL ? library : "");
}

static void
show_parties(unsigned set)
{
	static const struct {
		unsigned party;
		const char *name;
	} parties[] = {
		{ MESSAGE_HELPER, "helper" },
		{ MESSAGE_REACTOR, "reactor" },
		{ MESSAGE_RECORDER, "recorder" },
		{ MESSAGE_KEEPER, "keeper" },
	};
	const char *comma = "";
	size_t i;

	for (i = 0; i < sizeof(parties) / sizeof(parties[0]); i++) {
		if (!(set & parties[i].party))
			continue;
		printf("%s%s", comma, parties[i].name);
		comma = ",";
	}
}

static void
show_messages(void)
{
	const struct message_row *rows;
	size_t i, n;

	rows = message_rows(&n);
	printf("\nmessages, version %d (number name from to bytes):\n",
	    MESSAGE_VERSION);
	for (i = 0; i < n; i++) {
		printf("  %3u %-19s ", rows[i].type, rows[i].name);
		show_parties(rows[i].from);
		printf(" -> ");
		show_parties(rows[i].to);
		printf(" %u", rows[i].min);
		if (rows[i].max != rows[i].min)
			printf("-%u", rows[i].max);
		printf("%s\n",
		    rows[i].fds == MESSAGE_FD_MAYBE
			? " and perhaps a descriptor"
			: rows[i].fds == 1 ? " and a descriptor"
					   : "");
	}
}

void
show_modules(void)
{
	const struct conf_directive *d;
	size_t i;

	printf("modules, in the order in which their hooks run:\n");
	for (i = 0; conf_modules[i] != NULL; i++) {
		printf("  %s\n", conf_modules[i]->name);
		for (d = conf_modules[i]->directives; d->name != NULL; d++)
			printf("      %s%s%s;\n", d->name,
			    d->args != NULL ? " " : "",
			    d->args != NULL ? d->args : "");
	}
	show_messages();
}

int
show_dump(const struct conf *conf)
{
	struct buf out = BUF_INIT(SHOW_DUMP_MAX);
	int rc = conf_dump(conf, &out);

	if (rc == SP_OK)
		printf("%.*s", (int)buf_len(&out),
		    buf_len(&out) > 0 ? buf_view(&out).p : "");
	else
		fprintf(stderr, "sallyport: -T: %s\n", err_str(rc));
	buf_clear(&out);
	return rc;
}
