"""All limits, each with its reason.

Units end the names. Relations between limits are asserted, so that changing one without its
neighbours does not import.
"""

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""socket.request.max.bytes: the largest frame that a server reads (Kafka's default)."""

RECEIVE_BUFFER_BYTES = 256 * 1024
"""Shared by all connections, one reads at a time; larger frames get their own buffer."""

SMALL_FRAME_BYTES_MAX = RECEIVE_BUFFER_BYTES - 4
"""A frame up to this size can be parsed where it was received."""

FRAMES_QUEUED_BYTES_MAX = 1024 * 1024
"""Bytes of pipelined requests kept for one connection before its socket is no longer read."""

FRAMES_HELD_BYTES_MAX = 512 * 1024 * 1024
"""Unfinished and waiting frames of all connections of a server; above it the peers with the slowest
frames are disconnected."""

FRAME_SECONDS_MAX = 60
"""From a frame's first byte to its last; longer only while it comes at
FRAME_BYTES_PER_SECOND_MIN. (Kafka waits as long as anything arrives within
connections.max.idle.ms.)"""

FRAME_BYTES_PER_SECOND_MIN = 100 * 1024
"""A frame that arrives at this rate is not timed out."""

FRAME_GRACE_SECONDS = 1.0
"""Connections with younger frames are closed last at FRAMES_HELD_BYTES_MAX."""

UNREAD_BYTES_MAX = 64 * 1024 * 1024
"""Unsent responses in memory, of all connections of a server (file slices are not in memory); above
it the peers that have not read for longest are disconnected."""

UNREAD_LARGE_BYTES = 32 * 1024
"""A response of this size or larger triggers the check of UNREAD_BYTES_MAX."""

FRAME_BUFFERS_KEPT_BYTES_MAX = 8 * 1024 * 1024
"""Buffers of large frames that a server keeps to use again."""

BATCH_WORK_BYTES_MAX = 48 * 1024 * 1024
"""Bytes that batches may decompress to in workers at once, mostly one batch. A batch that may take
more is decompressed alone."""

BATCHES_WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Produced bytes that wait for a worker; above it a producer is disconnected, and retries."""

GROUP_LOAD_BYTES_MAX = 1024 * 1024
"""Bytes of an offsets partition decoded at once: one chunk is applied in one turn of the loop, some
tens of milliseconds at most."""

GROUP_MEMBERS_BYTES_MAX = 128 * 1024 * 1024
"""Memory of the members of all groups of a broker, with assigned member ids that have not joined
yet; above it a new member gets a retriable error."""

PRODUCER_ID_WAITERS_MAX = 10_000
"""Producers that may wait at once for a block of producer ids; more get a retriable error."""

LOGS_PER_STEP_MAX = 64
"""Logs that one step of retention or producer expiration processes; then requests are served."""

FILES_PER_FLUSH = 8
"""Files that every flush of a log may hold open, more while there is room; the rest follows in
further flushes. A segment has four, and there are leader epochs and producers' snapshots."""

LOGS_CLOSED_AT_ONCE = 8
"""Logs of one directory that are flushed and closed at once at the end."""

COPIED_BYTES_MAX = 256 * 1024
"""Bytes of a response to Fetch once it has copies of records, as no more files may be held open for
slices of them; the first batch may be larger."""

assert COPIED_BYTES_MAX <= UNREAD_BYTES_MAX // 64

METRICS_CONNECTIONS_MAX = 16
"""Connections to the metrics port at once; above it those that wait longest for their peers are
closed; if all others are being answered the new one is refused."""

METRICS_REQUEST_BYTES_MAX = 8 * 1024
"""Bytes of a scrape's request line and headers."""

METRICS_REQUEST_SECONDS_MAX = 5
"""From a scraper's connection to the end of its request."""

METRICS_RESPONSE_SECONDS_MAX = 30
"""From there to the end of the response."""

assert SMALL_FRAME_BYTES_MAX < RECEIVE_BUFFER_BYTES < REQUEST_BYTES_MAX
assert FRAMES_HELD_BYTES_MAX >= 2 * REQUEST_BYTES_MAX
assert FRAMES_QUEUED_BYTES_MAX >= RECEIVE_BUFFER_BYTES

PARTITIONS_PER_REQUEST_MAX = 10_000
"""New partitions in one request: they are one atomic batch of records (Kafka's
MAX_PARTITIONS_PER_BATCH), and must not hold up the controller's heartbeats."""

CREATIONS_PER_STEP_MAX = 64
"""Topics, and their partitions but for the last topic's, that one step creates, of a request of any
length. A broker creates the logs of a step in one turn, some 0.7 ms each."""

ALTERATIONS_PER_STEP_MAX = 500
"""Resources whose configurations one step alters, of a request of any length."""

DELETIONS_PER_STEP_MAX = 500
"""Topics that one step deletes, of a request of any length. Each is a removal, a header of the
ledger and at most a row for each replica; a full step holds the loop for some 30 ms."""

DELETED_REPLICAS_PER_STEP_MAX = 2_000
"""Replicas of these, but for those of the last topic, which is deleted as a whole."""

DELETIONS_QUEUED_PER_STEP_MAX = 300
"""Topics that one step queues for deletion in ZooKeeper: one multi holds them, however long their
names. If it fails none of the topics that get an error is queued."""

RECEIPTS_PER_STEP_MAX = 2_000
"""Deletion receipts that one step removes; the next step follows at once."""

DELETIONS_PER_RESPONSE_MAX = 500
"""Entries of the deletion ledger in one response; further ones need another request."""

DELETED_REPLICAS_PER_RESPONSE_MAX = 50_000
"""Replicas in one such response, but for those of its last entry."""

DELETIONS_SCANNED_PER_RESPONSE_MAX = 10_000
"""Entries that one request scans for names; its response may have few entries, or none."""

ELECTIONS_PER_STEP_MAX = 1_000
"""Leaders that one pass of the periodic elections changes (Kafka's MAX_ELECTIONS_PER_IMBALANCE);
the next pass follows at once, with requests served in between."""

DIRECTORY_ASSIGNMENTS_PER_REQUEST_MAX = 2_250
"""Replicas in one AssignReplicasToDirs: Kafka's number."""

ISR_CHANGES_PER_REQUEST_MAX = 1_000
"""Partitions in one AlterPartition, each of which becomes one record."""

PRODUCER_IDS_PER_BLOCK = 1_000
"""Ids that a broker gets at once; a crash wastes at most so many (KIP-730)."""

ZOOKEEPER_MULTI_BYTES_MAX = 900_000
"""Bytes of one multi: ZooKeeper takes 1,048,575 (jute.maxbuffer)."""

ZOOKEEPER_MULTI_OPERATIONS_MAX = 1_000
"""Operations of one multi: ZooKeeper holds up every other write while it checks them."""

# The check of the epoch; then a topic's check, its marker and its entry in the ledger.
assert 1 + 3 * DELETIONS_QUEUED_PER_STEP_MAX <= ZOOKEEPER_MULTI_OPERATIONS_MAX

ZNODE_NESTING_MAX = 32
"""Levels of objects and lists in a znode's JSON: known ones have three. What is read is shown in
errors, compared and written again, which Python cannot do some 1,000 levels deep."""

LONG_REQUEST_BYTES_MIN = 2 * 1024
"""From this size on a request is decoded, handled and answered in steps (`ottla.base.turns`): some
hundred elements, which take up to a few milliseconds."""

LONG_RUNNING_MAX = 2
"""Long requests in progress at once, each with up to REQUEST_ELEMENTS_MAX elements decoded; others
wait undecoded."""

LONG_SMALL_BYTES_MAX = 16 * 1024
"""Long requests up to this size wait only for one another, not for larger ones."""

LONG_SMALL_RUNNING_BYTES_MAX = 256 * 1024
"""Bytes of such requests in progress at once; decoded they take up to 200 times as much."""

STEPS_PER_SLICE_MAX = 10_000
"""Steps of long work in one slice, also if the clock stands still, as a simulated one does."""

ELEMENTS_PER_STEP = 64
"""Array elements decoded or encoded between two points where the work may be interrupted."""

REQUEST_ELEMENTS_MAX = 30_000
"""Structs and strings in the arrays of one client's request; an element costs about 0.5 us and
300 bytes to decode. No broker has that many partitions, so a client that sends more is
disconnected, as for a frame above socket.request.max.bytes. Enough for 10,000 partitions with three
replicas each."""

REQUEST_WITHOUT_RECORDS_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of a client's request without record batches: room for REQUEST_ELEMENTS_MAX elements of the
longest topic names. It is copied to be handled in steps, and its names come back in the response,
with several copies while that is encoded."""

PRODUCE_ELEMENTS_MAX = 12_000
"""The same for Produce, whose records lie in the receive buffer, so that it is handled in one turn:
10,000 partitions and their topics, some 7 us each where refused, 20 us where appended."""

NODE_REQUEST_ELEMENTS_MAX = 2_000_000
"""The same between nodes, which may send all partitions of a cluster at once (UpdateMetadata)."""

JOIN_PROTOCOLS_MAX = 1_000
"""Protocols that a member may join a group with: clients name as many as they have assignors."""

DELETED_TOPICS_PER_REQUEST_MAX = 10_000
"""Topics in one DeleteTopics; their ids are looked up in one turn of the loop."""

AUTO_CREATED_IN_FLIGHT_MAX = 1_000
"""Auto-created topics in requests to the controller at once; further ones are created when their
clients retry."""

NUMBERS_PER_ELEMENT = 2
"""Integers in an array that count as one element: partition indexes, replicas."""

assert REQUEST_ELEMENTS_MAX >= 2 * PARTITIONS_PER_REQUEST_MAX

REMOTE_METADATA_WAITING_MAX = 10_000
"""Records of `__remote_log_metadata` that wait on one broker to be written; further appends get a
retriable error."""
