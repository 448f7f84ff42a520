//! Create a topic, append a record as JSON, read it back, and handle an error, with openapi-generator's rust.

use std::env;
use std::error::Error;

use program::requests::{from, to};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest_middleware::ClientBuilder;
use rollway_client::apis;
use rollway_client::apis::configuration::Configuration;
use rollway_client::apis::records_api::{FetchRecordsParams, ProduceRecordsParams, fetch_records, produce_records};
use rollway_client::apis::topics_api::{EnsureTopicParams, ensure_topic};
use rollway_client::models::{Encoding, LogStartProblem, Problem, ProducedRecord, TopicSpecification};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let headers = HeaderMap::from_iter([(HeaderName::from_static("client-id"), HeaderValue::from_static("example"))]);
    let client = Configuration {
        base_path: env::var("ROLLWAY_URL")?,
        bearer_access_token: Some(env::var("ROLLWAY_API_KEY")?),
        client: ClientBuilder::new(reqwest::Client::builder().default_headers(headers).build()?).build(),
        ..Configuration::default()
    };
    let topic_specification = TopicSpecification { partitions: Some(1), ..TopicSpecification::new() };
    ensure_topic(&client, EnsureTopicParams { topic: "example".to_string(), topic_specification }).await?;

    let reading = ProducedRecord {
        key: Some(Some(json!("kitchen"))),
        value: Some(Some(json!({ "celsius": 21.5 }))),
        ..ProducedRecord::new()
    };
    let sent = ProduceRecordsParams { encoding: Some(Encoding::Json), ..to("example", vec![reading]) };
    produce_records(&client, sent).await?;

    let wanted = FetchRecordsParams { encoding: Some(Encoding::Json), ..from("example") };
    match fetch_records(&client, wanted).await {
        Ok(found) => {
            for record in found.records {
                println!("{} {} {}", record.offset, json!(record.key), json!(record.value));
            }
        }
        Err(apis::Error::ResponseError(refused)) if refused.status == 410 => {
            let problem: LogStartProblem = serde_json::from_str(&refused.content)?;
            println!("those records are deleted; the log begins at {}", problem.log_start_offset);
        }
        Err(apis::Error::ResponseError(refused)) => {
            let problem: Problem = serde_json::from_str(&refused.content)?;
            println!("{} {} {}", problem.code, problem.detail, if problem.retryable { "again" } else { "for good" });
        }
        Err(other) => return Err(other.into()),
    }
    Ok(())
}
