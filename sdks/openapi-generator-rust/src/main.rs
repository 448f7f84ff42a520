//! All steps of sdks/steps.py with the client of openapi-generator's rust.

use std::error::Error;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{env, fs, process};

use async_trait::async_trait;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderValue};
use program::requests::{batches_from, batches_to, committed, from, lines_from, lines_to, to};
use reqwest::{Request, Response, StatusCode};
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use rollway_client::apis;
use rollway_client::apis::configuration::Configuration;
use rollway_client::apis::load_jobs_api::{
    BeginJobParams, CommitJobParams, EnlistAttemptParams, begin_job, commit_job, enlist_attempt,
};
use rollway_client::apis::offsets_api::{FindOffsetsParams, GetOffsetParams, find_offsets, get_offset};
use rollway_client::apis::records_api::{
    FetchRecordsError, FetchRecordsParams, ProduceRecordsError, ProduceRecordsParams, fetch_record_batches,
    fetch_record_lines, fetch_records, produce_record_batches, produce_record_lines, produce_records,
};
use rollway_client::apis::retention_api::{DeleteRecordsParams, delete_records};
use rollway_client::apis::topics_api::{
    EnsureTopicParams, GetTopicParams, ListTopicsParams, ensure_topic, get_topic, list_topics,
};
use rollway_client::apis::transactions_api::{
    CommitTransactionParams, InitialiseProducerParams, commit_transaction, initialise_producer,
};
use rollway_client::models::{
    Acks, AttemptSpecification, DeleteRecords, Durability, Encoding, EndTransaction, ExpectedOffsetProblem,
    FetchResult, FetchedRecord, JobCommit, JobMode, JobSpecification, JobWinner, LogEndProblem, LogStartProblem,
    OffsetQueries, OffsetQuery, PartitionProduceOutcome, Problem, ProduceResult, ProducedRecord, ProducerRequest,
    RecordHeader, TopicSpecification,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const STEPS: [&str; 18] = [
    "topic",
    "produce",
    "contents utf8",
    "contents base64",
    "contents json",
    "raw batches",
    "lines",
    "long poll",
    "offset by time",
    "idempotency key",
    "transaction",
    "job",
    "paging",
    "not found",
    "gone",
    "beyond the end",
    "precondition",
    "authentication",
];

/// A row of the table of contents.
#[derive(Deserialize)]
struct Content {
    name: String,
    base64: Option<String>,
    text: Option<String>,
    json: bool,
}

/// Keeps the headers of the latest response, since the functions of the client return its body alone.
#[derive(Clone, Default)]
struct LatestHeaders(Arc<Mutex<HeaderMap>>);

impl LatestHeaders {
    fn get(&self, name: &str) -> Option<String> {
        let headers = self.0.lock().expect("no thread panicked");
        headers.get(name).and_then(|value| value.to_str().ok()).map(String::from)
    }
}

#[async_trait]
impl Middleware for LatestHeaders {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let response = next.run(request, extensions).await?;
        self.0.lock().expect("no thread panicked").clone_from(response.headers());
        Ok(response)
    }
}

/// Says what lines are: the client sends bodies of bytes without a Content-Type.
struct LinesAreNamed;

#[async_trait]
impl Middleware for LinesAreNamed {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        if request.body().is_some() && request.url().path().ends_with("/record-lines") {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        }
        next.run(request, extensions).await
    }
}

struct Program {
    client: Configuration,
    prefix: String,
    contents: Vec<Content>,
    headers: LatestHeaders,
}

impl Program {
    fn new() -> Outcome<Self> {
        let headers = LatestHeaders::default();
        let client = Configuration {
            base_path: env::var("ROLLWAY_URL")?,
            bearer_access_token: Some(env::var("ROLLWAY_API_KEY")?),
            client: ClientBuilder::new(reqwest::Client::new()).with(headers.clone()).with(LinesAreNamed).build(),
            ..Configuration::default()
        };
        let contents = serde_json::from_slice(&fs::read(env::var("ROLLWAY_CONTENTS")?)?)?;
        Ok(Self { client, prefix: env::var("ROLLWAY_PREFIX")?, contents, headers })
    }

