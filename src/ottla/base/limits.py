"""Everything has a limit, and each limit has its name and its reason here.

Units end the names. Relations between limits are asserted, so that changing one without its
neighbours does not import.
"""

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""socket.request.max.bytes: the largest frame that a server reads (Kafka's default)."""

RECEIVE_BUFFER_BYTES = 256 * 1024
"""Lent to whichever connection is reading; larger frames get a buffer of their own size."""

SMALL_FRAME_BYTES_MAX = RECEIVE_BUFFER_BYTES - 4
"""A frame up to this size can be parsed where it was received."""

FRAMES_QUEUED_BYTES_MAX = 1024 * 1024
"""Bytes of pipelined requests kept for one connection before its socket is no longer read."""

FRAMES_HELD_BYTES_MAX = 512 * 1024 * 1024
"""Unfinished and waiting frames of all connections of a server; where more arrives, the peers whose
frames come slowest are disconnected."""

FRAME_SECONDS_MAX = 60
"""From a frame's first byte to its last; longer only while it comes at a fair rate. (Kafka waits as
long as anything arrives within connections.max.idle.ms.)"""

FRAME_BYTES_PER_SECOND_MIN = 100 * 1024
"""A fair rate: what has arrived at it extends the time for the rest."""

FRAME_GRACE_SECONDS = 1.0
"""Frames younger than this are closed last where the server is short of bytes for frames."""

UNREAD_BYTES_MAX = 64 * 1024 * 1024
"""Answers that wait in memory for peers to read them, of all connections of a server (files that
are sent are not in memory); beyond, those that have not read for longest are disconnected."""

UNREAD_LARGE_BYTES = 32 * 1024
"""An answer from this size on has the server look at what is unread."""

FRAME_BUFFERS_KEPT_BYTES_MAX = 8 * 1024 * 1024
"""Buffers of large frames that a server keeps to use again."""

BATCH_WORK_BYTES_MAX = 48 * 1024 * 1024
"""Bytes that batches may expand to in workers at once: mostly that is one batch. A batch that may
take more is expanded alone."""

BATCHES_WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Produced bytes that wait for a worker; a producer that would add to them is disconnected, and
sends again."""

GROUP_LOAD_BYTES_MAX = 1024 * 1024
"""Bytes of an offsets partition decoded at once: what one chunk says is applied in one turn of
the loop, a few tens of milliseconds at most."""

GROUP_MEMBERS_BYTES_MAX = 128 * 1024 * 1024
"""What the members of all groups of a broker may take in memory, ids that were given out and not
joined with yet among them; beyond, who joins anew is told to come again."""

PRODUCER_ID_WAITERS_MAX = 10_000
"""Producers that may wait at once for a block of producer ids; more are told to come back."""

LOGS_PER_STEP_MAX = 64
"""Logs that one step of retention or producer expiry works on before requests have their turn."""

METRICS_CONNECTIONS_MAX = 16
"""Connections to the metrics port at once; beyond, those that wait longest for their peers are
closed, and who comes while all others are being answered is told to come back."""

METRICS_REQUEST_BYTES_MAX = 8 * 1024
"""Bytes of a scrape's request line and headers."""

METRICS_REQUEST_SECONDS_MAX = 5
"""From a scraper's connection to the end of its request."""

METRICS_SECONDS_MAX = 30
"""From there to the end of its answer."""

assert SMALL_FRAME_BYTES_MAX < RECEIVE_BUFFER_BYTES < REQUEST_BYTES_MAX
assert FRAMES_HELD_BYTES_MAX >= 2 * REQUEST_BYTES_MAX
assert FRAMES_QUEUED_BYTES_MAX >= RECEIVE_BUFFER_BYTES

PARTITIONS_PER_REQUEST_MAX = 10_000
"""New partitions in one request: a decision is one atomic batch of records (Kafka's
MAX_PARTITIONS_PER_BATCH), and must not keep the controller's loop from its heartbeats."""

CREATIONS_PER_STEP_MAX = 64
"""Topics, and partitions of these but for those of the last topic, that one step creates, of a
request of any length. A broker makes the logs of a step in one turn, some 0.7 ms each."""

ALTERATIONS_PER_STEP_MAX = 500
"""Resources whose configurations one step changes, of a request of any length."""

DELETIONS_PER_STEP_MAX = 500
"""Topics that one step deletes, of a request of any length. Each is a removal, a header of the
ledger and at most a row for each replica; a full step holds the loop for some 30 ms."""

DELETED_REPLICAS_PER_STEP_MAX = 2_000
"""Replicas of these, but for those of the last topic, which goes as a whole."""

DELETIONS_QUEUED_PER_STEP_MAX = 300
"""Topics that one step queues over ZooKeeper: one multi holds them, however long their names. Where
it is refused, all that its request is answered an error for stays."""

RECEIPTS_PER_STEP_MAX = 2_000
"""Receipts of deletions that one step puts away; the next step follows at once."""

DELETIONS_PER_ANSWER_MAX = 500
"""Entries of the deletion ledger in one answer; the next ones are asked for anew."""

DELETED_REPLICAS_PER_ANSWER_MAX = 50_000
"""Replicas in one such answer, but for those of its last entry."""

DELETIONS_LOOKED_AT_PER_ANSWER_MAX = 10_000
"""Entries that one answer looks for names among; there may be few in it then, or none."""

ELECTIONS_PER_STEP_MAX = 1_000
"""Leaders that one pass of the periodic elections changes (Kafka's MAX_ELECTIONS_PER_IMBALANCE);
the next pass follows at once, with requests served in between."""

DIRECTORY_ASSIGNMENTS_PER_REQUEST_MAX = 2_250
"""Replicas whose folders one AssignReplicasToDirs tells of: Kafka's number."""

ISR_CHANGES_PER_REQUEST_MAX = 1_000
"""Partitions whose in-sync replicas one AlterPartition asks to change, each one record."""

PRODUCER_IDS_PER_BLOCK = 1_000
"""Ids that a broker gets at once; a crash of it wastes at most so many (KIP-730)."""

ZOOKEEPER_MULTI_BYTES_MAX = 900_000
"""Bytes of one multi: ZooKeeper takes 1,048,575 (jute.maxbuffer)."""

ZOOKEEPER_MULTI_OPERATIONS_MAX = 1_000
"""Operations of one multi: ZooKeeper holds up every other write while it checks them."""

# The check of the epoch; then a topic's check, its marker and its entry in the ledger.
assert 1 + 3 * DELETIONS_QUEUED_PER_STEP_MAX <= ZOOKEEPER_MULTI_OPERATIONS_MAX

ZNODE_NESTING_MAX = 32
"""Levels of objects and lists in a znode's JSON: those that are known have three. What is read is
shown in errors, compared and written again, which Python cannot do some 1,000 levels deep."""

LONG_REQUEST_BYTES_MIN = 2 * 1024
"""From this size on a request is decoded, handled and answered in steps (`ottla.base.turns`): some
hundred elements, which take up to a few milliseconds."""

LONG_RUNNING_MAX = 2
"""Long requests that are worked on at once, each with up to REQUEST_ELEMENTS_MAX elements decoded;
others wait as the bytes that they came as."""

LONG_SMALL_BYTES_MAX = 16 * 1024
"""Long requests up to this size do not wait for larger ones, but only for one another."""

LONG_SMALL_RUNNING_BYTES_MAX = 256 * 1024
"""Bytes of such requests that are worked on at once; decoded they take up to 200 times as much."""

STEPS_PER_SLICE_MAX = 10_000
"""Steps of long work in one turn, where no clock ends it before: a simulated one stands still."""

ELEMENTS_PER_STEP = 64
"""Array elements that are decoded or encoded between two points where that may be interrupted."""

REQUEST_ELEMENTS_MAX = 30_000
"""Structs and strings in the arrays of one client's request; an element costs about 0.5 us and
300 bytes to decode. No broker has that many partitions, and clients name none that it does not
have: one that says more is disconnected, as for a frame above socket.request.max.bytes. Enough for
10,000 partitions with three replicas each."""

REQUEST_WITHOUT_RECORDS_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of a client's request that carries no record batches: room for REQUEST_ELEMENTS_MAX
elements of the longest topic names. It is copied to be worked on in steps, and what it names comes
back in its answer, several times over while that is made."""

PRODUCE_ELEMENTS_MAX = 12_000
"""The same for Produce, whose records lie in the receive buffer, so that it is handled in one turn:
10,000 partitions and their topics, some 7 us each where refused, 20 us where appended."""

NODE_REQUEST_ELEMENTS_MAX = 2_000_000
"""The same between nodes, which tell of all partitions of a cluster at once (UpdateMetadata)."""

JOIN_PROTOCOLS_MAX = 1_000
"""Protocols that a member may join a group with: clients name as many as they have assignors."""

DELETED_TOPICS_PER_REQUEST_MAX = 10_000
"""Topics that one DeleteTopics may name; what they mean is looked up in one turn of the loop."""

AUTO_CREATED_IN_FLIGHT_MAX = 1_000
"""Topics that a broker has the controller create at once because clients asked for them; further
ones are asked for when their clients ask again."""

NUMBERS_PER_ELEMENT = 2
"""Numbers in an array that count as one element: partition indexes, replicas."""

assert REQUEST_ELEMENTS_MAX >= 2 * PARTITIONS_PER_REQUEST_MAX
