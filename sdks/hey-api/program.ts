/** All steps of sdks/steps.py with the client of @hey-api/openapi-ts. */

import { readFileSync } from "node:fs";
import { inspect, isDeepStrictEqual } from "node:util";

import { createClient } from "./rollway/client/index.js";
import { client } from "./rollway/client.gen.js";
import {
  beginJob,
  commitJob,
  commitTransaction,
  deleteRecords,
  enlistAttempt,
  ensureTopic,
  fetchRecordBatches,
  fetchRecordLines,
  fetchRecords,
  findOffsets,
  getOffset,
  getTopic,
  initialiseProducer,
  listTopics,
  produceRecordBatches,
  produceRecordLines,
  produceRecords,
} from "./rollway/index.js";
import type {
  Encoding,
  FetchedRecord,
  FetchRecordsData,
  FetchResult,
  ListTopicsData,
  ProducedRecord,
  ProduceRecordsData,
  ProduceResult,
} from "./rollway/index.js";

type Content = { name: string; base64: string | null; text: string | null; json: boolean };
type FetchQuery = NonNullable<FetchRecordsData["query"]>;
type ProduceParameters = Pick<ProduceRecordsData, "query" | "headers">;

const URL = variable("ROLLWAY_URL");
const PREFIX = variable("ROLLWAY_PREFIX");
const CONTENTS: Content[] = JSON.parse(readFileSync(variable("ROLLWAY_CONTENTS"), "utf8"));

client.setConfig({ baseUrl: URL, auth: variable("ROLLWAY_API_KEY") });

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

function check(isRight: boolean, what: unknown): asserts isRight {
  if (!isRight) throw new Error(inspect(what, { depth: 6, maxStringLength: 100 }).slice(0, 500));
}

async function create(name: string, partitions = 1): Promise<string> {
  const { data } = await ensureTopic({
    path: { topic: PREFIX + name },
    body: { partitions, config: { "max.message.bytes": "50000000" } },
    throwOnError: true,
  });
  return data.name;
}

async function send(
  topic: string,
  records: ProducedRecord[],
  parameters: ProduceParameters = {},
): Promise<ProduceResult> {
  const { data } = await produceRecords({
    path: { topic, partition: 0 },
    body: { records },
    ...parameters,
    throwOnError: true,
  });
  return data;
}

async function fetchFrom(topic: string, query: FetchQuery = {}): Promise<FetchResult> {
  const { data } = await fetchRecords({
    path: { topic, partition: 0 },
    query: { offset: "earliest", max_bytes: 100_000_000, ...query },
    throwOnError: true,
  });
  return data;
}

async function valuesOf(topic: string, query: FetchQuery = {}): Promise<unknown[]> {
  const { records } = await fetchFrom(topic, query);
  return records.map((record) => record.value);
}

async function topic(): Promise<void> {
  const name = await create("topic", 2);
  const { data: found } = await getTopic({ path: { topic: name }, throwOnError: true });
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
  const { data: batches } = await fetchRecordBatches({
    path: { topic: name, partition: 0 },
    query: { offset: "earliest" },
    throwOnError: true,
  });
  const bytes = new Uint8Array(await batches.arrayBuffer());
  check(bytes.length > 61 && bytes[16] === 2, bytes);
  const { data: done } = await produceRecordBatches({
    path: { topic: copy, partition: 0 },
    body: new Blob([bytes]),
    throwOnError: true,
  });
  check(done.record_count === 3, done);
  for (const each of [name, copy]) {
    const values = await valuesOf(each);
    check(isDeepStrictEqual(values, ["value 0", "value 1", "value 2"]), values);
  }
}

async function lines(): Promise<void> {
  const path = { topic: await create("lines"), partition: 0 };
  const sent = [{ key: "a", value: "1" }, { value: null }].map((each) => `${JSON.stringify(each)}\n`);
  const { data: answer, response } = await produceRecordLines({ path, body: new Blob(sent), throwOnError: true });
  check(response.status === 200, response);
  const results: ProduceResult[] = await objectsOf(answer);
  check(results.reduce((sum, result) => sum + result.record_count, 0) === 2, results);
  const { data: got } = await fetchRecordLines({ path, query: { offset: "earliest" }, throwOnError: true });
  const records: FetchedRecord[] = await objectsOf(got);
  const found = records.map((record) => [record.key, record.value]);
  check(isDeepStrictEqual(found, [["a", "1"], [null, null]]), records);
}

async function objectsOf<T>(lines: Blob): Promise<T[]> {
  const text = await lines.text();
  return text.trimEnd().split("\n").map((line) => JSON.parse(line));
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
  const { data: answer } = await getOffset({
    path: { topic: name, partition: 0 },
    query: { timestamp: "1500" },
    throwOnError: true,
  });
  check(answer.offset === 1 && answer.timestamp === 2_000, answer);
  const { data: answers } = await findOffsets({
    body: { queries: ["earliest", "latest", "1500"].map((timestamp) => ({ topic: name, partition: 0, timestamp })) },
    throwOnError: true,
  });
  const offsets = answers.results.map((result) => result.error?.code ?? result.offset);
  check(isDeepStrictEqual(offsets, [0, 3, 1]), answers);
}

