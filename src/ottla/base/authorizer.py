"""Who may do what: the port that handlers ask, and the answer without ACLs.

Source: Kafka's Authorizer, AclOperation, ResourceType, AclEntry; KIP-504.
"""

from collections.abc import Collection, Set
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from ottla.base.errors import Error
from ottla.base.principal import Principal


class Operation(IntEnum):
    """What a principal does to a resource. The values are Kafka's."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """What it is done to. The values are Kafka's; those of configuration resources differ."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Resource(NamedTuple):
    """One topic, group, transactional id, …, or the cluster."""

    type: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")
"""There is one resource of its type."""

AUTHORIZATION_ERRORS: Final = {
    ResourceType.TOPIC: Error.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Error.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Error.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

SUPPORTED_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations of ACLs on each type, which `*_authorized_operations` of responses list."""


@dataclass(frozen=True, slots=True)
class Access:
    """One question that the requests of an API ask: may the principal do this?"""

    operation: Operation
    resource_type: ResourceType

    @property
    def error(self) -> Error:
        """Return the error of what is refused."""
        return AUTHORIZATION_ERRORS[self.resource_type]


class Authorizer(Protocol):
    """Decides for one node. It answers at once, from what it has in memory."""

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resources: Collection[Resource],
    ) -> Set[Resource]:
        """Return those of `resources` on which the principal, from that host, may do it."""
        ...

    def authorize_by_resource_type(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Tell whether it may do it on any resource of the type, existing or not."""
        ...


class AllowAll:
    """Allows everything, as a cluster without ACLs does."""

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resources: Collection[Resource],
    ) -> Set[Resource]:
        """Return all of them."""
        return frozenset(resources)

    def authorize_by_resource_type(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return True."""
        return True


ALLOW_ALL: Final = AllowAll()
"""Recognized by identity, so that it costs nothing."""
