/* Untrusted text on a terminal. */
#ifndef SP_CTL_TEXT_H
#define SP_CTL_TEXT_H

#include <stdio.h>

#include "base/view.h"

/*
 * Prints text so that it cannot act on the terminal or deceive the eye:
 * control characters, those that turn the direction of writing, invisible
 * ones and bytes that are no UTF-8 come out as escapes.
 * Parameters: indent, spaces after each line feed; NULL: a line feed is
 *          escaped, too.
 */
void ctl_text_print(FILE *out, struct view text, const char *indent);

/* The same in double quotes, with quotes and backslashes of text escaped. */
void ctl_text_quote(FILE *out, struct view text);

#endif
