"""Print the values of a partition, one request after another, until there are no more: python read_lines.py orders 0"""

import base64
import json
import os
import sys

import httpx

topic, partition = sys.argv[1:]
path = f"/v1/topics/{topic}/partitions/{partition}/record-lines"
offset = "earliest"

with httpx.Client(base_url=os.environ["ROLLWAY_URL"], timeout=60) as client:
    while True:
        count = 0
        with client.stream("GET", path, params={"offset": offset}) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                record = json.loads(line)
                value = record["value"] if "value" in record else base64.b64decode(record["value_base64"])
                print(record["offset"], value)
                count += 1
        offset = answer.headers["Next-Offset"]
        if not count:
            break
