//! The bounds of this crate, each with its reason.

use std::time::Duration;

/// How often a change is repeated that lost a race against another writer. Writers of one object are few; a hook that
/// loses eight times in a row meets a controller in a loop.
pub(crate) const CONFLICT_RETRIES: u32 = 8;
/// First pause after a lost race; it doubles.
pub(crate) const CONFLICT_PAUSE: Duration = Duration::from_millis(5);
/// How long discovery of a group version is believed when it lacks what is asked for.
pub(crate) const DISCOVERY_MISS: Duration = Duration::from_secs(2);
/// How long discovery of a group version is believed when it has what is asked for. A kind seldom changes its plural
/// or its scope, and never while objects of it exist.
pub(crate) const DISCOVERY_HIT: Duration = Duration::from_secs(10 * 60);
/// Group versions in the discovery cache: a cluster has about a hundred, and names come from hooks and charts.
pub(crate) const DISCOVERY_ENTRIES: usize = 1_000;
/// How long a custom resource waits to be served after its definition was established: discovery of an API server with
/// several replicas lags behind.
pub(crate) const SERVED_WAIT: Duration = Duration::from_secs(30);
/// First pause of a watch whose kind is not served; it doubles up to [`UNSERVED_PAUSE_MAX`].
pub(crate) const UNSERVED_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause of a watch whose kind is not served.
pub(crate) const UNSERVED_PAUSE_MAX: Duration = Duration::from_secs(15);
/// First pause before a watch that failed is begun again; it doubles up to [`WATCH_PAUSE_MAX`].
pub(crate) const WATCH_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause before a watch that failed is begun again: within it an API server that is back is found.
pub(crate) const WATCH_PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long after the last failure a watch counts as one that went well: longer than the longest pause, shorter than what
/// proxies give to a connection on which nothing is said.
pub(crate) const WATCH_WELL: Duration = Duration::from_secs(25);
/// Objects in one page of a list.
pub(crate) const PAGE: u32 = 500;
/// Pages of one list: half a million objects are no longer a selection.
pub(crate) const PAGES_MAX: usize = 1_000;
/// Objects with the label of an application that are in a page beside those that it has, when these are listed: hooks
/// and what somebody labelled like them. A page is no larger, for an object may have a megabyte.
pub(crate) const OWN_PAGE_MORE: usize = 20;
/// Pages of such a list beside those that the objects fill.
pub(crate) const OWN_PAGES_MORE: usize = 2;
/// Objects of a kind from which on they are listed and not read one by one, if an earlier apply left them.
pub(crate) const LIST_OURS: usize = 2;
/// The same if nobody knows whether they exist: then the names of all objects of the kind are listed, of which there may
/// be many, and one page is as much as is read.
pub(crate) const LIST_NAMES: usize = 4;
/// How old the sight of an object may be for it not to be sent again. As old as this, an apply that was sent may be too.
pub(crate) const SIGHT: Duration = Duration::from_secs(10);
/// Requests in flight for one application.
pub(crate) const PARALLEL: usize = 8;
/// How long requests that are under way may take to end once an operation is given up.
pub(crate) const DRAIN: Duration = Duration::from_secs(3);
/// How long the deletions after a failure may take, all of them.
pub(crate) const CLEAN_UP: Duration = Duration::from_secs(30);
/// How long it may take to ask the containers of a failed hook what they said.
pub(crate) const OUTPUT_WAIT: Duration = Duration::from_secs(5);
/// Bytes of the last lines of one container that are read; what is shown of them is less.
pub(crate) const OUTPUT_BYTES: i64 = 32 * 1024;
/// Bytes that all `copy` operations of one JSON patch may add: a patch that copies an array into itself doubles it with
/// each operation, while etcd takes no object above 1.5 MiB.
pub(crate) const JSON_PATCH_COPY_BYTES: usize = 2 * 1024 * 1024;
/// Depth of an object after a patch; the API server and serde refuse deeper ones.
pub(crate) const OBJECT_DEPTH: usize = 120;
/// Bytes of an object after a patch.
pub(crate) const OBJECT_BYTES: usize = 3 * 1024 * 1024;
/// Bytes of the payload of a release record; the API server takes Secrets up to 1 MiB.
pub(crate) const RECORD_BYTES: usize = 1_000_000;
/// Bytes of an unpacked release record: what 1 MiB of real manifests unpacks to, with room to spare; a bomb is refused.
pub(crate) const RECORD_UNPACKED_BYTES: u64 = 64 * 1024 * 1024;
/// Nesting of a manifest in a release record: deeper than the API server takes.
pub(crate) const MANIFEST_DEPTH: usize = 150;
/// Nodes of all documents of a manifest, aliases followed: 400 for each of the objects that a release may have.
pub(crate) const MANIFEST_NODES: usize = 2_000_000;
/// Bytes of the text of all documents of a manifest, aliases followed: as much as an unpacked record may have.
pub(crate) const MANIFEST_BYTES: usize = 64 * 1024 * 1024;
/// Records of one release that are decoded, the newest; ten are kept, and those of Helm may be more.
pub(crate) const RECORDS_READ: usize = 50;
/// Bytes of stack for the parser of manifests, which takes some 45 KB for a level in a build without optimisation. Only
/// what is touched is ever used.
pub(crate) const MANIFEST_STACK: usize = 32 * 1024 * 1024;
/// Characters of the message of an Event; the API refuses more.
pub(crate) const EVENT_MESSAGE: usize = 1024;
/// How long definitions of custom resources may take to be established.
pub(crate) const ESTABLISH_WAIT: Duration = Duration::from_secs(60);
/// How long one request to the API server may take, watches excluded. The API server itself gives up after a minute; one
/// that is further away than that is as good as down, and whoever asked comes again.
pub(crate) const REQUEST_WAIT: Duration = Duration::from_secs(60);
/// How often the API server is asked again that is busy or did not answer: with the pauses between that takes two to three
/// seconds, in which a server behind a load balancer is replaced. Whoever asked then comes again later.
pub(crate) const ASKED_AGAIN: u32 = 6;
/// First pause before the API server is asked again; it doubles up to [`RETRY_PAUSE_MAX`].
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause before the API server is asked again, unless it says itself how long.
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest pause that an API server may ask for: a part of [`REQUEST_WAIT`].
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(15);
/// How often a list is begun anew because the API server no longer knows what its next page would have been.
pub(crate) const LISTS_ANEW: usize = 5;
/// How long what has become of a write is looked for in the history of its object. It is a moment old.
pub(crate) const HISTORY_WAIT: Duration = Duration::from_secs(5);
/// How long the API server may take to begin a watch: it does so at once, and sends changes when there are any.
pub(crate) const WATCH_ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How long a shared watch waits for others to join before it lists: the bindings of a package start within it.
pub(crate) const SHARED_WATCH_GATHER: Duration = Duration::from_millis(5);
/// Objects that one who shares a watch may be behind before the others wait for them.
pub(crate) const SHARED_WATCH_BACKLOG: usize = 256;
/// How long the others wait in all for one that does not keep up. A filter takes microseconds; one that takes seconds an
/// object gets a watch of its own.
pub(crate) const SHARED_WATCH_PATIENCE: Duration = Duration::from_secs(1);
