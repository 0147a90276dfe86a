/*
 * Keepers that are nobody's yet: started, and waiting for what they are to
 * keep.  Nothing of a sandbox is made for them, so that none has a place in
 * the journal; they end with the helper.
 */
#ifndef SP_HELPER_SLOT_SPARE_H
#define SP_HELPER_SLOT_SPARE_H

#include <sys/types.h>

#include "ipc/channel.h"
#include "os/poller.h"

struct slot_spare;

/*
 * Context: helper's loop; none of these blocks.
 * Parameters: program_dir, of sallyport-init, borrowed.
 * Owner:   the caller; slot_spare_free(NULL) is allowed and ends them.
 * Returns: NULL without memory.
 */
struct slot_spare *slot_spare_new(struct poller *p,
    const char *program_dir) must_check;
void slot_spare_free(struct slot_spare *s);
/* Starts those that lack, a little later: not before who took one goes on. */
void slot_spare_fill(struct slot_spare *s);
/*
 * Parameters: s, or NULL: then there is none; *c, taken by the caller.
 * Returns: 0; SP_E_NOTFOUND none is there.
 */
int slot_spare_take(struct slot_spare *s, pid_t *pid,
    struct channel **c) must_check;
/* Such a child ended: true when it was one of these. */
bool slot_spare_reaped(struct slot_spare *s, pid_t pid);

/*
 * A keeper's process and the channel to it.
 * Returns: 0; SP_E_*: nothing was started.
 */
int slot_spare_spawn(const char *program_dir, pid_t *pid,
    struct channel **c) must_check;

#endif
