/*
 * The message table: every message between two of the programs, who may send
 * it, in which states, its size, and whether a descriptor comes with it.
 * Enforced by channel_recv() before any handler sees a byte.
 */
#ifndef SP_IPC_MESSAGE_H
#define SP_IPC_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

enum {
	MESSAGE_VERSION = 1,
	MESSAGE_CONTROL_MAX = 16 * 1024, /* body of a control message */
	MESSAGE_BULK_MAX = 128 * 1024, /* body of a bulk message */
	MESSAGE_FD_MAYBE = 2, /* message_row.fds: one, or none */
};

/* MESSAGE_CA for every upstream without certificates of its own. */
#define MESSAGE_CA_SYSTEM UINT32_MAX

enum message_party {
	MESSAGE_HELPER = 1 << 0,
	MESSAGE_REACTOR = 1 << 1,
	MESSAGE_RECORDER = 1 << 2,
	MESSAGE_KEEPER = 1 << 3, /* of one sandbox: sallyport-init */
};

/* The state of a channel's user: what it may be sent now. */
enum message_state {
	MESSAGE_BOOT = 1 << 0, /* collecting what it needs */
	MESSAGE_RUN = 1 << 1, /* serving */
	MESSAGE_DRAIN = 1 << 2, /* finishing what is open */
	MESSAGE_ANY = 7,
};