    async fn run(&self, step: &str) -> Outcome {
        match step {
            "topic" => self.topic().await,
            "produce" => self.produce().await,
            "contents utf8" => self.contents(Encoding::Utf8).await,
            "contents base64" => self.contents(Encoding::Base64).await,
            "contents json" => self.contents(Encoding::Json).await,
            "raw batches" => self.raw_batches().await,
            "lines" => self.lines().await,
            "long poll" => self.long_poll().await,
            "offset by time" => self.offset_by_time().await,
            "idempotency key" => self.idempotency_key().await,
            "transaction" => self.transaction().await,
            "job" => self.job().await,
            "paging" => self.paging().await,
            "not found" => self.not_found().await,
            "gone" => self.gone().await,
            "beyond the end" => self.beyond_the_end().await,
            "precondition" => self.precondition().await,
            "authentication" => self.authentication().await,
            _ => Err("there is no such step".into()),
        }
    }

    async fn create(&self, name: &str, partitions: i32) -> Outcome<String> {
        let topic_specification = TopicSpecification {
            partitions: Some(partitions),
            config: Some([("max.message.bytes".to_string(), "50000000".to_string())].into()),
        };
        let topic = format!("{}{name}", self.prefix);
        Ok(ensure_topic(&self.client, EnsureTopicParams { topic, topic_specification }).await?.name)
    }

    async fn send(&self, params: ProduceRecordsParams) -> Result<ProduceResult, apis::Error<ProduceRecordsError>> {
        produce_records(&self.client, params).await
    }

    async fn fetch(&self, params: FetchRecordsParams) -> Result<FetchResult, apis::Error<FetchRecordsError>> {
        fetch_records(&self.client, params).await
    }

    async fn topic(&self) -> Outcome {
        let topic = self.create("topic", 2).await?;
        let found = get_topic(&self.client, GetTopicParams { topic }).await?;
        equal(&found.config["max.message.bytes"].value, &Some(json!(50_000_000)))?;
        equal(&found.partitions.len(), &2)
    }

    async fn produce(&self) -> Outcome {
        let topic = self.create("produce", 1).await?;
        let header = |value: Option<&str>, bytes: Option<&str>| RecordHeader {
            name: Some(Some("trace".to_string())),
            value: value.map(|value| Some(value.to_string())),
            value_base64: bytes.map(|bytes| Some(bytes.to_string())),
            ..RecordHeader::new()
        };
        let headers = vec![header(Some("a"), None), header(None, Some("AP8="))];
        let record = ProducedRecord {
            key: Some(Some(json!("k"))),
            headers: Some(headers.clone()),
            timestamp: Some(Some(1_700_000_000_000)),
            ..text("v")
        };
        let tombstone = ProducedRecord { value_base64: Some(None), ..ProducedRecord::new() };
        let done = self
            .send(ProduceRecordsParams {
                acks: Some(Acks::All),
                durability: Some(Durability::Fsynced),
                ..to(&topic, vec![record, tombstone])
            })
            .await?;
        equal(&(done.base_offset, done.last_offset, done.record_count), &(0, 1, 2))?;
        let [first, second] = the_records(self.fetch(from(&topic)).await?)?;
        equal(&(&first.key, &first.value), &(&Some(Some(json!("k"))), &Some(Some(json!("v")))))?;
        equal(&(first.timestamp, first.offset), &(1_700_000_000_000, 0))?;
        equal(&first.headers, &headers)?;
        equal(&(second.key, second.value, second.value_base64), &(Some(None), Some(None), None))
    }

    async fn contents(&self, encoding: Encoding) -> Outcome {
        let topic = self.create(&format!("contents.{encoding}"), 1).await?;
        for content in &self.contents {
            let (shown, bytes) = content.members(encoding)?;
            let record = ProducedRecord {
                key: shown.clone(),
                key_base64: bytes.clone(),
                value: shown.clone(),
                value_base64: bytes.clone(),
                ..ProducedRecord::new()
            };
            let params = ProduceRecordsParams { encoding: Some(encoding), ..to(&topic, vec![record]) };
            let offset = self.send(params).await?.base_offset;
            let [found] = the_records(
                self.fetch(FetchRecordsParams {
                    offset: Some(offset.to_string()),
                    max_records: Some(1),
                    encoding: Some(encoding),
                    ..from(&topic)
                })
                .await?,
            )?;
            // Absent, null and a value are three things.
            equal(&(&found.key, &found.key_base64), &(&shown, &bytes)).map_err(|why| content.wrong(why.as_ref()))?;
            equal(&(&found.value, &found.value_base64), &(&shown, &bytes))
                .map_err(|why| content.wrong(why.as_ref()))?;
        }
        Ok(())
    }

