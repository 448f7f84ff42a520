/** All steps of sdks/steps.py with the client of openapi-generator's typescript-fetch. */

import { readFileSync } from "node:fs";
import { inspect, isDeepStrictEqual } from "node:util";

import {
  Acks,
  Configuration,
  Durability,
  Encoding,
  ExpectedOffsetProblemFromJSON,
  FetchedRecordFromJSON,
  Isolation,
  JobMode,
  LoadJobsApi,
  LogEndProblemFromJSON,
  LogStartProblemFromJSON,
  OffsetsApi,
  ProblemFromJSON,
  ProduceResultFromJSON,
  RecordsApi,
  ResponseError,
  RetentionApi,
  TopicsApi,
  TransactionsApi,
} from "./rollway/index.js";
import type {
  FetchedRecord,
  FetchRecordsRequest,
  FetchResult,
  ListTopicsRequest,
  ProducedRecord,
  ProduceRecordsRequest,
  ProduceResult,
} from "./rollway/index.js";

type Content = { name: string; base64: string | null; text: string | null; json: boolean };

const URL = variable("ROLLWAY_URL");
const PREFIX = variable("ROLLWAY_PREFIX");
const CONTENTS: Content[] = JSON.parse(readFileSync(variable("ROLLWAY_CONTENTS"), "utf8"));

const configuration = new Configuration({ basePath: URL, accessToken: variable("ROLLWAY_API_KEY") });
const jobs = new LoadJobsApi(configuration);
const offsets = new OffsetsApi(configuration);
const records = new RecordsApi(configuration);
const retention = new RetentionApi(configuration);
const topics = new TopicsApi(configuration);
const transactions = new TransactionsApi(configuration);

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

function check(isRight: boolean, what: unknown): asserts isRight {
  if (!isRight) throw new Error(inspect(what, { depth: 6, maxStringLength: 100 }).slice(0, 500));
}

/** The answer to a request that the service has to refuse. */
async function refused(request: Promise<unknown>, status: number): Promise<unknown> {
  try {
    await request;
  } catch (error) {
    if (!(error instanceof ResponseError)) throw error;
    const body = await error.response.json();
    check(error.response.status === status, body);
    return body;
  }
  throw new Error(`there was no ${status}`);
}

async function create(name: string, partitions = 1): Promise<string> {
  const topicSpecification = { partitions, config: { "max.message.bytes": "50000000" } };
  const topic = await topics.ensureTopic({ topic: PREFIX + name, topicSpecification });
  return topic.name;
}

function send(
  topic: string,
  sent: ProducedRecord[],
  parameters: Partial<ProduceRecordsRequest> = {},
): Promise<ProduceResult> {
  return records.produceRecords({ topic, partition: 0, recordList: { records: sent }, ...parameters });
}

function fetchFrom(topic: string, parameters: Partial<FetchRecordsRequest> = {}): Promise<FetchResult> {
  return records.fetchRecords({ topic, partition: 0, offset: "earliest", maxBytes: 100_000_000, ...parameters });
}

async function valuesOf(topic: string, parameters: Partial<FetchRecordsRequest> = {}): Promise<unknown[]> {
  const result = await fetchFrom(topic, parameters);
  return result.records.map((record) => record.value);
}

async function topic(): Promise<void> {
  const name = await create("topic", 2);
  const found = await topics.getTopic({ topic: name });
  check(found.config["max.message.bytes"]?.value === 50_000_000, found);
  check(found.partitions.length === 2, found);
}

async function produce(): Promise<void> {
  const name = await create("produce");
  const headers = [
    { name: "trace", value: "a" },
    { name: "trace", valueBase64: "AP8=" },
  ];
  const done = await send(
    name,
    [{ key: "k", value: "v", headers, timestamp: 1_700_000_000_000 }, { valueBase64: null }],
    { acks: Acks.All, durability: Durability.Fsynced },
  );
  check(done.baseOffset === 0 && done.lastOffset === 1 && done.recordCount === 2, done);
  const result = await fetchFrom(name);
  const [first, second] = result.records;
  check(result.records.length === 2 && first !== undefined && second !== undefined, result);
  check(first.key === "k" && first.value === "v" && first.offset === 0, first);
  check(first.timestamp === 1_700_000_000_000, first);
  const named = first.headers.map((header) => [header.name, header.value, header.valueBase64]);
  check(isDeepStrictEqual(named, [["trace", "a", undefined], ["trace", undefined, "AP8="]]), first);
  check(second.key === null && second.value === null && second.valueBase64 === undefined, second);
}