enum message_type {
	/*
	 * Helper to a role, while it boots; LOG and PEER also later.  CONF,
	 * SECRET, CA, LISTENER, LISTEN_KEEP and TRACE_DIR also make up a new
	 * generation of the configuration for a role that serves: CONF comes
	 * first, PREPARE last, one answer (PREPARED), then COMMIT or ABANDON.
	 */
	MESSAGE_CONF = 1, /* fd sealed memfd; u32 generation */
	MESSAGE_SECRET, /* u32 id, bytes value */
	MESSAGE_LISTENER, /* fd listening socket; u32 conf_listen.index */
	MESSAGE_LOG, /* fd; u8 which (enum message_log) */
	MESSAGE_PEER, /* fd SEQPACKET to the other role */
	MESSAGE_TRACE_DIR, /* fd directory; u32 conf_capture.index */
	MESSAGE_KEY_DIR, /* fd directory, the recorder's own */
	MESSAGE_START, /* u32 flags, u32 reactor restarts, u32 recorder's,
			  u32 gid of control, or UINT32_MAX */
	MESSAGE_RESTARTS, /* u32 reactor restarts, u32 recorder restarts */
	MESSAGE_DRAIN_REQ, /* u64 milliseconds to the deadline */
	MESSAGE_STOP, /* empty */
	MESSAGE_CA, /* fd sealed memfd, PEM; u32 conf_upstream.index */
	MESSAGE_TRACE_ROOT, /* fd directory: traces beneath it may come later */
	MESSAGE_LISTEN_KEEP, /* u32 conf_listen.index, u32 that of before */
	MESSAGE_PREPARE, /* u32 generation: make it ready */
	MESSAGE_COMMIT, /* u32 generation: what is new takes it */
	MESSAGE_ABANDON, /* u32 generation: forget it */
	MESSAGE_FLEET_WAS, /* as FLEET: what a reactor before did */
	MESSAGE_PING, /* empty: ALIVE is the answer; none before it came */
	/* role to helper */
	MESSAGE_READY = 32, /* empty: serving */
	MESSAGE_FAILED, /* bytes: why it cannot start; the helper exits */
	MESSAGE_DRAINED, /* empty: nothing is open any more */
	MESSAGE_PREPARED, /* u32 generation, bytes why it cannot, or empty */
	MESSAGE_COMMITTED, /* u32 generation */
	MESSAGE_FLEET, /* u8 enum fleet_op, bytes upstream, bytes url: its
			  servers were changed */
	MESSAGE_ALIVE, /* u8 1: the answer to PING; 0: at work that is long */
	/* reactor to recorder */
	MESSAGE_TURN_OPEN = 64,
	/*
	 * u32 turn handle (the reactor's, unique while open), u32 generation,
	 * bytes name of the capture, bytes session id, u64 wall clock us at
	 * the request's arrival, u32 flags (enum message_turn_flag), bytes
	 * meta: a JSON object whose members go into the record's "metadata",
	 * bytes id of the episode or empty.
	 * A recorder that does not know the generation (it was started after
	 * that ended) takes its own capture of that name.
	 */
	MESSAGE_TURN_DATA,
	/*
	 * repeated to the end: u32 handle, u8 kind (enum message_data), u8
	 * more (1: the piece continues in a later entry), bytes
	 */
	MESSAGE_TURN_END,
	/*
	 * u32 handle, u8 outcome (enum message_outcome), u16 upstream status
	 * (0 none), u32 flags, u64 latency us, u64 ttft us (0 none), bytes
	 * error (a JSON object or empty), bytes meta (JSON object or empty;
	 * members added to "metadata")
	 */
	MESSAGE_TURN_DELIVERED, /* u32 handle, u8 1 if the client got the end */
	/*
	 * Requests: u32 request number first; each is answered by one
	 * SESSION_REPLY, or by TRACE_FILE.
	 */
	MESSAGE_SESSION_CREATE, /* u32, a session (session_msg.h) */
	MESSAGE_SESSION_END, /* u32, bytes id, bytes outcome or empty */
	MESSAGE_SESSION_GET, /* u32, bytes id */
	MESSAGE_SESSION_LIST, /* u32, bytes id to begin behind, u32 limit */
	MESSAGE_SESSION_TRACE, /* u32, bytes id: its file */
	MESSAGE_GENERATION_END, /* u32 generation: no turn of it opens now */
	MESSAGE_PACK,
	/*
	 * repeated to the end: u16 type, u16 version, u32 0, u32 length and as
	 * many bytes: messages without a descriptor, none of them a PACK
	 */
	/* recorder to reactor */
	MESSAGE_REC_STATE = 96, /* u8 1 ok, 0 not accepting; bytes why */
	MESSAGE_TURN_CREDIT, /* repeated: u32 handle, u32 bytes consumed */
	MESSAGE_TURN_DONE,
	/*
	 * repeated: u32 handle, u8 result (enum message_result), u64 turn
	 * number, u32 completion tokens, u32 findings (the
	 * first 32; the recorder's own, and not read), u8 length and bytes of
	 * finish_reason
	 */
	/*
	 * A new reactor is told of every open session, and of the keys of those
	 * that ended (SESSION_PAST), then that it was all.
	 */
	MESSAGE_SESSION, /* a session (session_msg.h) */
	MESSAGE_REPLAY_DONE, /* empty */
	MESSAGE_SESSION_REPLY,
	/*
	 * u32 request number, u8 result (enum message_session), bytes: a JSON
	 * object when the result is OK
	 */
	MESSAGE_TRACE_FILE, /* fd open for reading; u32 request number, u64
			       bytes that are whole lines */
	MESSAGE_SESSION_PAST, /* repeated: SHA-256 of an ended one's key */
	MESSAGE_SESSION_OVER, /* bytes id: its end is on file, the answer comes
				 when its turns are over */
	/*
	 * Helper to a keeper.  SPEC, GIVE (as many as the spec needs), then
	 * BUILD; all else after its READY.  PREPARE before the network's GIVE
	 * has it build meanwhile all that the network is not needed for.
	 */
	MESSAGE_KEEPER_SPEC = 128, /* fd sealed memfd: sandbox_msg_spec */
	MESSAGE_KEEPER_GIVE, /* fd; u8 enum sandbox_fd, u32 index */
	MESSAGE_KEEPER_BUILD, /* empty */
	MESSAGE_KEEPER_RUN, /* fd sealed memfd: sandbox_msg_run; u32 handle */
	MESSAGE_KEEPER_SIGNAL, /* u32 handle (0: every process), u8 signal */
	MESSAGE_KEEPER_FREEZE, /* u32 request, u8 1 freeze, 0 thaw */
	MESSAGE_KEEPER_FILE, /* u32 request, u8 enum sandbox_file_op, u32 mode,
				u64 most bytes, bytes path */
	MESSAGE_KEEPER_FILE_PUT, /* fd; the same as KEEPER_FILE */
	MESSAGE_KEEPER_SHARE, /* u32 request: the workspace's mount, please */
	/*
	 * Kill everything, say EMPTY or STUCK, delete everything, say GONE,
	 * exit.  It may come at any time: before BUILD there is nothing but
	 * the keeper's own end.
	 */
	MESSAGE_KEEPER_END,
	/* u32 request, u16 port: a socket to 127.0.0.1 in its network, please */
	MESSAGE_KEEPER_CONNECT,
	MESSAGE_KEEPER_PREPARE, /* empty */
	/* empty: nothing is to be kept yet, there is time to get ready */
	MESSAGE_KEEPER_SPARE,
	/* keeper to helper */
	MESSAGE_KEEPER_READY =
	    144, /* u32 pid of pid 1, as the helper sees it */
	MESSAGE_KEEPER_FAILED, /* u8 enum sandbox_stage, u32 errno, bytes what:
				  all is undone, GONE follows */
	MESSAGE_KEEPER_STDIO, /* fd; u32 handle, u8 0 stdin, 1 stdout, 2 stderr,
				 3 event pipe */
	MESSAGE_KEEPER_STARTED, /* u32 handle, u32 pid inside; of an oracle from
				   whose copy links were taken out: u32 how
				   many, bytes their paths beneath the
				   workspace, each with its NUL, as fit */
	MESSAGE_KEEPER_NOT_STARTED, /* u32 handle, u8 enum sandbox_stage, u32
				       errno, bytes what */
	MESSAGE_KEEPER_EXITED, /* u32 handle, u8 enum sandbox_end, u8 status,
				  u64 user us, u64 system us, u64 peak bytes */
	MESSAGE_KEEPER_FROZEN, /* u32 request, u8 1 frozen, 0 thawed; u32 errno */
	MESSAGE_KEEPER_FILE_DONE, /* u32 request, u8 enum sandbox_file_result,
				     u64 size, bytes what */
	MESSAGE_KEEPER_FILE_DATA, /* fd sealed memfd; u32 request: comes before
				     its FILE_DONE */
	MESSAGE_KEEPER_SHARED, /* fd detached mount; u32 request */
	/*
	 * u64 us from END: nothing lives any more.  Unasked when pid 1 died;
	 * the deletion goes on, GONE follows.
	 */
	MESSAGE_KEEPER_EMPTY,
	MESSAGE_KEEPER_STUCK, /* u32 processes left, bytes what; it tries on */
	MESSAGE_KEEPER_GONE, /* empty: nothing is left */
	MESSAGE_KEEPER_EVENT, /* u8 enum sandbox_event, u64 sequence, u8 enum
				 sandbox_side, then what the first says */
	MESSAGE_KEEPER_WATCH, /* fd SEQPACKET: sandbox_file_note; empty */
	MESSAGE_KEEPER_CONNECTED, /* fd TCP socket, connected or on its way, when
				     errno is 0; u32 request, u32 errno */
	/* reactor to helper: episodes */
	MESSAGE_EPISODE_CREATE = 160, /* u32 request, bytes environment */
	MESSAGE_EPISODE_RESET, /* u32 request, u32 slot, u32 generation */
	MESSAGE_EPISODE_END, /* u32 request, u32 slot, u32 generation */
	MESSAGE_EPISODE_FREEZE, /* u32 request, u32 slot, u32 generation, u8 */
	MESSAGE_EPISODE_FILE, /* u32 request, u32 slot, u32 generation, then as
				 KEEPER_FILE from its op on */
	MESSAGE_EPISODE_FILE_PUT, /* fd; the same */
	MESSAGE_PROCESS_RUN, /* fd sealed memfd: sandbox_msg_run; u32 slot, u32
				generation, u8 enum sandbox_side, u32 handle
				(the reactor's, unique while it lives) */
	MESSAGE_PROCESS_SIGNAL, /* u32 slot, u32 generation, u32 handle, u8 */
	MESSAGE_EPISODE_RESUME, /* empty: a new reactor asks what there is */
	MESSAGE_EPISODE_CONNECT =
	    169, /* u32 request, u32 slot, u32 generation, u8
				    enum sandbox_side, u16 port: that of
				    `worker http` and no other */
	MESSAGE_EPISODE_NAME = 171, /* u32 slot, u32 generation, bytes id: what
				       the next reactor is to call it; it is
				       kept through resets */
	MESSAGE_EPISODE_GRADE = 170, /* u32 handle (as PROCESS_RUN's), u32 slot,
					u32 generation, bytes process, empty:
					the asset "oracle"; then PROCESS_*, or
					EPISODE_REFUSED with the handle */
	/* helper to reactor; what is of one episode begins with slot and
	 * generation */
	MESSAGE_EPISODE_MADE = 176, /* u32 slot, u32 generation, u32 request,
				       bytes environment: the answer to CREATE
				       and RESET; its listeners come before */
	MESSAGE_EPISODE_REFUSED, /* u32 request, u8 enum sandbox_refusal, bytes
				    what: stage and cause */
	MESSAGE_EPISODE_LISTENER, /* fd; u32 slot, u32 generation, u32 index of
				     the `inside` (enum netns_door above) */
	MESSAGE_EPISODE_NFLOG, /* fd; u32 slot, u32 generation */
	MESSAGE_EPISODE_WATCH, /* fd SEQPACKET; u32 slot, u32 generation */
	MESSAGE_EPISODE_ENDED, /* u32 slot, u32 generation, u32 request (0:
				  unasked), u8 enum sandbox_end, bytes what;
				  EMPTY of all its sandboxes: nothing lives */
	MESSAGE_EPISODE_FROZEN, /* u32 slot, u32 generation, u32 request, u8
				   enum sandbox_frozen */
	MESSAGE_EPISODE_FILE_DONE, /* u32 slot, u32 generation, then as
				      KEEPER_FILE_DONE */
	MESSAGE_EPISODE_FILE_DATA, /* fd; u32 slot, u32 generation, u32 request */
	MESSAGE_PROCESS_STDIO, /* fd; u32 slot, u32 generation, u32 handle, u8 */
	MESSAGE_PROCESS_STARTED, /* u32 slot, u32 generation, then as
				    KEEPER_STARTED */
	MESSAGE_PROCESS_NOT_STARTED, /* u32 slot, u32 generation, then as
					KEEPER_NOT_STARTED */
	MESSAGE_PROCESS_EXITED, /* u32 slot, u32 generation, then as
				   KEEPER_EXITED */
	MESSAGE_EPISODE_EVENT, /* u32 slot, u32 generation, then as
				  KEEPER_EVENT */
	MESSAGE_EPISODE_GUARANTEES, /* bytes: the table, text; after START */
	MESSAGE_EPISODE_CONNECTED =
	    191, /* fd as KEEPER_CONNECTED; u32 slot, u32
				      generation, u32 request, u32 errno */
	MESSAGE_EPISODE_SPILL, /* fd file without a name, to read and write, for
				  what is kept of its events; u32 slot, u32
				  generation; behind MADE */
	MESSAGE_EPISODE_NAMED = 193, /* u32 slot, u32 generation, u32 how often
					its events have begun anew, by a reset
					or a reactor's death, bytes id: of
					what MADE tells next (request 0) */
	MESSAGE_EPISODE_RESUMED, /* empty: MADE has told of all there are */
	MESSAGE_EPISODE_WARM, /* u32 how many are ready, bytes environment: when
				 it changes, from 0; after RESUME */
};

