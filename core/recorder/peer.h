/* The recorder's side of the channel to the reactor. */
#ifndef SP_RECORDER_PEER_H
#define SP_RECORDER_PEER_H

#include "ipc/channel.h"
#include "os/poller.h"
#include "recorder/turns.h"

struct peer {
	struct poller *poller; /* borrowed */
	struct store *store; /* borrowed */
	struct registry *registry; /* borrowed */
	struct turns turns;
	struct channel *channel; /* owned; NULL: no reactor now */
	struct poller_fd *ready;
	bool wrote; /* ends that were told within this batch */
	bool writing; /* waiting until the channel takes more */
	bool full; /* no room: the reactor was told so */
	bool tight; /* likewise of memory */
	bool told; /* what sessions there are, and its state */
	struct poller_timer *soon; /* ends that wait; counts to be kept */
	struct poller_timer *probe; /* looks for room again */
	struct poller_timer *minute; /* retention, room */
	uint64_t floor_at_ms; /* when room was last looked at */
};

/*
 * Context: recorder.
 * Owner:   the caller; peer_clear() forgets what is open.
 * Returns: 0; SP_E_NOMEM.
 */
int peer_init(struct peer *p, struct poller *poller, struct store *store,
    struct registry *registry) must_check;
void peer_clear(struct peer *p);
/*
 * Takes a new reactor's end of the channel (fd is taken in every case); the
 * turns of the one before are written as lost.
 */
int peer_attach(struct peer *p, int fd) must_check;
/* Once after each batch of callbacks: syncs, acknowledges, gives credit. */
void peer_after(struct peer *p);
/* Ends every open turn as cut off by a shutdown and seals what was written. */
void peer_shutdown(struct peer *p);

#endif
