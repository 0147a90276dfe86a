/*
 * openenv.yaml with an `openenvd:` block, and what it says in our own
 * language.
 */
#ifndef SP_HELPER_MANIFEST_H
#define SP_HELPER_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "helper/manifest_yaml.h"
#include "helper/pyhome.h"

enum {
	MANIFEST_RULES_MAX = 256,
	MANIFEST_LIST_MAX = 256,
	MANIFEST_TEXT_MAX = 512 * 1024, /* of the configuration */
};

enum manifest_principal {
	MANIFEST_ORCHESTRATOR,
	MANIFEST_AGENT,
	MANIFEST_GRADER,
	MANIFEST_OBSERVER,
	MANIFEST_PRINCIPALS,
};

struct manifest_words {
	struct view *v;
	size_t n;
};

struct manifest_surface {
	bool there, allow_lifecycle, privileged_exec;
	struct manifest_words tools, fs_read, stream;
};

struct manifest_rule {
	struct view host; /* empty: it is a network */
	struct view cidr;
	bool udp;
	struct manifest_words ports;
};

struct manifest_asset {
	struct view name, source;
};

struct manifest_process {
	struct view name, asset;
	bool privileged;
	struct manifest_words argv, env;
};

struct manifest {
	struct arena *arena;
	struct manifest_yaml *yaml; /* what the views are of */
	struct view name; /* made fit for a block's name */
	struct view app; /* "server.app:app" */
	uint16_t port; /* where the app listens */
	bool enabled; /* openenvd.enabled */
	bool local; /* enforcement local */
	struct manifest_surface surfaces[MANIFEST_PRINCIPALS];
	struct manifest_rule *rules;
	size_t rules_n;
	struct manifest_asset *assets;
	size_t assets_n;
	struct manifest_process *processes;
	size_t processes_n;
	bool dropped; /* OpenShell's own options were there */
};

/*
 * Source:  the `openenvd` block of the first and second generation.
 * Context: helper, at start; blocks on the file.
 * Parameters: err, up to 20 lines "PATH:LINE: ...": what is wrong, or cannot
 *          be expressed.
 * Owner:   manifest_clear(), also after a failure.
 * Returns: 0; SP_E_CONF; SP_E_NOMEM.
 */
int manifest_read(struct manifest *m, const char *path,
    struct buf *err) must_check;
void manifest_clear(struct manifest *m);

/* What a manifest leaves to the command line. */
struct manifest_site {
	const char *dir; /* absolute: of the manifest */
	const char *host;
	unsigned port;
	const char *python; /* absolute */
	const struct pyhome *pyhome; /* NULL: it needs nothing else */
	const char *bootstrap; /* of a worker of frames; absolute */
	const char *factory; /* NULL: the app is served over HTTP */
	const char *action_class;
	const char *workspace; /* absolute, or NULL */
	const char *asset_root; /* absolute, or NULL */
	uint32_t uid; /* 0: the default range */
	uint64_t timeout_ms;
};
/*
 * The whole configuration, or (inner) what stands inside of `environment`.
 * Returns: 0; SP_E_CONF with lines in err; SP_E_LIMIT; SP_E_NOMEM.
 */
int manifest_text(const struct manifest *m, const struct manifest_site *site,
    struct buf *out, struct buf *err) must_check;
int manifest_text_inner(const struct manifest *m,
    const struct manifest_site *site, struct buf *out,
    struct buf *err) must_check;

#endif