    async fn raw_batches(&self) -> Outcome {
        let (topic, copy) = (self.create("raw", 1).await?, self.create("raw.copy", 1).await?);
        let records = (0..3).map(|number| ProducedRecord {
            key: Some(Some(json!(number.to_string()))),
            ..text(&format!("value {number}"))
        });
        self.send(to(&topic, records.collect())).await?;
        let batches = fetch_record_batches(&self.client, batches_from(&topic)).await?.bytes().await?;
        check(batches.len() > 61 && batches[16] == 2, &batches)?;
        let body = file("batches", &batches)?;
        let done = produce_record_batches(&self.client, batches_to(&copy, &body)).await?;
        fs::remove_file(body)?;
        equal(&done.record_count, &3)?;
        for each in [&topic, &copy] {
            equal(&texts(&self.fetch(from(each)).await?), &vec!["value 0", "value 1", "value 2"])?;
        }
        Ok(())
    }

    async fn lines(&self) -> Outcome {
        let topic = self.create("lines", 1).await?;
        let keyed = ProducedRecord { key: Some(Some(json!("a"))), ..text("1") };
        let tombstone = ProducedRecord { value: Some(None), ..ProducedRecord::new() };
        let sent = format!("{}\n{}\n", serde_json::to_string(&keyed)?, serde_json::to_string(&tombstone)?);
        let body = file("lines", sent.as_bytes())?;
        let answer = produce_record_lines(&self.client, lines_to(&topic, &body)).await?;
        equal(&answer.status(), &StatusCode::OK)?;
        fs::remove_file(body)?;
        let mut count = 0;
        for line in answer.text().await?.lines() {
            let outcome: PartitionProduceOutcome = serde_json::from_str(line)?;
            equal(&outcome.error, &None)?;
            count += outcome.record_count.ok_or("a result says how many records there are")?;
        }
        equal(&count, &2)?;
        let answer = fetch_record_lines(&self.client, lines_from(&topic)).await?.text().await?;
        let records = answer.lines().map(serde_json::from_str).collect::<Result<Vec<FetchedRecord>, _>>()?;
        let found: Vec<_> = records.into_iter().map(|record| (record.key, record.value)).collect();
        equal(&found, &vec![(Some(Some(json!("a"))), Some(Some(json!("1")))), (Some(None), Some(None))])
    }

    async fn long_poll(&self) -> Outcome {
        let topic = self.create("poll", 1).await?;
        let waiting = FetchRecordsParams { offset: Some("0".to_string()), wait_ms: Some(30_000), ..from(&topic) };
        let (found, sent) = tokio::join!(self.fetch(waiting), self.send(to(&topic, vec![text("news")])));
        sent?;
        equal(&texts(&found?), &vec!["news"])
    }

    async fn offset_by_time(&self) -> Outcome {
        let topic = self.create("time", 2).await?;
        let records = [1_000, 2_000, 3_000]
            .map(|time: i64| ProducedRecord { timestamp: Some(Some(time)), ..text(&time.to_string()) });
        self.send(to(&topic, records.into())).await?;
        let params = GetOffsetParams {
            topic: topic.clone(),
            partition: 0,
            timestamp: "1500".to_string(),
            isolation: None,
            current_leader_epoch: None,
        };
        let answer = get_offset(&self.client, params).await?;
        equal(&(answer.offset, answer.timestamp), &(Some(1), Some(2_000)))?;
        let queries =
            ["earliest", "latest", "1500"].map(|time| OffsetQuery::new(topic.clone(), 0, time.to_string())).into();
        let params = FindOffsetsParams { offset_queries: OffsetQueries::new(queries) };
        let mut offsets = Vec::new();
        for outcome in find_offsets(&self.client, params).await?.results {
            equal(&outcome.error, &None)?;
            offsets.push(outcome.offset);
        }
        equal(&offsets, &vec![Some(Some(0)), Some(Some(3)), Some(Some(1))])
    }

