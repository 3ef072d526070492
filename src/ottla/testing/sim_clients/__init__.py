"""Clients of simulated clusters: they use Kafka's protocol and record responses in the history.

Each is a few dialogues (generators) over a port that sends a request and completes with the
response. They depend on nothing else of the simulator than a port, timers, a clock and dice.
"""

from ottla.testing.sim_clients.admin import Admin
from ottla.testing.sim_clients.backfiller import Backfiller
from ottla.testing.sim_clients.client import Port, SimClient
from ottla.testing.sim_clients.consumer import Consumer
from ottla.testing.sim_clients.dialogue import Dialogue, start
from ottla.testing.sim_clients.patient_client import PatientClient
from ottla.testing.sim_clients.producer import Producer
from ottla.testing.sim_clients.tier_reader import TierReader
from ottla.testing.sim_clients.topic import TopicSpec
from ottla.testing.sim_clients.transaction_writer import TransactionWriter

__all__ = [
    "Admin",
    "Backfiller",
    "Consumer",
    "Dialogue",
    "PatientClient",
    "Port",
    "Producer",
    "SimClient",
    "TierReader",
    "TopicSpec",
    "TransactionWriter",
    "start",
]
