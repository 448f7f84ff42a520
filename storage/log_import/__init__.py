"""Takes over the log directory of a Kafka broker: ``rollway log import``.

``broker_directory`` says what a broker's directory has. ``cluster_metadata`` reads the settings of topics from the
cluster's own log in it. ``data_directory`` makes a data directory of a copy. The broker's directory is only read.
"""

from storage.log_import.broker_directory import BrokerDirectory, BrokerDirectoryError, BrokerTopic, find_topics
from storage.log_import.data_directory import ImportedTopic, import_topics, plan_topics

__all__ = [
    "BrokerDirectory",
    "BrokerDirectoryError",
    "BrokerTopic",
    "ImportedTopic",
    "find_topics",
    "import_topics",
    "plan_topics",
]