    async fn idempotency_key(&self) -> Outcome {
        let topic = self.create("idempotency", 1).await?;
        let params = ProduceRecordsParams {
            idempotency_key: Some(format!("{}request", self.prefix)),
            ..to(&topic, vec![text("once")])
        };
        for replayed in [None, Some("true")] {
            equal(&self.send(params.clone()).await?.base_offset, &0)?;
            equal(&self.headers.get("Idempotent-Replayed").as_deref(), &replayed)?;
        }
        equal(&texts(&self.fetch(from(&topic)).await?), &vec!["once"])
    }

    async fn transaction(&self) -> Outcome {
        let topic = self.create("transaction", 1).await?;
        let identity = format!("{}writer", self.prefix);
        let producer_request =
            ProducerRequest { transactional_id: Some(Some(identity.clone())), ..ProducerRequest::new() };
        let params = InitialiseProducerParams { producer_request, timeout_ms: None };
        let producer = initialise_producer(&self.client, params).await?;
        self.send(ProduceRecordsParams {
            producer_id: Some(producer.producer_id),
            producer_epoch: Some(producer.producer_epoch),
            base_sequence: Some(0),
            transactional_id: Some(identity.clone()),
            ..to(&topic, vec![text("all or nothing")])
        })
        .await?;
        equal(&self.fetch(committed(&topic)).await?.records, &vec![])?;
        let params = CommitTransactionParams {
            transactional_id: identity,
            end_transaction: EndTransaction::new(producer.producer_id, producer.producer_epoch),
            timeout_ms: None,
        };
        commit_transaction(&self.client, params).await?;
        equal(&texts(&self.fetch(committed(&topic)).await?), &vec!["all or nothing"])
    }

    async fn job(&self) -> Outcome {
        let topic = self.create("job", 1).await?;
        let job_specification = JobSpecification {
            mode: Some(JobMode::Idempotent),
            topics: Some(vec![topic.clone()]),
            ..JobSpecification::new(format!("{}loader", self.prefix), 1)
        };
        let begun = begin_job(&self.client, BeginJobParams { job_specification, timeout_ms: None }).await?;
        let params =
            EnlistAttemptParams { job_id: begun.job_id.clone(), attempt_specification: AttemptSpecification::new(0) };
        let attempt = enlist_attempt(&self.client, params).await?;
        self.send(ProduceRecordsParams {
            producer_id: Some(attempt.producer_id),
            producer_epoch: Some(attempt.producer_epoch),
            base_sequence: Some(0),
            ..to(&topic, vec![text("loaded")])
        })
        .await?;
        let winner = JobWinner { rows: Some(Some(1)), ..JobWinner::new(attempt.producer_id) };
        let params =
            CommitJobParams { job_id: begun.job_id, job_commit: JobCommit::new(vec![winner]), timeout_ms: None };
        let done = commit_job(&self.client, params).await?;
        equal(&(done.winner_count, done.rows), &(1, 1))?;
        equal(&texts(&self.fetch(committed(&topic)).await?), &vec!["loaded"])
    }

    async fn paging(&self) -> Outcome {
        let mut names = Vec::new();
        for number in 0..5 {
            names.push(self.create(&format!("page.{number}"), 1).await?);
        }
        let prefix = Some(format!("{}page.", self.prefix));
        let (mut found, mut start_after) = (Vec::new(), None);
        loop {
            let params = ListTopicsParams { prefix: prefix.clone(), start_after, limit: Some(2) };
            let page = list_topics(&self.client, params).await?;
            found.extend(page.data.into_iter().map(|topic| topic.name));
            if !page.has_more {
                break;
            }
            start_after = Some(page.next_cursor.ok_or("there are more topics, and there is no cursor")?);
        }
        equal(&found, &names)
    }

    async fn not_found(&self) -> Outcome {
        let answer = self.fetch(from(&format!("{}nothing", self.prefix))).await;
        equal(&problem::<Problem, _, _>(answer, StatusCode::NOT_FOUND)?.code.as_str(), &"unknown_topic_or_partition")
    }

    async fn gone(&self) -> Outcome {
        let topic = self.create("gone", 1).await?;
        self.send(to(&topic, ["0", "1", "2"].map(text).into())).await?;
        let before_two = DeleteRecords { offset: Some(Some(2)), ..DeleteRecords::new() };
        let params = DeleteRecordsParams { topic: topic.clone(), partition: 0, delete_records: before_two };
        delete_records(&self.client, params).await?;
        let answer = self.fetch(FetchRecordsParams { offset: Some("0".to_string()), ..from(&topic) }).await;
        equal(&problem::<LogStartProblem, _, _>(answer, StatusCode::GONE)?.log_start_offset, &2)
    }

