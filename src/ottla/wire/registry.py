"""Which API has which key, versions and classes; message modules load when first asked for.

Importing all messages at once would cost every start a few hundred milliseconds, and a header
must be read before its message's module is known to be needed: hence the version table here.
A test compares it with the declarations. Keys from 1000 on are Ottla's own.
Source: ApiKeys.java and Kafka's message JSON files.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final


@dataclass(frozen=True, slots=True)
class ApiInfo:
    """An API's name, its first and last version, and its first flexible one (-1 = none)."""

    name: str
    first: int
    last: int
    flexible: int

    def is_flexible(self, version: int) -> bool:
        """Return whether that version has compact lengths and tagged fields."""
        return 0 <= self.flexible <= version

    @property
    def module(self) -> str:
        """The module that declares its request and response."""
        return f"ottla.wire.messages.{snake_case(self.name)}"


def snake_case(name: str) -> str:
    """Return `FindCoordinator` as `find_coordinator`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


PRODUCE: Final = 0
FETCH: Final = 1
CONTROLLED_SHUTDOWN: Final = 7
API_VERSIONS: Final = 18

APIS: Final[dict[int, ApiInfo]] = {
    0: ApiInfo("Produce", 0, 13, 9),
    1: ApiInfo("Fetch", 0, 18, 12),
    2: ApiInfo("ListOffsets", 0, 11, 6),
    3: ApiInfo("Metadata", 0, 13, 9),
    4: ApiInfo("LeaderAndIsr", 0, 7, 4),
    5: ApiInfo("StopReplica", 0, 4, 2),
    6: ApiInfo("UpdateMetadata", 0, 8, 6),
    7: ApiInfo("ControlledShutdown", 0, 3, 3),
    8: ApiInfo("OffsetCommit", 0, 10, 8),
    9: ApiInfo("OffsetFetch", 0, 10, 6),
    10: ApiInfo("FindCoordinator", 0, 6, 3),
    11: ApiInfo("JoinGroup", 0, 9, 6),
    12: ApiInfo("Heartbeat", 0, 4, 4),
    13: ApiInfo("LeaveGroup", 0, 5, 4),
    14: ApiInfo("SyncGroup", 0, 5, 4),
    15: ApiInfo("DescribeGroups", 0, 6, 5),
    16: ApiInfo("ListGroups", 0, 5, 3),
    17: ApiInfo("SaslHandshake", 0, 1, -1),
    18: ApiInfo("ApiVersions", 0, 4, 3),
    19: ApiInfo("CreateTopics", 0, 7, 5),
    20: ApiInfo("DeleteTopics", 0, 6, 4),
    21: ApiInfo("DeleteRecords", 0, 2, 2),
    22: ApiInfo("InitProducerId", 0, 6, 2),
    23: ApiInfo("OffsetForLeaderEpoch", 0, 4, 4),
    24: ApiInfo("AddPartitionsToTxn", 0, 5, 3),
    25: ApiInfo("AddOffsetsToTxn", 0, 4, 3),
    26: ApiInfo("EndTxn", 0, 5, 3),
    27: ApiInfo("WriteTxnMarkers", 0, 2, 1),
    28: ApiInfo("TxnOffsetCommit", 0, 5, 3),
    29: ApiInfo("DescribeAcls", 0, 3, 2),
    30: ApiInfo("CreateAcls", 0, 3, 2),
    31: ApiInfo("DeleteAcls", 0, 3, 2),
    32: ApiInfo("DescribeConfigs", 0, 4, 4),
    33: ApiInfo("AlterConfigs", 0, 2, 2),
    34: ApiInfo("AlterReplicaLogDirs", 0, 2, 2),
    35: ApiInfo("DescribeLogDirs", 0, 5, 2),
    36: ApiInfo("SaslAuthenticate", 0, 2, 2),
    37: ApiInfo("CreatePartitions", 0, 3, 2),
    38: ApiInfo("CreateDelegationToken", 0, 3, 2),
    39: ApiInfo("RenewDelegationToken", 0, 2, 2),
    40: ApiInfo("ExpireDelegationToken", 0, 2, 2),
    41: ApiInfo("DescribeDelegationToken", 0, 3, 2),
    42: ApiInfo("DeleteGroups", 0, 2, 2),
    43: ApiInfo("ElectLeaders", 0, 2, 2),
    44: ApiInfo("IncrementalAlterConfigs", 0, 1, 1),
    45: ApiInfo("AlterPartitionReassignments", 0, 1, 0),
    46: ApiInfo("ListPartitionReassignments", 0, 0, 0),
    47: ApiInfo("OffsetDelete", 0, 0, -1),
    48: ApiInfo("DescribeClientQuotas", 0, 1, 1),
    49: ApiInfo("AlterClientQuotas", 0, 1, 1),
    50: ApiInfo("DescribeUserScramCredentials", 0, 0, 0),
    51: ApiInfo("AlterUserScramCredentials", 0, 0, 0),
    52: ApiInfo("Vote", 0, 2, 0),
    53: ApiInfo("BeginQuorumEpoch", 0, 1, 1),
    54: ApiInfo("EndQuorumEpoch", 0, 1, 1),
    55: ApiInfo("DescribeQuorum", 0, 2, 0),
    56: ApiInfo("AlterPartition", 0, 3, 0),
    57: ApiInfo("UpdateFeatures", 0, 2, 0),
    58: ApiInfo("Envelope", 0, 0, 0),
    59: ApiInfo("FetchSnapshot", 0, 1, 0),
    60: ApiInfo("DescribeCluster", 0, 2, 0),
    61: ApiInfo("DescribeProducers", 0, 0, 0),
    62: ApiInfo("BrokerRegistration", 0, 4, 0),
    63: ApiInfo("BrokerHeartbeat", 0, 2, 0),
    64: ApiInfo("UnregisterBroker", 0, 0, 0),
    65: ApiInfo("DescribeTransactions", 0, 0, 0),
    66: ApiInfo("ListTransactions", 0, 2, 0),
    67: ApiInfo("AllocateProducerIds", 0, 0, 0),
    68: ApiInfo("ConsumerGroupHeartbeat", 0, 1, 0),
    69: ApiInfo("ConsumerGroupDescribe", 0, 1, 0),
    70: ApiInfo("ControllerRegistration", 0, 0, 0),
    71: ApiInfo("GetTelemetrySubscriptions", 0, 0, 0),
    72: ApiInfo("PushTelemetry", 0, 0, 0),
    73: ApiInfo("AssignReplicasToDirs", 0, 0, 0),
    74: ApiInfo("ListConfigResources", 0, 1, 0),
    75: ApiInfo("DescribeTopicPartitions", 0, 0, 0),
    76: ApiInfo("ShareGroupHeartbeat", 1, 1, 1),
    77: ApiInfo("ShareGroupDescribe", 1, 1, 1),
    78: ApiInfo("ShareFetch", 1, 2, 1),
    79: ApiInfo("ShareAcknowledge", 1, 2, 1),
    80: ApiInfo("AddRaftVoter", 0, 1, 0),
    81: ApiInfo("RemoveRaftVoter", 0, 0, 0),
    82: ApiInfo("UpdateRaftVoter", 0, 0, 0),
    83: ApiInfo("InitializeShareGroupState", 0, 0, 0),
    84: ApiInfo("ReadShareGroupState", 0, 0, 0),
    85: ApiInfo("WriteShareGroupState", 0, 1, 0),
    86: ApiInfo("DeleteShareGroupState", 0, 0, 0),
    87: ApiInfo("ReadShareGroupStateSummary", 0, 1, 0),
    88: ApiInfo("StreamsGroupHeartbeat", 0, 0, 0),
    89: ApiInfo("StreamsGroupDescribe", 0, 0, 0),
    90: ApiInfo("DescribeShareGroupOffsets", 0, 1, 0),
    91: ApiInfo("AlterShareGroupOffsets", 0, 0, 0),
    92: ApiInfo("DeleteShareGroupOffsets", 0, 0, 0),
    1001: ApiInfo("DisableRemoteTopic", 0, 0, 0),
    1002: ApiInfo("DeleteReplicas", 0, 0, 0),
    1003: ApiInfo("DescribeDeletions", 0, 0, 0),
    1004: ApiInfo("ReportIdleTopics", 0, 0, 0),
    1005: ApiInfo("DescribeIdleTopics", 0, 0, 0),
    1006: ApiInfo("DescribeRemoteLog", 0, 0, 0),
    1007: ApiInfo("ReportPurges", 0, 0, 0),
    1008: ApiInfo("RestoreTopic", 0, 0, 0),
    1009: ApiInfo("DescribeTopicTiering", 0, 0, 0),
    1010: ApiInfo("AbandonPurge", 0, 0, 0),
    1011: ApiInfo("GrantSegmentCopies", 0, 0, 0),
    1012: ApiInfo("CommitSegmentCopies", 0, 0, 0),
}

NAMES: Final[dict[int, str]] = {key: api.name for key, api in APIS.items()}


class _Types(Mapping[int, type]):
    """Classes by key, each imported when first looked up."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._loaded: dict[int, type] = {}

    def __getitem__(self, key: int) -> type:
        found = self._loaded.get(key)
        if found is None:
            api = APIS[key]
            found = getattr(import_module(api.module), api.name + self._suffix)
            self._loaded[key] = found
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(APIS)

    def __len__(self) -> int:
        return len(APIS)


REQUESTS: Final[Mapping[int, type]] = _Types("Request")
RESPONSES: Final[Mapping[int, type]] = _Types("Response")


def request_type(key: int) -> type:
    """Return the request class of an API key; KeyError where there is none."""
    return REQUESTS[key]


def response_type(key: int) -> type:
    """Return the response class of an API key; KeyError where there is none."""
    return RESPONSES[key]