enum message_log { MESSAGE_LOG_ERROR, MESSAGE_LOG_ACCESS };

enum message_turn_flag {
	MESSAGE_TURN_STREAM = 1 << 0, /* the client asked for a stream */
	MESSAGE_TURN_THINKING_OFF = 1 << 1, /* enable_thinking=false by us */
	MESSAGE_TURN_NO_LOGPROBS = 1 << 2, /* refused; asked again without */
	MESSAGE_TURN_NO_TOKEN_IDS = 1 << 3, /* likewise return_token_ids */
	MESSAGE_TURN_PASS = 1 << 4, /* a path that is not captured */
	MESSAGE_TURN_DONE_SEEN = 1 << 5, /* [DONE] came */
	MESSAGE_TURN_TRUNCATED = 1 << 6, /* the reactor cut the data */
	MESSAGE_TURN_SURROGATE = 1 << 7, /* lone surrogate in the request */
	MESSAGE_TURN_BUDGET = 1 << 8, /* past the budget: answered by us */
	MESSAGE_TURN_MASKED = 1 << 9, /* the upstream's key was blanked */
};

enum message_data {
	MESSAGE_DATA_REQUEST = 1, /* the forwarded request body */
	MESSAGE_DATA_EVENT, /* data of one server-sent event */
	MESSAGE_DATA_ERROR, /* value of an SSE field `error` */
	MESSAGE_DATA_BODY, /* a unary reply's body */
};