async function contents(encoding: Encoding): Promise<void> {
  const name = await create(`contents.${encoding}`);
  for (const content of CONTENTS) {
    const sent: ProducedRecord = { ...keyOf(content, encoding), ...valueOf(content, encoding) };
    const { baseOffset } = await send(name, [sent], { encoding });
    const result = await fetchFrom(name, { offset: String(baseOffset), maxRecords: 1, encoding });
    const [found] = result.records;
    check(result.records.length === 1 && found !== undefined, content.name);
    check(isDeepStrictEqual(contentsOf(found), contentsOf(sent)), { content: content.name, found, sent });
  }
}

/** The member that says a content as a value. */
function valueOf(content: Content, encoding: Encoding): Pick<ProducedRecord, "value" | "valueBase64"> {
  if (content.base64 === null) return encoding === Encoding.Base64 ? { valueBase64: null } : { value: null };
  if (encoding === Encoding.Utf8 && content.text !== null) return { value: content.text };
  if (encoding === Encoding.Json && content.json && content.text !== null) return { value: JSON.parse(content.text) };
  return { valueBase64: content.base64 };
}

/** The same as a key. */
function keyOf(content: Content, encoding: Encoding): Pick<ProducedRecord, "key" | "keyBase64"> {
  const { value, valueBase64 } = valueOf(content, encoding);
  return valueBase64 === undefined ? { key: value } : { keyBase64: valueBase64 };
}

function contentsOf({ key, keyBase64, value, valueBase64 }: ProducedRecord | FetchedRecord): object {
  return { key, keyBase64, value, valueBase64 };
}

async function rawBatches(): Promise<void> {
  const name = await create("raw");
  const copy = await create("raw.copy");
  await send(name, [0, 1, 2].map((number) => ({ key: String(number), value: `value ${number}` })));
  const batches = await records.fetchRecordBatches({ topic: name, partition: 0, offset: "earliest" });
  const bytes = new Uint8Array(await batches.arrayBuffer());
  check(bytes.length > 61 && bytes[16] === 2, bytes);
  const done = await records.produceRecordBatches({ topic: copy, partition: 0, body: new Blob([bytes]) });
  check(done.recordCount === 3, done);
  for (const each of [name, copy]) {
    const values = await valuesOf(each);
    check(isDeepStrictEqual(values, ["value 0", "value 1", "value 2"]), values);
  }
}

async function lines(): Promise<void> {
  const partition = { topic: await create("lines"), partition: 0 };
  const sent = [{ key: "a", value: "1" }, { value: null }].map((each) => `${JSON.stringify(each)}\n`);
  const answer = await records.produceRecordLinesRaw({ ...partition, body: new Blob(sent) });
  check(answer.raw.status === 200, answer.raw);
  const results = (await linesOf(await answer.value())).map((line) => ProduceResultFromJSON(line));
  check(results.reduce((sum, result) => sum + result.recordCount, 0) === 2, results);
  const got = await records.fetchRecordLines({ ...partition, offset: "earliest" });
  const found = (await linesOf(got)).map((line) => FetchedRecordFromJSON(line));
  const pairs = found.map((record) => [record.key, record.value]);
  check(isDeepStrictEqual(pairs, [["a", "1"], [null, null]]), found);
}

async function linesOf(answer: Blob): Promise<unknown[]> {
  const text = await answer.text();
  return text.trimEnd().split("\n").map((line) => JSON.parse(line));
}

async function longPoll(): Promise<void> {
  const name = await create("poll");
  const waiting = valuesOf(name, { offset: "0", waitMs: 30_000 });
  await send(name, [{ value: "news" }]);
  const values = await waiting;
  check(isDeepStrictEqual(values, ["news"]), values);
}

async function offsetByTime(): Promise<void> {
  const name = await create("time", 2);
  await send(name, [1_000, 2_000, 3_000].map((timestamp) => ({ value: String(timestamp), timestamp })));
  const answer = await offsets.getOffset({ topic: name, partition: 0, timestamp: "1500" });
  check(answer.offset === 1 && answer.timestamp === 2_000, answer);
  const queries = ["earliest", "latest", "1500"].map((timestamp) => ({ topic: name, partition: 0, timestamp }));
  const { results } = await offsets.findOffsets({ offsetQueries: { queries } });
  const found = results.map((result) => result.error?.code ?? result.offset);
  check(isDeepStrictEqual(found, [0, 3, 1]), results);
}

