/** Create a topic, append a record as JSON, read it back, and handle an error, with openapi-fetch. */

import createClient from "openapi-fetch";

import type { paths } from "./rollway.js";

const client = createClient<paths>({
  baseUrl: process.env["ROLLWAY_URL"] ?? "",
  headers: { Authorization: `Bearer ${process.env["ROLLWAY_API_KEY"]}`, "Client-Id": "example" },
});
const partition = { topic: "example", partition: 0 };
const records = "/v1/topics/{topic}/partitions/{partition}/records";

await client.PUT("/v1/topics/{topic}", { params: { path: { topic: "example" } }, body: { partitions: 1 } });

await client.POST(records, {
  params: { path: partition, query: { encoding: "json" } },
  body: { records: [{ key: "kitchen", value: { celsius: 21.5 } }] },
});

const { data, error, response } = await client.GET(records, {
  params: { path: partition, query: { offset: "earliest", encoding: "json" } },
});
for (const record of data?.records ?? []) console.log(record.offset, record.key, record.value);
if (error !== undefined) {
  if (response.status === 410 && "log_start_offset" in error) {
    console.log("those records are deleted; the log begins at", error.log_start_offset);
  } else {
    console.log(error.code, error.detail, error.retryable ? "again" : "for good");
  }
}