enum message_outcome {
	MESSAGE_OUTCOME_END = 1, /* the upstream ended it cleanly */
	MESSAGE_OUTCOME_STATUS, /* the upstream answered an error status */
	MESSAGE_OUTCOME_UPSTREAM, /* unreachable, broken, silent */
	MESSAGE_OUTCOME_CLIENT_GONE, /* the client left */
	MESSAGE_OUTCOME_SHUTDOWN, /* drained past its deadline */
	MESSAGE_OUTCOME_LOST, /* the recorder died under it */
	MESSAGE_OUTCOME_GATEWAY, /* the reactor did; never on the wire */
};

enum message_result {
	MESSAGE_RESULT_OK = 1,
	MESSAGE_RESULT_FULL, /* disk full */
	MESSAGE_RESULT_FAILED, /* any other failure to write */
	/* of an open turn: it has no trace; its end is answered once more */
	MESSAGE_RESULT_REFUSED = 4,
};

enum message_session {
	MESSAGE_SESSION_OK = 1,
	MESSAGE_SESSION_EXISTS, /* the id was used before */
	MESSAGE_SESSION_UNKNOWN,
	MESSAGE_SESSION_BAD, /* what was asked cannot be */
	MESSAGE_SESSION_FULL, /* disk full, or too many open sessions */
	MESSAGE_SESSION_FAILED, /* any other failure to write or read */
};

struct message_row {
	const char *name;
	unsigned from; /* enum message_party bits */
	unsigned to;
	unsigned states; /* of the receiver */
	uint32_t min, max; /* body bytes */
	uint16_t type;
	uint8_t fds; /* exactly so many: 0 or 1; or MESSAGE_FD_MAYBE */
};

/*
 * Context: any.
 * Returns: the row, or NULL when there is no such type.
 */
const struct message_row *message_row(uint16_t type);
/* All rows, for -M and tests; *n is their number. */
const struct message_row *message_rows(size_t *n);

#endif
