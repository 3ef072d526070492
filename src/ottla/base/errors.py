"""Kafka's error codes, each with its default message for clients.

Source: the protocol guide's table of error codes; 1071 is Ottla's own and always comes with a
message. A handler may pass a more specific message beside the code.
"""

from enum import IntEnum


class Error(IntEnum):
    """One error code of the protocol."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    TIERED_STORAGE_DISABLEMENT_IN_PROGRESS = 1071

    @property
    def message(self) -> str:
        """Return the default message."""
        return MESSAGES[self]

    @property
    def retriable(self) -> bool:
        """Return whether a retry of the client may succeed."""
        return self in RETRIABLE


MESSAGES: dict[Error, str] = {
    Error.UNKNOWN_SERVER_ERROR: "The server met an error that it did not expect.",
    Error.NONE: "No error.",
    Error.OFFSET_OUT_OF_RANGE: "The offset lies outside of the partition's log.",
    Error.CORRUPT_MESSAGE: (
        "A record batch failed its checksum, is malformed or has an invalid size."
    ),
    Error.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    Error.INVALID_FETCH_SIZE: "The fetch size is not valid.",
    Error.LEADER_NOT_AVAILABLE: "No leader is known for this partition at the moment.",
    Error.NOT_LEADER_OR_FOLLOWER: (
        "This broker does not lead, or does not hold a replica of, the partition."
    ),
    Error.REQUEST_TIMED_OUT: "The request was not done within its timeout.",
    Error.BROKER_NOT_AVAILABLE: "The broker is not available.",
    Error.REPLICA_NOT_AVAILABLE: "The replica is not available on this broker.",
    Error.MESSAGE_TOO_LARGE: "The batch is larger than the topic allows (max.message.bytes).",
    Error.STALE_CONTROLLER_EPOCH: "The controller epoch is older than the broker's.",
    Error.OFFSET_METADATA_TOO_LARGE: "The metadata string of the offset is too long.",
    Error.NETWORK_EXCEPTION: "The connection broke before a response came.",
    Error.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and cannot answer yet.",
    Error.COORDINATOR_NOT_AVAILABLE: "No coordinator is available.",
    Error.NOT_COORDINATOR: "This broker is not the coordinator.",
    Error.INVALID_TOPIC_EXCEPTION: (
        "The topic's name is not valid, or the topic cannot take this operation."
    ),
    Error.RECORD_LIST_TOO_LARGE: "The batches are larger than a segment (segment.bytes).",
    Error.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas asks for.",
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "The batch was written, but to fewer in-sync replicas than required."
    ),
    Error.INVALID_REQUIRED_ACKS: "The acks of a produce request must be -1, 0 or 1.",
    Error.ILLEGAL_GENERATION: "The generation id is not the group's current one.",
    Error.INCONSISTENT_GROUP_PROTOCOL: "The member's protocols do not match those of the group.",
    Error.INVALID_GROUP_ID: "The group id is not valid.",
    Error.UNKNOWN_MEMBER_ID: "The coordinator does not know this member.",
    Error.INVALID_SESSION_TIMEOUT: "The session timeout lies outside of what the broker allows.",
    Error.REBALANCE_IN_PROGRESS: "The group is rebalancing: rejoin is needed.",
    Error.INVALID_COMMIT_OFFSET_SIZE: "The offsets to commit are too large.",
    Error.TOPIC_AUTHORIZATION_FAILED: "Access to the topic is denied.",
    Error.GROUP_AUTHORIZATION_FAILED: "Access to the group is denied.",
    Error.CLUSTER_AUTHORIZATION_FAILED: "Access to the cluster is denied.",
    Error.INVALID_TIMESTAMP: "The timestamp of a record lies outside of what the topic allows.",
    Error.UNSUPPORTED_SASL_MECHANISM: "This SASL mechanism is not enabled.",
    Error.ILLEGAL_SASL_STATE: "This request does not fit the state of the SASL exchange.",
    Error.UNSUPPORTED_VERSION: "This version of the API is not supported.",
    Error.TOPIC_ALREADY_EXISTS: "A topic of this name exists already.",
    Error.INVALID_PARTITIONS: "The number of partitions is not valid.",
    Error.INVALID_REPLICATION_FACTOR: (
        "The replication factor is below 1 or above what the cluster can do."
    ),
    Error.INVALID_REPLICA_ASSIGNMENT: "The replica assignment is not valid.",
    Error.INVALID_CONFIG: "A configuration is not valid.",
    Error.NOT_CONTROLLER: "This node is not the active controller.",
    Error.INVALID_REQUEST: "The request contradicts itself or the protocol.",
    Error.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "The message format on the broker does not support this request."
    ),
    Error.POLICY_VIOLATION: "The request violates a policy.",
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER: "The batch's sequence number does not follow the last one.",
    Error.DUPLICATE_SEQUENCE_NUMBER: "The batch's sequence number was seen already.",
    Error.INVALID_PRODUCER_EPOCH: "The producer's epoch is old.",
    Error.INVALID_TXN_STATE: "The transaction's state does not allow this operation.",
    Error.INVALID_PRODUCER_ID_MAPPING: "The producer id does not belong to this transactional id.",
    Error.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is above what the broker allows.",
    Error.CONCURRENT_TRANSACTIONS: "Another operation of this transaction is going on.",
    Error.TRANSACTION_COORDINATOR_FENCED: "The transaction coordinator is fenced.",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Access to the transactional id is denied.",
    Error.SECURITY_DISABLED: "Security features are disabled.",
    Error.OPERATION_NOT_ATTEMPTED: "The operation was not tried.",
    Error.KAFKA_STORAGE_ERROR: "The log directory of this partition is offline.",
    Error.LOG_DIR_NOT_FOUND: "The log directory is not one of this broker's.",
    Error.SASL_AUTHENTICATION_FAILED: "SASL authentication failed.",
    Error.UNKNOWN_PRODUCER_ID: "The broker has no state of this producer any more.",
    Error.REASSIGNMENT_IN_PROGRESS: "A reassignment of the partition is going on.",
    Error.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are not enabled.",
    Error.DELEGATION_TOKEN_NOT_FOUND: "There is no such delegation token.",
    Error.DELEGATION_TOKEN_OWNER_MISMATCH: "The principal does not own this delegation token.",
    Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Delegation token requests are not allowed on this channel."
    ),
    Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Access to the delegation token is denied.",
    Error.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    Error.INVALID_PRINCIPAL_TYPE: "This type of principal is not supported.",
    Error.NON_EMPTY_GROUP: "The group has members.",
    Error.GROUP_ID_NOT_FOUND: "There is no such group.",
    Error.FETCH_SESSION_ID_NOT_FOUND: "The fetch session is not known.",
    Error.INVALID_FETCH_SESSION_EPOCH: "The epoch of the fetch session does not match.",
    Error.LISTENER_NOT_FOUND: "The leader has no listener of the name that the request came in on.",
    Error.TOPIC_DELETION_DISABLED: "Topic deletion is switched off (delete.topic.enable).",
    Error.FENCED_LEADER_EPOCH: "The leader epoch of the request is older than the broker's.",
    Error.UNKNOWN_LEADER_EPOCH: "The leader epoch of the request is newer than the broker's.",
    Error.UNSUPPORTED_COMPRESSION_TYPE: (
        "This version of the request does not support the compression."
    ),
    Error.STALE_BROKER_EPOCH: "The broker's epoch is old.",
    Error.OFFSET_NOT_AVAILABLE: (
        "The leader's high watermark has not caught up with its election yet."
    ),
    Error.MEMBER_ID_REQUIRED: "A member must join again with the id that it was given.",
    Error.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
    Error.GROUP_MAX_SIZE_REACHED: "The group is full.",
    Error.FENCED_INSTANCE_ID: "Another member has taken this group instance id.",
    Error.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica is eligible to lead.",
    Error.ELECTION_NOT_NEEDED: "The partition needs no election.",
    Error.NO_REASSIGNMENT_IN_PROGRESS: "No reassignment of the partition is going on.",
    Error.GROUP_SUBSCRIBED_TO_TOPIC: "A member of the group subscribes to this topic.",
    Error.INVALID_RECORD: "A record is not valid.",
    Error.UNSTABLE_OFFSET_COMMIT: "A transaction has offsets to commit for this partition.",
    Error.THROTTLING_QUOTA_EXCEEDED: "A quota is used up.",
    Error.PRODUCER_FENCED: "A newer producer of the same transactional id has fenced this one.",
    Error.RESOURCE_NOT_FOUND: "There is no such resource.",
    Error.DUPLICATE_RESOURCE: "The request names a resource twice.",
    Error.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the criteria.",
    Error.INCONSISTENT_VOTER_SET: "The voters named are not those of the quorum.",
    Error.INVALID_UPDATE_VERSION: "The version that the update is based on is old.",
    Error.FEATURE_UPDATE_FAILED: "The features could not be updated.",
    Error.PRINCIPAL_DESERIALIZATION_FAILURE: "The principal of a forwarded request is unreadable.",
    Error.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
    Error.POSITION_OUT_OF_RANGE: "The position lies outside of the snapshot.",
    Error.UNKNOWN_TOPIC_ID: "This server does not know the topic id.",
    Error.DUPLICATE_BROKER_REGISTRATION: "A live broker holds this id.",
    Error.BROKER_ID_NOT_REGISTERED: "No broker of this id is registered.",
    Error.INCONSISTENT_TOPIC_ID: "The topic id does not match the one in the log.",
    Error.INCONSISTENT_CLUSTER_ID: "The cluster id does not match the one stored.",
    Error.TRANSACTIONAL_ID_NOT_FOUND: "The transactional id is not known.",
    Error.FETCH_SESSION_TOPIC_ID_ERROR: (
        "The fetch session mixes requests with and without topic ids."
    ),
    Error.INELIGIBLE_REPLICA: "The new in-sync set holds a replica that must not be in it.",
    Error.NEW_LEADER_ELECTED: (
        "The change of the in-sync set went through, and led to another leader."
    ),
    Error.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset is in remote storage only.",
    Error.FENCED_MEMBER_EPOCH: "The member's epoch is fenced.",
    Error.UNRELEASED_INSTANCE_ID: "Another member still uses this instance id.",
    Error.UNSUPPORTED_ASSIGNOR: "The server-side assignor is not supported.",
    Error.STALE_MEMBER_EPOCH: "The member's epoch is old.",
    Error.MISMATCHED_ENDPOINT_TYPE: "The request went to the wrong type of endpoint.",
    Error.UNSUPPORTED_ENDPOINT_TYPE: "This endpoint type is not supported.",
    Error.UNKNOWN_CONTROLLER_ID: "The controller id is not known.",
    Error.UNKNOWN_SUBSCRIPTION_ID: "The subscription id is not known.",
    Error.TELEMETRY_TOO_LARGE: "The telemetry is larger than allowed.",
    Error.INVALID_REGISTRATION: "The registration is not valid.",
    Error.TRANSACTION_ABORTABLE: "The transaction must be aborted.",
    Error.INVALID_RECORD_STATE: "The state of the record does not allow this acknowledgement.",
    Error.SHARE_SESSION_NOT_FOUND: "The share session is not known.",
    Error.INVALID_SHARE_SESSION_EPOCH: "The epoch of the share session does not match.",
    Error.FENCED_STATE_EPOCH: "The epoch of the share coordinator's request is old.",
    Error.INVALID_VOTER_KEY: "The voter key does not match the receiver's.",
    Error.DUPLICATE_VOTER: "This voter is part of the quorum already.",
    Error.VOTER_NOT_FOUND: "This voter is not part of the quorum.",
    Error.INVALID_REGULAR_EXPRESSION: "The regular expression is not valid.",
    Error.REBOOTSTRAP_REQUIRED: "The client must bootstrap again.",
    Error.STREAMS_INVALID_TOPOLOGY: "The topology is not valid.",
    Error.STREAMS_INVALID_TOPOLOGY_EPOCH: "The epoch of the topology is not valid.",
    Error.STREAMS_TOPOLOGY_FENCED: "The topology's epoch is old.",
    Error.SHARE_SESSION_LIMIT_REACHED: "No more share sessions are allowed.",
    Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS: (
        "Tiered storage of the topic is being turned off; try again when that is done."
    ),
}
assert set(MESSAGES) == set(Error)

RETRIABLE = frozenset(
    {
        Error.CORRUPT_MESSAGE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.REQUEST_TIMED_OUT,
        Error.REPLICA_NOT_AVAILABLE,
        Error.NETWORK_EXCEPTION,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.NOT_CONTROLLER,
        Error.CONCURRENT_TRANSACTIONS,
        Error.KAFKA_STORAGE_ERROR,
        Error.FETCH_SESSION_ID_NOT_FOUND,
        Error.INVALID_FETCH_SESSION_EPOCH,
        Error.LISTENER_NOT_FOUND,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.OFFSET_NOT_AVAILABLE,
        Error.PREFERRED_LEADER_NOT_AVAILABLE,
        Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        Error.ELECTION_NOT_NEEDED,
        Error.UNSTABLE_OFFSET_COMMIT,
        Error.THROTTLING_QUOTA_EXCEEDED,
        Error.UNKNOWN_TOPIC_ID,
        Error.INCONSISTENT_TOPIC_ID,
        Error.FETCH_SESSION_TOPIC_ID_ERROR,
        Error.SHARE_SESSION_NOT_FOUND,
        Error.INVALID_SHARE_SESSION_EPOCH,
        Error.SHARE_SESSION_LIMIT_REACHED,
        Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS,
    }
)


class ApiError(Exception):
    """An error for the peer: an error code and a message.

    Raised inside deciders' helpers and turned into a response by the handler that called them.
    """

    def __init__(self, error: Error, message: str | None = None) -> None:
        self.error = error
        self.message = message if message is not None else error.message
        super().__init__(f"{error.name}: {self.message}")


def error_of(code: int) -> Error:
    """Return the error of a peer's code; UNKNOWN_SERVER_ERROR for one not in this table."""
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR


def error_name(code: int) -> str:
    """Return the name of a code; "error N" for one not in this table."""
    try:
        return Error(code).name
    except ValueError:
        return f"error {code}"
