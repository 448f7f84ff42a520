/** All steps of sdks/steps.py with the types of openapi-typescript and the client openapi-fetch. */

import { readFileSync } from "node:fs";
import { inspect, isDeepStrictEqual } from "node:util";

import createClient from "openapi-fetch";

import type {
  Encoding,
  FetchedRecord,
  FetchResult,
  paths,
  ProducedRecord,
  ProduceResult,
} from "./rollway.js";

type Content = { name: string; base64: string | null; text: string | null; json: boolean };
type FetchQuery = NonNullable<paths[typeof RECORDS]["get"]["parameters"]["query"]>;
type ProduceParameters = Omit<paths[typeof RECORDS]["post"]["parameters"], "path" | "cookie">;

const URL = variable("ROLLWAY_URL");
const PREFIX = variable("ROLLWAY_PREFIX");
const CONTENTS: Content[] = JSON.parse(readFileSync(variable("ROLLWAY_CONTENTS"), "utf8"));
const RECORDS = "/v1/topics/{topic}/partitions/{partition}/records";
const RECORD_BATCHES = "/v1/topics/{topic}/partitions/{partition}/record-batches";
const RECORD_LINES = "/v1/topics/{topic}/partitions/{partition}/record-lines";

const client = createClient<paths>({
  baseUrl: URL,
  headers: { Authorization: `Bearer ${variable("ROLLWAY_API_KEY")}` },
});

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

function check(isRight: boolean, what: unknown): asserts isRight {
  if (!isRight) throw new Error(inspect(what, { depth: 6, maxStringLength: 100 }).slice(0, 500));
}

/** What the service answered. Throws what it answered instead, if it refused. */
async function answered<T>(request: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await request;
  if (data === undefined) throw new Error(`${response.status} ${JSON.stringify(error)}`);
  return data;
}

async function create(name: string, partitions = 1): Promise<string> {
  const topic = await answered(
    client.PUT("/v1/topics/{topic}", {
      params: { path: { topic: PREFIX + name } },
      body: { partitions, config: { "max.message.bytes": "50000000" } },
    }),
  );
  return topic.name;
}

function send(topic: string, records: ProducedRecord[], parameters: ProduceParameters = {}): Promise<ProduceResult> {
  return answered(
    client.POST(RECORDS, { params: { path: { topic, partition: 0 }, ...parameters }, body: { records } }),
  );
}

function fetchFrom(topic: string, query: FetchQuery = {}): Promise<FetchResult> {
  return answered(
    client.GET(RECORDS, {
      params: { path: { topic, partition: 0 }, query: { offset: "earliest", max_bytes: 100_000_000, ...query } },
    }),
  );
}

async function valuesOf(topic: string, query: FetchQuery = {}): Promise<unknown[]> {
  const { records } = await fetchFrom(topic, query);
  return records.map((record) => record.value);
}

async function topic(): Promise<void> {
  const name = await create("topic", 2);
  const found = await answered(client.GET("/v1/topics/{topic}", { params: { path: { topic: name } } }));
  check(found.config["max.message.bytes"]?.value === 50_000_000, found);
  check(found.partitions.length === 2, found);
}

async function produce(): Promise<void> {
  const name = await create("produce");
  const headers = [
    { name: "trace", value: "a" },
    { name: "trace", value_base64: "AP8=" },
  ];
  const done = await send(
    name,
    [{ key: "k", value: "v", headers, timestamp: 1_700_000_000_000 }, { value_base64: null }],
    { query: { acks: "all", durability: "fsynced" } },
  );
  check(done.base_offset === 0 && done.last_offset === 1 && done.record_count === 2, done);
  const { records } = await fetchFrom(name);
  const [first, second] = records;
  check(records.length === 2 && first !== undefined && second !== undefined, records);
  check(first.key === "k" && first.value === "v" && first.offset === 0, first);
  check(first.timestamp === 1_700_000_000_000, first);
  const named = first.headers.map((header) => [header.name, header.value, header.value_base64]);
  check(isDeepStrictEqual(named, [["trace", "a", undefined], ["trace", undefined, "AP8="]]), first);
  check(second.key === null && second.value === null && second.value_base64 === undefined, second);
}

async function contents(encoding: Encoding): Promise<void> {
  const name = await create(`contents.${encoding}`);
  for (const content of CONTENTS) {
    const sent: ProducedRecord = { ...keyOf(content, encoding), ...valueOf(content, encoding) };
    const { base_offset } = await send(name, [sent], { query: { encoding } });
    const { records } = await fetchFrom(name, { offset: String(base_offset), max_records: 1, encoding });
    const [found] = records;
    check(records.length === 1 && found !== undefined, content.name);
    check(isDeepStrictEqual(contentsOf(found), contentsOf(sent)), { content: content.name, found, sent });
  }
}

