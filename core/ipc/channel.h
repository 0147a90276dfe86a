/*
 * A socketpair between two programs that do not trust each other.
 * SOCK_SEQPACKET; each message is an 8-byte header (u16 type, u16 version,
 * u32 sequence) and a body; at most one descriptor.
 */
#ifndef SP_IPC_CHANNEL_H
#define SP_IPC_CHANNEL_H

#include "base/err.h"
#include "base/view.h"
#include "ipc/message.h"

struct channel;

struct channel_msg {
	uint16_t type;
	uint32_t seq;
	struct view body; /* valid until the next channel_recv() */
	int fd; /* -1, or the receiver's to close */
};

/*
 * Parameters: fd, one end, non-blocking, taken; me and peer, one
 *          message_party each; queue_max_bytes, unsent bodies at most.
 * Owner:   the caller; channel_free(NULL) is allowed and closes the fd.
 * Returns: NULL without memory (the fd is closed then, too).
 */
struct channel *channel_new(int fd, unsigned me, unsigned peer,
    size_t queue_max_bytes) must_check;
void channel_free(struct channel *c);
int channel_fd(const struct channel *c);
/* The state the table's `states` column is compared with; BOOT at first. */
void channel_set_state(struct channel *c, enum message_state s);

/*
 * Sends now, or queues when the socket is full (order is kept).
 * Parameters: fd, -1 or a descriptor, taken in every case.
 * Returns: 0; SP_E_LIMIT queue full (nothing was sent); SP_E_GONE; SP_E_NOMEM;
 *          aborts when the table forbids it (our own bug).
 */
int channel_send(struct channel *c, enum message_type type, struct view body,
    int fd) must_check;
/*
 * From now on messages without a descriptor wait for channel_flush() and go
 * out as one, up to the size of a bulk message: for the reactor's to the
 * recorder, some for each turn.
 */
void channel_pack(struct channel *c);
/*
 * A message that came with others is still to be taken: the descriptor's
 * readiness does not tell of it.
 */
bool channel_pending(const struct channel *c);
/* Sends what is queued: 0 all gone; SP_E_AGAIN some left; SP_E_GONE. */
int channel_flush(struct channel *c) must_check;
/* Bytes queued; while not 0 the owner waits for writability, too. */
size_t channel_queued(const struct channel *c);
/*
 * Takes one message.
 * Returns: 0; SP_E_AGAIN none there; SP_E_GONE the other end closed;
 *          SP_E_PROTO the peer broke the table (type, direction, state, size,
 *          descriptors, version, sequence): never repaired, the owner closes
 *          the channel and treats the peer as compromised.
 */
int channel_recv(struct channel *c, struct channel_msg *out) must_check;

#endif