    async fn beyond_the_end(&self) -> Outcome {
        let topic = self.create("end", 1).await?;
        let answer = self.fetch(FetchRecordsParams { offset: Some("7".to_string()), ..from(&topic) }).await;
        equal(&problem::<LogEndProblem, _, _>(answer, StatusCode::RANGE_NOT_SATISFIABLE)?.log_end_offset, &0)
    }

    async fn precondition(&self) -> Outcome {
        let topic = self.create("precondition", 1).await?;
        let params = ProduceRecordsParams { expected_offset: Some(3), ..to(&topic, vec![text("late")]) };
        let answer = self.send(params).await;
        let found: ExpectedOffsetProblem = problem(answer, StatusCode::PRECONDITION_FAILED)?;
        equal(&found.log_end_offset, &0)
    }

    async fn authentication(&self) -> Outcome {
        let anonymous = Configuration { bearer_access_token: None, ..self.client.clone() };
        let params = ListTopicsParams { prefix: None, start_after: None, limit: None };
        let answer = list_topics(&anonymous, params).await;
        equal(&problem::<Problem, _, _>(answer, StatusCode::UNAUTHORIZED)?.retryable, &false)
    }
}

impl Content {
    /// The two members that say it: `value` and `value_base64`, or the same of a key.
    fn members(&self, encoding: Encoding) -> Outcome<(Option<Option<Value>>, Option<Option<String>>)> {
        Ok(match (&self.base64, &self.text, encoding) {
            (None, _, Encoding::Base64) => (None, Some(None)),
            (None, _, _) => (Some(None), None),
            (_, Some(text), Encoding::Utf8) => (Some(Some(json!(text))), None),
            (_, Some(text), Encoding::Json) if self.json => (Some(Some(serde_json::from_str(text)?)), None),
            (Some(base64), _, _) => (None, Some(Some(base64.clone()))),
        })
    }

    fn wrong(&self, why: &dyn Error) -> Box<dyn Error> {
        format!("{}: {why}", self.name).into()
    }
}

/// The problem of a request that was answered with `status`, decoded as the type that the document has for it.
///
/// The `entity` of an error is the first variant that fits its body, whatever the status.
fn problem<P: DeserializeOwned, T: Debug, E: Debug + 'static>(
    answer: Result<T, apis::Error<E>>,
    status: StatusCode,
) -> Outcome<P> {
    match answer {
        Err(apis::Error::ResponseError(response)) => {
            equal(&response.status, &status)?;
            Ok(serde_json::from_str(&response.content)?)
        }
        Err(other) => Err(other.into()),
        Ok(result) => Err(format!("{status} expected, not {result:?}").into()),
    }
}

fn text(value: &str) -> ProducedRecord {
    ProducedRecord { value: Some(Some(json!(value))), ..ProducedRecord::new() }
}

fn the_records<const N: usize>(result: FetchResult) -> Outcome<[FetchedRecord; N]> {
    result.records.try_into().map_err(|records| brief(&records).into())
}

fn texts(result: &FetchResult) -> Vec<&str> {
    let values = result.records.iter().filter_map(|record| record.value.as_ref()?.as_ref());
    values.map(|value| value.as_str().unwrap_or("no text")).collect()
}

/// A file with these bytes: the client sends bodies of bytes from files alone.
fn file(name: &str, content: &[u8]) -> Outcome<PathBuf> {
    let path = env::temp_dir().join(format!("rollway-{}-{name}", process::id()));
    fs::write(&path, content)?;
    Ok(path)
}

fn check(is_right: bool, what: &impl Debug) -> Outcome {
    if is_right { Ok(()) } else { Err(brief(what).into()) }
}

fn equal<T: PartialEq + Debug>(found: &T, expected: &T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{}, not {}", brief(expected), brief(found)).into()) }
}

fn brief(what: &impl Debug) -> String {
    format!("{what:?}").chars().take(500).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let program = Program::new()?;
    for step in STEPS {
        match program.run(step).await {
            Ok(()) => println!("ok {step}"),
            Err(why) => println!("failed {step}: {}", format!("{why:?}").replace('\n', " ")),
        }
    }
    Ok(())
}
