"""`ottla leader-election --zookeeper`: preferred leaders through a znode.

As kafka-preferred-replica-election.sh: the partitions are written to
`/admin/preferred_replica_election`, and the controller removes the znode when it has processed
them. Source: PreferredReplicaLeaderElectionCommand, Kafka 2.8.
"""

from collections.abc import Collection

from ottla.base.zookeeper import Create
from ottla.cli.errors import CommandError
from ottla.cli.partitions import partition_file as files
from ottla.cli.zookeeper_client import WriteConflict, ZooKeeperClient
from ottla.client.partitions import TopicPartition
from ottla.metadata.znodes import admin, paths


def elect(connect: str, timeout: float, wanted: Collection[TopicPartition] | None) -> None:
    """Request preferred leader elections; `wanted` None = of all partitions."""
    with ZooKeeperClient(connect, timeout) as client:
        existing = {
            (name, partition)
            for name in client.topic_names()
            if (found := client.topic(name)) is not None
            for partition in found[0].partitions
        }
        partitions = sorted(existing if wanted is None else wanted)
        missing = [each for each in partitions if each not in existing]
        if missing:
            raise CommandError(f"{files.name_of(missing[0])}: expected a partition that exists")
        if not partitions:
            print("There are no partitions.")
            return
        client.make_parents(paths.PREFERRED_ELECTION)
        data = admin.encode_preferred_election(partitions)
        try:
            client.write([Create(paths.PREFERRED_ELECTION, data)])
        except WriteConflict:
            raise CommandError(
                "Preferred replica leader election currently in progress. Aborting operation"
            ) from None
    print(
        f"Successfully started preferred replica election for partitions "
        f"{files.names_of(partitions, ', ')}"
    )
