/* What file work and events of an episode bring, as JSON. */
#ifndef SP_GATE_EPISODE_FILE_H
#define SP_GATE_EPISODE_FILE_H

#include "gate/episode.h"
#include "json/jwrite.h"

/* Records of SANDBOX_FILE_LIST or (diff) SANDBOX_FILE_DIFF. */
struct episode_records {
	bool diff;
	struct wire w;
};
void episode_file_records(struct episode_records *r, bool diff,
    struct view text);
/*
 * The next one as a JSON object: {"name"|"name_b64",..} of an entry,
 * {"path"|"path_b64","change",..} of a change.
 * Context: reactor's loop; does not block.
 * Returns: 0; SP_E_EOF there is none; SP_E_PROTO it makes no sense; SP_E_LIMIT;
 *          SP_E_NOMEM.
 */
int episode_file_next(struct episode_records *r, struct buf *out) must_check;
/*
 * All bytes of what FILE_DATA brought: 0; SP_E_DENIED it is not sealed;
 * SP_E_LIMIT; SP_E_*.
 */
int episode_file_data(int fd, struct buf *out) must_check;
/* episode_file() with ask->put_fd made of those bytes. */
int episode_file_put(struct episode *ep, struct episode_file_ask *ask,
    struct view content,
    void (*file)(void *arg, struct episode *ep, enum sandbox_file_result result,
	uint64_t size, int fd, struct view what),
    void *arg) must_check;
/*
 * A piece of news: its name, or NULL for what is not known, and its members
 * into the object that w has open.
 */
const char *episode_file_news(const struct episode_news *n);
void episode_file_put_news(struct jwrite *w, const struct episode *ep,
    const struct episode_news *n);
/* "exit", "signal", "timeout", "oom", "lost" */
const char *episode_file_end(unsigned end);

#endif