async function idempotencyKey(): Promise<void> {
  const name = await create("idempotency");
  const replayed: (string | null)[] = [];
  for (let time = 0; time < 2; time++) {
    const answer = await records.produceRecordsRaw({
      topic: name,
      partition: 0,
      idempotencyKey: `${PREFIX}request`,
      recordList: { records: [{ value: "once" }] },
    });
    const done = await answer.value();
    check(done.baseOffset === 0, done);
    replayed.push(answer.raw.headers.get("Idempotent-Replayed"));
  }
  check(isDeepStrictEqual(replayed, [null, "true"]), replayed);
  const values = await valuesOf(name);
  check(isDeepStrictEqual(values, ["once"]), values);
}

async function transaction(): Promise<void> {
  const name = await create("transaction");
  const transactionalId = `${PREFIX}writer`;
  const { producerId, producerEpoch } = await transactions.initialiseProducer({ producerRequest: { transactionalId } });
  await send(name, [{ value: "all or nothing" }], { producerId, producerEpoch, baseSequence: 0, transactionalId });
  const before = await valuesOf(name, { isolation: Isolation.ReadCommitted });
  check(before.length === 0, before);
  await transactions.commitTransaction({ transactionalId, endTransaction: { producerId, producerEpoch } });
  const after = await valuesOf(name, { isolation: Isolation.ReadCommitted });
  check(isDeepStrictEqual(after, ["all or nothing"]), after);
}

async function job(): Promise<void> {
  const name = await create("job");
  const { jobId } = await jobs.beginJob({
    jobSpecification: { applicationId: `${PREFIX}loader`, version: 1, mode: JobMode.Idempotent, topics: [name] },
  });
  const attempt = await jobs.enlistAttempt({ jobId, attemptSpecification: { task: 0 } });
  const { producerId, producerEpoch } = attempt;
  await send(name, [{ value: "loaded" }], { producerId, producerEpoch, baseSequence: 0 });
  const done = await jobs.commitJob({ jobId, jobCommit: { winners: [{ producerId, rows: 1 }] } });
  check(done.winnerCount === 1 && done.rows === 1, done);
  const values = await valuesOf(name, { isolation: Isolation.ReadCommitted });
  check(isDeepStrictEqual(values, ["loaded"]), values);
}

async function paging(): Promise<void> {
  const names: string[] = [];
  for (let number = 0; number < 5; number++) names.push(await create(`page.${number}`));
  const found: string[] = [];
  const asked: ListTopicsRequest = { prefix: `${PREFIX}page.`, limit: 2 };
  for (;;) {
    const page = await topics.listTopics(asked);
    found.push(...page.data.map((each) => each.name));
    if (!page.hasMore) break;
    check(page.nextCursor !== null, page);
    asked.startAfter = page.nextCursor;
  }
  check(isDeepStrictEqual(found, names), found);
}

async function notFound(): Promise<void> {
  const request = records.fetchRecords({ topic: `${PREFIX}nothing`, partition: 0, offset: "0" });
  const problem = ProblemFromJSON(await refused(request, 404));
  check(problem.code === "unknown_topic_or_partition", problem);
}

async function gone(): Promise<void> {
  const name = await create("gone");
  await send(name, [0, 1, 2].map((number) => ({ value: String(number) })));
  await retention.deleteRecords({ topic: name, partition: 0, deleteRecords: { offset: 2 } });
  const request = records.fetchRecords({ topic: name, partition: 0, offset: "0" });
  const problem = LogStartProblemFromJSON(await refused(request, 410));
  check(problem.logStartOffset === 2, problem);
}

async function beyondTheEnd(): Promise<void> {
  const request = records.fetchRecords({ topic: await create("end"), partition: 0, offset: "7" });
  const problem = LogEndProblemFromJSON(await refused(request, 416));
  check(problem.logEndOffset === 0, problem);
}

async function precondition(): Promise<void> {
  const request = send(await create("precondition"), [{ value: "late" }], { expectedOffset: 3 });
  const problem = ExpectedOffsetProblemFromJSON(await refused(request, 412));
  check(problem.logEndOffset === 0, problem);
}

async function authentication(): Promise<void> {
  const request = new TopicsApi(new Configuration({ basePath: URL })).listTopics();
  const problem = ProblemFromJSON(await refused(request, 401));
  check(problem.retryable === false, problem);
}

const STEPS: Record<string, () => Promise<void>> = {
  topic,
  produce,
  "contents utf8": () => contents(Encoding.Utf8),
  "contents base64": () => contents(Encoding.Base64),
  "contents json": () => contents(Encoding.Json),
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
    const why = error instanceof ResponseError ? await error.response.text() : String(error);
    console.log(`failed ${step}: ${why.replaceAll("\n", " ")}`);
  }
}