async function idempotencyKey(): Promise<void> {
  const name = await create("idempotency");
  const replayed: (string | null)[] = [];
  for (let time = 0; time < 2; time++) {
    const { data, response } = await produceRecords({
      path: { topic: name, partition: 0 },
      headers: { "Idempotency-Key": `${PREFIX}request` },
      body: { records: [{ value: "once" }] },
      throwOnError: true,
    });
    check(data.base_offset === 0, data);
    replayed.push(response.headers.get("Idempotent-Replayed"));
  }
  check(isDeepStrictEqual(replayed, [null, "true"]), replayed);
  const values = await valuesOf(name);
  check(isDeepStrictEqual(values, ["once"]), values);
}

async function transaction(): Promise<void> {
  const name = await create("transaction");
  const transactional_id = `${PREFIX}writer`;
  const { data: producer } = await initialiseProducer({ body: { transactional_id }, throwOnError: true });
  const { producer_id, producer_epoch } = producer;
  await send(name, [{ value: "all or nothing" }], {
    headers: {
      "Producer-Id": producer_id,
      "Producer-Epoch": producer_epoch,
      "Base-Sequence": 0,
      "Transactional-Id": transactional_id,
    },
  });
  const before = await valuesOf(name, { isolation: "read_committed" });
  check(before.length === 0, before);
  await commitTransaction({ path: { transactional_id }, body: { producer_id, producer_epoch }, throwOnError: true });
  const after = await valuesOf(name, { isolation: "read_committed" });
  check(isDeepStrictEqual(after, ["all or nothing"]), after);
}

async function job(): Promise<void> {
  const name = await create("job");
  const { data: begun } = await beginJob({
    body: { application_id: `${PREFIX}loader`, version: 1, mode: "idempotent", topics: [name] },
    throwOnError: true,
  });
  const path = { job_id: begun.job_id };
  const { data: attempt } = await enlistAttempt({ path, body: { task: 0 }, throwOnError: true });
  await send(name, [{ value: "loaded" }], {
    headers: { "Producer-Id": attempt.producer_id, "Producer-Epoch": attempt.producer_epoch, "Base-Sequence": 0 },
  });
  const { data: done } = await commitJob({
    path,
    body: { winners: [{ producer_id: attempt.producer_id, rows: 1 }] },
    throwOnError: true,
  });
  check(done.winner_count === 1 && done.rows === 1, done);
  const values = await valuesOf(name, { isolation: "read_committed" });
  check(isDeepStrictEqual(values, ["loaded"]), values);
}

async function paging(): Promise<void> {
  const names: string[] = [];
  for (let number = 0; number < 5; number++) names.push(await create(`page.${number}`));
  const found: string[] = [];
  const query: NonNullable<ListTopicsData["query"]> = { prefix: `${PREFIX}page.`, limit: 2 };
  for (;;) {
    const { data: page } = await listTopics({ query, throwOnError: true });
    found.push(...page.data.map((each) => each.name));
    if (!page.has_more) break;
    check(page.next_cursor !== null, page);
    query.start_after = page.next_cursor;
  }
  check(isDeepStrictEqual(found, names), found);
}

async function notFound(): Promise<void> {
  const { error, response } = await fetchRecords({
    path: { topic: `${PREFIX}nothing`, partition: 0 },
    query: { offset: "0" },
  });
  check(response?.status === 404, error);
  check(error?.code === "unknown_topic_or_partition", error);
}

async function gone(): Promise<void> {
  const path = { topic: await create("gone"), partition: 0 };
  await send(path.topic, [0, 1, 2].map((number) => ({ value: String(number) })));
  await deleteRecords({ path, body: { offset: 2 }, throwOnError: true });
  const { error, response } = await fetchRecords({ path, query: { offset: "0" } });
  check(response?.status === 410, error);
  check(error !== undefined && "log_start_moved_ms" in error && error.log_start_offset === 2, error);
}

async function beyondTheEnd(): Promise<void> {
  const path = { topic: await create("end"), partition: 0 };
  const { error, response } = await fetchRecords({ path, query: { offset: "7" } });
  check(response?.status === 416, error);
  check(error !== undefined && "log_end_offset" in error && error.log_end_offset === 0, error);
}

async function precondition(): Promise<void> {
  const { error, response } = await produceRecords({
    path: { topic: await create("precondition"), partition: 0 },
    query: { expected_offset: 3 },
    body: { records: [{ value: "late" }] },
  });
  check(response?.status === 412, error);
  check(error !== undefined && "log_end_offset" in error && error.log_end_offset === 0, error);
}

async function authentication(): Promise<void> {
  const { error, response } = await listTopics({ client: createClient({ baseUrl: URL }) });
  check(response?.status === 401, error);
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
    // With throwOnError a refusal is thrown as the problem itself.
    const why = error instanceof Error ? String(error) : JSON.stringify(error);
    console.log(`failed ${step}: ${why.replaceAll("\n", " ")}`);
  }
}
