#include "config.h"

#include <string.h>

#include "base/utf8.h"
#include "ctl/ctl_text.h"

/* First and last of each range that is not printed as it is. */
static const struct {
	uint32_t from, to;
} unsafe[] = {
	{ 0x00, 0x1f }, /* C0 */
	{ 0x7f, 0x9f }, /* DEL, C1 */
	{ 0xad, 0xad }, /* soft hyphen */
	{ 0x61c, 0x61c }, /* Arabic letter mark */
	{ 0x180e, 0x180e },
	{ 0x200b, 0x200f }, /* zero width, direction marks */
	{ 0x2028, 0x202e }, /* separators, embeddings, overrides */
	{ 0x2060, 0x206f }, /* invisible operators, isolates */
	{ 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe0fff }, /* tags */
};

static bool
is_unsafe(uint32_t cp)
{
	size_t i;

	for (i = 0; i < sizeof(unsafe) / sizeof(unsafe[0]); i++)
		if (cp >= unsafe[i].from && cp <= unsafe[i].to)
			return true;
	return false;
}

static void
print_escape(FILE *out, uint32_t cp)
{
	if (cp == '\n')
		(void)fputs("\\n", out);
	else if (cp == '\t')
		(void)fputs("\\t", out);
	else if (cp == '\r')
		(void)fputs("\\r", out);
	else
		(void)fprintf(out, "\\u{%x}", (unsigned)cp);
}

/* Which ASCII characters are escaped by a backslash, besides. */
static void
print_text(FILE *out, struct view text, const char *indent, const char *escaped)
{
	uint32_t cp;
	unsigned n;

	while (text.n > 0) {
		n = utf8_decode(text, &cp);
		if (n == 0) {
			(void)fprintf(out, "\\x%02x", (unsigned char)text.p[0]);
			n = 1;
		} else if (cp == '\n' && indent != NULL) {
			(void)fprintf(out, "\n%s", indent);
		} else if (is_unsafe(cp)) {
			print_escape(out, cp);
		} else {
			if (cp < 0x80 && strchr(escaped, (int)cp) != NULL)
				(void)fputc('\\', out);
			(void)fwrite(text.p, 1, n, out);
		}
		text = view_from(text, n);
	}
}

void
ctl_text_print(FILE *out, struct view text, const char *indent)
{
	print_text(out, text, indent, "");
}

void
ctl_text_quote(FILE *out, struct view text)
{
	(void)fputc('"', out);
	print_text(out, text, NULL, "\"\\");
	(void)fputc('"', out);
}