/** The member that says a content as a value. */
function valueOf(content: Content, encoding: Encoding): Pick<ProducedRecord, "value" | "value_base64"> {
  if (content.base64 === null) return encoding === "base64" ? { value_base64: null } : { value: null };
  if (encoding === "utf8" && content.text !== null) return { value: content.text };
  if (encoding === "json" && content.json && content.text !== null) return { value: JSON.parse(content.text) };
  return { value_base64: content.base64 };
}

/** The same as a key. */
function keyOf(content: Content, encoding: Encoding): Pick<ProducedRecord, "key" | "key_base64"> {
  const { value, value_base64 } = valueOf(content, encoding);
  return value_base64 === undefined ? { key: value } : { key_base64: value_base64 };
}

function contentsOf({ key, key_base64, value, value_base64 }: ProducedRecord | FetchedRecord): object {
  return { key, key_base64, value, value_base64 };
}

async function rawBatches(): Promise<void> {
  const name = await create("raw");
  const copy = await create("raw.copy");
  await send(name, [0, 1, 2].map((number) => ({ key: String(number), value: `value ${number}` })));
  const batches = await answered(
    client.GET(RECORD_BATCHES, {
      params: { path: { topic: name, partition: 0 }, query: { offset: "earliest" } },
      parseAs: "arrayBuffer",
    }),
  );
  check(batches.byteLength > 61 && new Uint8Array(batches)[16] === 2, batches);
  const done = await answered(
    client.POST(RECORD_BATCHES, {
      params: { path: { topic: copy, partition: 0 } },
      headers: { "Content-Type": "application/octet-stream" },
      // The types call bytes a string; what bodySerializer returns is sent as it is.
      body: batches as unknown as string,
      bodySerializer: (body) => body,
    }),
  );
  check(done.record_count === 3, done);
  for (const each of [name, copy]) {
    const values = await valuesOf(each);
    check(isDeepStrictEqual(values, ["value 0", "value 1", "value 2"]), values);
  }
}

async function lines(): Promise<void> {
  const path = { topic: await create("lines"), partition: 0 };
  const sent = [{ key: "a", value: "1" }, { value: null }].map((each) => `${JSON.stringify(each)}\n`).join("");
  const { data, error, response } = await client.POST(RECORD_LINES, {
    params: { path },
    headers: { "Content-Type": "application/x-ndjson" },
    body: sent,
    bodySerializer: (body) => body,
    parseAs: "text",
  });
  check(response.status === 200 && data !== undefined, error);
  const results: ProduceResult[] = objectsOf(data);
  check(results.reduce((sum, result) => sum + result.record_count, 0) === 2, results);
  const got = await answered(
    client.GET(RECORD_LINES, { params: { path, query: { offset: "earliest" } }, parseAs: "text" }),
  );
  const records: FetchedRecord[] = objectsOf(got);
  const found = records.map((record) => [record.key, record.value]);
  check(isDeepStrictEqual(found, [["a", "1"], [null, null]]), records);
}

function objectsOf<T>(lines: string): T[] {
  return lines.trimEnd().split("\n").map((line) => JSON.parse(line));
}

async function longPoll(): Promise<void> {
  const name = await create("poll");
  const waiting = valuesOf(name, { offset: "0", wait_ms: 30_000 });
  await send(name, [{ value: "news" }]);
  const values = await waiting;
  check(isDeepStrictEqual(values, ["news"]), values);
}

async function offsetByTime(): Promise<void> {
  const name = await create("time", 2);
  await send(name, [1_000, 2_000, 3_000].map((timestamp) => ({ value: String(timestamp), timestamp })));
  const answer = await answered(
    client.GET("/v1/topics/{topic}/partitions/{partition}/offsets", {
      params: { path: { topic: name, partition: 0 }, query: { timestamp: "1500" } },
    }),
  );
  check(answer.offset === 1 && answer.timestamp === 2_000, answer);
  const { results } = await answered(
    client.POST("/v1/offsets", {
      body: {
        queries: ["earliest", "latest", "1500"].map((timestamp) => ({ topic: name, partition: 0, timestamp })),
      },
    }),
  );
  const offsets = results.map((result) => result.error?.code ?? result.offset);
  check(isDeepStrictEqual(offsets, [0, 3, 1]), results);
}

async function idempotencyKey(): Promise<void> {
  const name = await create("idempotency");
  const replayed: (string | null)[] = [];
  for (let time = 0; time < 2; time++) {
    const { data, error, response } = await client.POST(RECORDS, {
      params: { path: { topic: name, partition: 0 }, header: { "Idempotency-Key": `${PREFIX}request` } },
      body: { records: [{ value: "once" }] },
    });
    check(data?.base_offset === 0, data ?? error);
    replayed.push(response.headers.get("Idempotent-Replayed"));
  }
  check(isDeepStrictEqual(replayed, [null, "true"]), replayed);
  const values = await valuesOf(name);
  check(isDeepStrictEqual(values, ["once"]), values);
}

