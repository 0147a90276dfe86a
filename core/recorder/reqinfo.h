/* What a record tells about the forwarded request. */
#ifndef SP_RECORDER_REQINFO_H
#define SP_RECORDER_REQINFO_H

#include "base/err.h"
#include "base/view.h"
#include "json/jscan.h"

/* Parameters that shape the sampling: case E13. */
enum { REQINFO_SAMPLING_N = 14 };

struct reqinfo {
	bool json; /* one JSON value */
	bool object;
	bool strict; /* jwrite_scanned() would copy it as it stands */
	bool has_tools; /* a list of tools (or functions) that is not empty */
	bool stream;
	size_t messages_n;
	struct view model; /* raw JSON, or empty */
	struct view max_tokens, max_completion_tokens; /* likewise */
	struct view prefix; /* messages but the last, as written */
	struct view system; /* the first message's content, if it is system */
	struct view sampling[REQINFO_SAMPLING_N]; /* raw values, by name */
};

/* The names, in the order of reqinfo.sampling. */
extern const char *const reqinfo_sampling_names[REQINFO_SAMPLING_N];

/*
 * Context: recorder, does not block, no allocation.
 * Owner:   the views are borrowed from the body.
 * A body that is not JSON leaves everything empty.
 */
void reqinfo_read(struct reqinfo *r, struct view body);

#endif
