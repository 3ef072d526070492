"""Clients of simulated clusters: they speak Kafka's protocol and write down what they are told.

Each is a few dialogues (generators) over a port that sends one request and answers later. They
know nothing of the simulator's inside: only of a port, timers, a clock and dice.
"""

from ottla.testing.sim_clients.admin import Admin
from ottla.testing.sim_clients.client import Port, SimClient
from ottla.testing.sim_clients.consumer import Consumer
from ottla.testing.sim_clients.dialogue import Dialogue, start
from ottla.testing.sim_clients.patient_client import PatientClient
from ottla.testing.sim_clients.producer import Producer
from ottla.testing.sim_clients.topic import TopicSpec

__all__ = [
    "Admin",
    "Consumer",
    "Dialogue",
    "PatientClient",
    "Port",
    "Producer",
    "SimClient",
    "TopicSpec",
    "start",
]