async function transaction(): Promise<void> {
  const name = await create("transaction");
  const transactional_id = `${PREFIX}writer`;
  const { producer_id, producer_epoch } = await answered(client.POST("/v1/producers", { body: { transactional_id } }));
  await send(name, [{ value: "all or nothing" }], {
    header: {
      "Producer-Id": producer_id,
      "Producer-Epoch": producer_epoch,
      "Base-Sequence": 0,
      "Transactional-Id": transactional_id,
    },
  });
  const before = await valuesOf(name, { isolation: "read_committed" });
  check(before.length === 0, before);
  await answered(
    client.POST("/v1/transactions/{transactional_id}/commit", {
      params: { path: { transactional_id } },
      body: { producer_id, producer_epoch },
    }),
  );
  const after = await valuesOf(name, { isolation: "read_committed" });
  check(isDeepStrictEqual(after, ["all or nothing"]), after);
}

async function job(): Promise<void> {
  const name = await create("job");
  const { job_id } = await answered(
    client.POST("/v1/jobs", {
      body: { application_id: `${PREFIX}loader`, version: 1, mode: "idempotent", topics: [name] },
    }),
  );
  const attempt = await answered(
    client.POST("/v1/jobs/{job_id}/attempts", { params: { path: { job_id } }, body: { task: 0 } }),
  );
  await send(name, [{ value: "loaded" }], {
    header: { "Producer-Id": attempt.producer_id, "Producer-Epoch": attempt.producer_epoch, "Base-Sequence": 0 },
  });
  const done = await answered(
    client.POST("/v1/jobs/{job_id}/commit", {
      params: { path: { job_id } },
      body: { winners: [{ producer_id: attempt.producer_id, rows: 1 }] },
    }),
  );
  check(done.winner_count === 1 && done.rows === 1, done);
  const values = await valuesOf(name, { isolation: "read_committed" });
  check(isDeepStrictEqual(values, ["loaded"]), values);
}

async function paging(): Promise<void> {
  const names: string[] = [];
  for (let number = 0; number < 5; number++) names.push(await create(`page.${number}`));
  const found: string[] = [];
  const query: NonNullable<paths["/v1/topics"]["get"]["parameters"]["query"]> = { prefix: `${PREFIX}page.`, limit: 2 };
  for (;;) {
    const page = await answered(client.GET("/v1/topics", { params: { query } }));
    found.push(...page.data.map((each) => each.name));
    if (!page.has_more) break;
    check(page.next_cursor !== null, page);
    query.start_after = page.next_cursor;
  }
  check(isDeepStrictEqual(found, names), found);
}

async function notFound(): Promise<void> {
  const { error, response } = await client.GET(RECORDS, {
    params: { path: { topic: `${PREFIX}nothing`, partition: 0 }, query: { offset: "0" } },
  });
  check(response.status === 404, error);
  check(error?.code === "unknown_topic_or_partition", error);
}

async function gone(): Promise<void> {
  const path = { topic: await create("gone"), partition: 0 };
  await send(path.topic, [0, 1, 2].map((number) => ({ value: String(number) })));
  await answered(
    client.POST("/v1/topics/{topic}/partitions/{partition}/delete-records", { params: { path }, body: { offset: 2 } }),
  );
  const { error, response } = await client.GET(RECORDS, { params: { path, query: { offset: "0" } } });
  check(response.status === 410, error);
  check(error !== undefined && "log_start_moved_ms" in error && error.log_start_offset === 2, error);
}

async function beyondTheEnd(): Promise<void> {
  const { error, response } = await client.GET(RECORDS, {
    params: { path: { topic: await create("end"), partition: 0 }, query: { offset: "7" } },
  });
  check(response.status === 416, error);
  check(error !== undefined && "log_end_offset" in error && error.log_end_offset === 0, error);
}

async function precondition(): Promise<void> {
  const { error, response } = await client.POST(RECORDS, {
    params: { path: { topic: await create("precondition"), partition: 0 }, query: { expected_offset: 3 } },
    body: { records: [{ value: "late" }] },
  });
  check(response.status === 412, error);
  check(error !== undefined && "log_end_offset" in error && error.log_end_offset === 0, error);
}

async function authentication(): Promise<void> {
  const { error, response } = await createClient<paths>({ baseUrl: URL }).GET("/v1/topics");
  check(response.status === 401, error);
  check(error?.retryable === false, error);
}

const STEPS: Record<string, () => Promise<void>> = {
  topic,
  produce,
  "contents utf8": () => contents("utf8"),
  "contents base64": () => contents("base64"),
  "contents json": () => contents("json"),
  "raw batches": rawBatches,
  lines,
  "long poll": longPoll,
  "offset by time": offsetByTime,
  "idempotency key": idempotencyKey,
  transaction,
  job,
  paging,
  "not found": notFound,
  gone,
  "beyond the end": beyondTheEnd,
  precondition,
  authentication,
};

for (const [step, run] of Object.entries(STEPS)) {
  try {
    await run();
    console.log(`ok ${step}`);
  } catch (error) {
    console.log(`failed ${step}: ${String(error).replaceAll("\n", " ")}`);
  }
}
